"""Training progress in the terminal, and history.jsonl."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_REFRESH = 0.1  # seconds between two updates of the progress bar


class TrainingView:
    """Shows epochs on standard error and writes each to history.jsonl.

    names and epochs are those of each member. `begin` is called when training has really begun:
    until then no file is touched.
    """

    def __init__(
        self,
        names: Sequence[str],
        epochs: Sequence[int],
        folder: Path,
        done: list[dict[str, Any]],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._names = names
        self._epochs, self._history = epochs, folder / "history.jsonl"
        self._at = {record.get("member", 0): int(record["epoch"]) for record in done}
        self._began: float | None = None  # the first step
        self._drawn = 0.0
        self._here = 0  # epochs since it began
        self._done, self._begin, self._begun = done, begin, False
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
        self._member: int | None = None  # whose steps are shown

    def __enter__(self) -> TrainingView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def stage(self, name: str, member: int | None) -> None:
        """Show what is worked on; without steps of it the bar pulses."""
        self._member = member
        text = name if member is None else self._of_several(member).rstrip() or name
        self._pulse()
        self._live.update(self._task, description=text, cost="")

    def _pulse(self) -> None:
        """Show that work goes on, until the next step says how far: a full bar looks stuck."""
        for task in self._live.tasks:
            task.total = None  # update() takes None for no change

    def step(self, done: float, cost: float) -> None:
        self._touch_files()
        if self._began is None:
            self._began = time.monotonic()
        if time.monotonic() - self._drawn > _REFRESH:
            self._drawn = time.monotonic()
            member = self._member or 0
            text = self._of_several(member) + f"epoch {self._at.get(member, 0) + 1}"
            shown = {"description": text, "cost": f"cost {cost:.4g}"}
            self._live.update(self._task, total=1.0, completed=done, **shown)  # type: ignore[arg-type]

    def epoch(self, record: dict[str, Any]) -> None:
        self._touch_files()  # a run saved after an epoch's last step goes on without another
        member = record.get("member", 0)
        if record["epoch"] <= self._at.get(member, 0):  # the refit counts from 1 again
            line = f"refit {record['epoch']}   cost {record['cost']:9.4g}"
            print(self._of_several(member) + line, file=sys.stderr)
            return
        self._at[member] = record["epoch"]
        self._here += 1
        with self._history.open("a") as file:
            file.write(json.dumps(record) + "\n")
        line = self._line(record)
        if self._live.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, highlight=False)
        if member == (self._member or 0):
            self._pulse()

    def _touch_files(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._begin()
        self._history.parent.mkdir(parents=True, exist_ok=True)
        # A killed run may have written epochs that its saved state does not know of.
        self._history.write_text("".join(json.dumps(record) + "\n" for record in self._done))

    def _line(self, record: dict[str, Any]) -> str:
        member = record.get("member", 0)
        epochs = self._epochs[member]
        width = len(str(epochs))
        parts = [f"epoch {record['epoch']:{width}}/{epochs}", f"cost {record['cost']:9.4g}"]
        if record["valid_rmse"] is not None:
            parts.append(f"valid rmse {record['valid_rmse']:.4f}")
            parts.append(f"best {record['best_rmse']:.4f} @ {record['best_epoch']:<{width}}")
        parts.append(f"{record['seconds']:6.1f} s")
        return self._of_several(member) + "   ".join(parts) + f"   {self._left():5.0f} s left"

    def _of_several(self, member: int) -> str:
        """Which one it is, if there are others."""
        several = len(self._epochs) > 1
        place = f"model {member + 1}/{len(self._epochs)} {self._names[member]}   "
        return place if several else ""

    def _left(self) -> float:
        spent = time.monotonic() - (self._began or time.monotonic())
        left = sum(self._epochs) - sum(self._at.values())
        return spent / max(1, self._here) * left
