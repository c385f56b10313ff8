"""The progress of a training in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cfnade.training.callbacks import HistoryCallback, Stage, epoch_line

REDRAW_SECONDS = 0.1


class TrainingView(HistoryCallback):
    """Shows epochs on standard error and writes each to history.jsonl.

    names and epochs are those of each member. `begin` is called when training has really begun:
    until then no file is touched.
    """

    def __init__(
        self,
        names: Sequence[str],
        epochs: Sequence[int],
        folder: Path,
        done: Sequence[Mapping[str, Any]],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(folder / "history.jsonl", done)
        self._stages = [
            Stage(name, member=number, epochs=most)
            for number, (name, most) in enumerate(zip(names, epochs, strict=True))
        ]
        self._epochs, self._begin_run = epochs, begin
        self._at = {record.get("member", 0): int(record["epoch"]) for record in done}
        self._first_step: float | None = None
        self._drawn = 0.0
        self._here = 0  # epochs since it began
        console = Console(stderr=True)
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[cost]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._live.add_task("training", total=None, cost="")
        self._front: Stage | None = None

    def __enter__(self) -> TrainingView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _begin(self) -> None:
        if not self._begun:
            self._begin_run()
        super()._begin()

    def on_stage_begin(self, stage: Stage) -> None:
        self._front = stage
        self._pulse()
        self._live.update(self._task, description=self._label(stage), cost="")

    def _pulse(self) -> None:
        """Show that work goes on, until the next step says how far: a full bar looks stuck."""
        for task in self._live.tasks:
            task.total = None  # update() takes None for no change

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        super().on_step_end(stage, progress, cost)
        if self._first_step is None:
            self._first_step = time.monotonic()
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._drawn = time.monotonic()
            self._front = stage
            text = self._label(stage)
            if stage.epochs:
                text += f"   epoch {int(progress) + 1}"
            elif stage.seconds:
                text += f"   {stage.seconds:.0f} s left"
            shown = "" if cost is None else f"cost {cost:.4g}"
            done = progress - int(progress)
            self._live.update(self._task, total=1.0, completed=done, description=text, cost=shown)

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        super().on_epoch_end(record)
        member = record.get("member", 0)
        line = epoch_line(record, self._stages)
        if not record.get("refit"):
            self._at[member] = record["epoch"]
            self._here += 1
            line += f"   {self._left():5.0f} s left"
        self._print(line)
        if self._front is not None and member == (self._front.member or 0):
            self._pulse()

    def on_message(self, text: str) -> None:
        self._print(text)

    def _print(self, line: str) -> None:
        if self._live.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, highlight=False, markup=False)

    def _label(self, stage: Stage) -> str:
        several = len(self._epochs) > 1 and stage.member is not None
        place = f"model {(stage.member or 0) + 1}/{len(self._epochs)} " if several else ""
        return place + stage.name

    def _left(self) -> float:
        spent = time.monotonic() - (self._first_step or time.monotonic())
        left = sum(self._epochs) - sum(self._at.values())
        return spent / max(1, self._here) * left
