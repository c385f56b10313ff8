"""How far a training has come: the estimated time left, and a display for terminals and notebooks.

CFNADE().fit(ratings, callbacks=[ProgressCallback()])
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cfnade.training.callbacks import Callback, Stage, epoch_line

REDRAW_SECONDS = 0.1

MIN_FRACTION = 0.05
"""From this fraction of a stage on, its own speed tells how long the rest takes."""


@dataclass
class _StageState:
    """What is known of one stage."""

    stage: Stage
    epochs_done: float = 0.0
    best_epoch: int = 0
    began: float | None = None
    began_at: float = 0.0
    """The fraction that was done then: more than 0 if it was resumed."""
    ended: float | None = None

    @property
    def is_running(self) -> bool:
        return self.began is not None and self.ended is None

    def fraction(self) -> float:
        """Return the part that is done.

        With early stopping, training ends between `patience` epochs after the best one and the last
        epoch. The geometric mean of the shortest and the longest rest is within a factor of two of
        the truth if these differ by less than four times.
        """
        if self.ended is not None:
            return 1.0
        epochs, progress = self.stage.epochs, self.epochs_done
        if epochs is None:
            return min(1.0, progress)
        longest = max(0.0, epochs - progress)
        if self.stage.patience is None or self.stage.refit:
            return progress / max(1e-9, progress + longest)
        shortest = min(longest, max(0.0, self.best_epoch + self.stage.patience - progress))
        return progress / max(1e-9, progress + math.sqrt(shortest * longest))


class TimeEstimate:
    """Estimates the time left from the stages' estimated seconds and from what is done so far.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._states = clock, dict[tuple[Any, ...], _StageState]()

    def announce(self, stages: Sequence[Stage]) -> None:
        """Set all stages of the training."""
        self._states = {_key(stage): _StageState(stage) for stage in stages}

    def begin(self, stage: Stage) -> None:
        """Note that a stage begins."""
        state = self._states.setdefault(_key(stage), _StageState(stage))
        state.stage, state.began = stage, self._clock()

    def advance(self, stage: Stage, progress: float) -> None:
        """Note the epochs that are done, or the fraction of a stage without epochs."""
        state = self._states.setdefault(_key(stage), _StageState(stage))
        if state.began is None or not state.epochs_done:
            first = math.floor(progress) if stage.epochs else 0.0
            state.began = self._clock() if state.began is None else state.began
            state.epochs_done = first  # a resumed run begins here
            state.began_at = state.fraction()
        state.stage, state.epochs_done = stage, progress

    def improve(self, stage: Stage, best_epoch: int) -> None:
        """Note the best epoch so far, on which early stopping depends."""
        self._states.setdefault(_key(stage), _StageState(stage)).best_epoch = best_epoch

    def end(self, stage: Stage) -> None:
        """Note that a stage is complete."""
        self._states.setdefault(_key(stage), _StageState(stage)).ended = self._clock()

    def running(self) -> list[Stage]:
        """Return the stages that have begun and not ended."""
        return [state.stage for state in self._states.values() if state.is_running]

    def remaining(self) -> float | None:
        """Return the estimated seconds to the end; None if nothing is known yet."""
        states = list(self._states.values())
        running = [state for state in states if state.is_running]
        speed, total = self._speed(), 0.0
        for state in states:
            if state.ended is not None:
                continue
            own_rest = self._own_rest(state) if len(running) == 1 else None
            if own_rest is not None:
                total += own_rest
            elif state.stage.seconds:
                total += speed * state.stage.seconds * (1 - self._fraction(state, speed))
            elif state.stage.epochs:
                seconds = self._own_rest(state) or self._rest_as_others(state)
                if seconds is None:
                    return None
                total += seconds
        return total

    def _own_rest(self, state: _StageState) -> float | None:
        """Return the rest of a stage at the speed that it had so far."""
        fraction = state.fraction()
        progress = fraction - state.began_at
        if not state.is_running or progress <= 0 or fraction < MIN_FRACTION or state.began is None:
            return None
        return (self._clock() - state.began) * (1 - fraction) / progress

    def _rest_as_others(self, state: _StageState) -> float | None:
        """Return the time of a stage without an estimate: per epoch that of others without one."""
        now = self._clock()
        rates = [
            ((now if peer.ended is None else peer.ended) - peer.began) / peer.epochs_done
            for peer in self._states.values()
            if peer.began is not None and peer.epochs_done > 0 and peer.stage.epochs
        ]
        return None if not rates else (state.stage.epochs or 0) * sum(rates) / len(rates)

    def _speed(self) -> float:
        """Return seconds per estimated second, of all stages with an estimate."""
        priced = [
            state
            for state in self._states.values()
            if state.stage.seconds and state.began is not None
        ]
        if not priced:
            return 1.0
        elapsed = self._clock() - min(state.began for state in priced if state.began is not None)
        planned = sum(state.stage.seconds * (state.fraction() - state.began_at) for state in priced)
        offset = 0.02 * sum(
            state.stage.seconds for state in priced
        )  # so that the first step decides nothing
        return (elapsed + offset) / (planned + offset)

    def _fraction(self, state: _StageState, speed: float) -> float:
        """Return the part that is done; by the clock of a stage that does not tell."""
        if state.epochs_done or state.began is None:
            return state.fraction()
        return min(0.8, (self._clock() - state.began) / (speed * state.stage.seconds))


