"""Training as a person watches it: a live line on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_EVERY = 0.1  # seconds between two drawings of the live line


class TrainingView:
    """Shows epochs on standard error and writes each to history.jsonl.

    `begin` is called when training has really begun: until then no file is touched.
    """

    def __init__(
        self,
        epochs: int,
        folder: Path,
        done: list[dict[str, Any]],
        begin: Callable[[], None] = lambda: None,
        members: int = 1,
    ) -> None:
        self._epochs, self._members, self._history = epochs, members, folder / "history.jsonl"
        self._member = done[-1].get("member", 0) if done else 0
        self._epoch = done[-1]["epoch"] if done else 0
        self._began, self._drawn = time.monotonic(), 0.0
        self._here = 0  # epochs since it began
        self._done, self._begin, self._begun = done, begin, False
        console = Console(stderr=True)
        self._live = Progress(
            TextColumn("epoch {task.fields[number]}/" + str(epochs)),
            BarColumn(20),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._live.add_task("", total=1.0, number=self._epoch + 1)

    def __enter__(self) -> TrainingView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, done: float, cost: float) -> None:
        self._touch_files()
        if time.monotonic() - self._drawn > _EVERY:
            self._drawn = time.monotonic()
            self._live.update(self._task, completed=done, description=f"cost {cost:.4g}")

    def epoch(self, record: dict[str, Any]) -> None:
        self._touch_files()  # a run saved after an epoch's last step goes on without another
        next_member = record.get("member", 0) > self._member
        if record["epoch"] <= self._epoch and not next_member:  # the refit counts from 1 again
            print(f"refit {record['epoch']}   cost {record['cost']:9.4g}", file=sys.stderr)
            return
        self._epoch, self._member = record["epoch"], record.get("member", 0)
        self._here += 1
        with self._history.open("a") as file:
            file.write(json.dumps(record) + "\n")
        line = self._line(record)
        if self._live.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, highlight=False)
            self._live.update(self._task, completed=0.0, number=self._epoch + 1)

    def _touch_files(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._begin()
        self._history.parent.mkdir(parents=True, exist_ok=True)
        # A killed run may have written epochs that its saved state does not know of.
        self._history.write_text("".join(json.dumps(record) + "\n" for record in self._done))

    def _line(self, record: dict[str, Any]) -> str:
        width = len(str(self._epochs))
        parts = [f"epoch {record['epoch']:{width}}/{self._epochs}", f"cost {record['cost']:9.4g}"]
        if self._members > 1:
            parts.insert(0, f"model {self._member + 1}/{self._members}")
        if record["valid_rmse"] is not None:
            parts.append(f"valid rmse {record['valid_rmse']:.4f}")
            parts.append(f"best {record['best_rmse']:.4f} @ {record['best_epoch']:<{width}}")
        parts.append(f"{record['seconds']:6.1f} s")
        return "   ".join(parts) + f"   {self._left():5.0f} s left"

    def _left(self) -> float:
        spent = time.monotonic() - self._began
        left = self._epochs * (self._members - self._member) - self._epoch
        return spent / max(1, self._here) * left