def _key(stage: Stage) -> tuple[Any, ...]:
    return stage.name, stage.member, stage.refit


class ProgressCallback(Callback):
    """Prints a line for each epoch, and shows below them the stage, the model and the time left.

    Works in terminals and, with ipywidgets, in notebooks; elsewhere it prints the lines alone.

    Args:
        file: Where it prints; None is standard output.
    """

    def __init__(self, file: Any = None) -> None:
        self._console = Console(file=file)
        self._estimate = TimeEstimate()
        self._members: list[Stage] = []
        self._drawn = 0.0
        notebook = self._console.is_jupyter
        self._display = Progress(
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[cost]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            disable=not (notebook and find_spec("ipywidgets")) and not self._console.is_terminal,
            transient=True,
        )
        self._task = self._display.add_task("training", total=None, cost="", left="")

    def on_train_begin(self, stages: Sequence[Stage]) -> None:
        self._members = [s for s in stages if s.member is not None and not s.refit]
        self._estimate.announce(stages)
        self._display.start()

    def on_stage_begin(self, stage: Stage) -> None:
        self._estimate.begin(stage)
        self._pulse()
        self._show(cost="")

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        self._estimate.advance(stage, progress)
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._drawn = time.monotonic()
            completed = progress - int(progress) if stage.epochs else progress
            cost_text = "" if cost is None else f"cost {cost:.4g}"
            self._show(stage, progress, total=1.0, completed=completed, cost=cost_text)

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        number = record.get("member", 0)
        if number < len(self._members) and not record.get("refit"):
            self._estimate.improve(self._members[number], int(record["best_epoch"]))
        line = epoch_line(record, self._members)
        self._print(f"{line}   {self._time_left()}".rstrip())
        self._pulse()

    def on_stage_end(self, stage: Stage) -> None:
        self._estimate.end(stage)
        self._show(cost="")

    def on_message(self, text: str) -> None:
        self._print(text)

    def on_train_end(self) -> None:
        self._display.stop()

    def _pulse(self) -> None:
        """Animate the bar until the next step, as a full bar looks stuck."""
        for task in self._display.tasks:
            task.total = None  # update() takes None for no change

    def _show(self, front: Stage | None = None, progress: float = 0.0, **fields: Any) -> None:
        """Name the running stages, with the epoch of the one whose step has ended."""
        parts = []
        for stage in self._estimate.running():
            epoch = f"   epoch {int(progress) + 1}" if stage == front and stage.epochs else ""
            parts.append(self._label(stage) + epoch)
        description = ", ".join(parts) or "training"
        fields["left"] = self._time_left()
        self._display.update(self._task, description=description, **fields)

    def _label(self, stage: Stage) -> str:
        place = ""
        if len(self._members) > 1 and stage.member is not None:
            place = f"model {stage.member + 1}/{len(self._members)} "
        detail = f": {stage.detail}" if stage.detail else ""
        return place + stage.name + detail + (" refit" if stage.refit else "")

    def _time_left(self) -> str:
        seconds = self._estimate.remaining()
        if seconds is None:
            return ""
        return f"{seconds:.0f} s left" if seconds < 100 else f"{seconds / 60:.0f} min left"

    def _print(self, line: str) -> None:
        if self._display.disable:
            print(line, file=self._console.file or sys.stdout, flush=True)
        else:
            self._console.print(line, highlight=False, markup=False)
