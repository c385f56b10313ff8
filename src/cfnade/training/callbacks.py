"""Callbacks: objects that receive the progress of a training.

    CFNADE().fit(ratings, callbacks=[ProgressCallback()])

Subclass `Callback` and override what you need. progress.py has the display for terminals and
notebooks, integrations/callbacks.py callbacks for TensorBoard and MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

CRITERIA = {"rmse": "RMSE", "nll": "NLL", "ndcg": "NDCG"}
"""Validation scores that select the best epoch, as they are displayed."""


@dataclass(frozen=True)
class Stage:
    """One part of a training: a member of the ensemble, calibration, the interaction model."""

    name: str
    seconds: float = 0.0
    """Estimated time; 0 if it is short or unknown."""
    member: int | None = None
    """Number of the member that it trains, from 0."""
    epochs: int | None = None
    """Maximum epochs; None if it is not trained in epochs."""
    patience: int | None = None
    """Epochs without improvement after which it ends; None: it does not end early."""
    refit: bool = False
    """Whether the member is trained again, for as many epochs as validation selected."""
    detail: str = ""
    """What is at work within it, such as a component of the interaction model."""
    numbered: bool = False
    """Whether records contain the number of the member, because there are several."""


class Callback:
    """Receives the progress of a training; each method does nothing unless overridden.

    Members may be trained at the same time, but calls come one at a time.
    """

    def on_train_begin(self, stages: Sequence[Stage]) -> None:
        """Training begins; it has these stages."""

    def on_stage_begin(self, stage: Stage) -> None:
        """A stage begins."""

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        """A step is done.

        Args:
            stage: The stage of the step.
            progress: Epochs done, such as 3.25; the fraction done of a stage without epochs.
            cost: Mean cost of the epoch so far.
        """

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        """An epoch is done; the record is the entry of the estimator's `history_`."""

    def on_stage_end(self, stage: Stage) -> None:
        """A stage is complete."""

    def on_message(self, text: str) -> None:
        """A result worth a line, such as the validation score of an interaction component."""

    def on_train_end(self) -> None:
        """Training is complete, or was stopped."""


class CallbackList(Callback):
    """Calls several callbacks, one at a time."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks, self._lock = tuple(callbacks), Lock()

    def on_train_begin(self, stages: Sequence[Stage]) -> None:
        self._call(lambda callback: callback.on_train_begin(stages))

    def on_stage_begin(self, stage: Stage) -> None:
        self._call(lambda callback: callback.on_stage_begin(stage))

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        self._call(lambda callback: callback.on_step_end(stage, progress, cost))

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        self._call(lambda callback: callback.on_epoch_end(record))

    def on_stage_end(self, stage: Stage) -> None:
        self._call(lambda callback: callback.on_stage_end(stage))

    def on_message(self, text: str) -> None:
        self._call(lambda callback: callback.on_message(text))

    def on_train_end(self) -> None:
        self._call(lambda callback: callback.on_train_end())

    def _call(self, method: Callable[[Callback], None]) -> None:
        with self._lock:
            for callback in self._callbacks:
                method(callback)


@contextmanager
def reported(callbacks: Iterable[Callback], stages: Sequence[Stage]) -> Iterator[Callback]:
    """Call `on_train_begin`, yield one callback for all, and call `on_train_end` in any case."""
    callback = CallbackList(callbacks)
    callback.on_train_begin(stages)
    try:
        yield callback
    finally:
        callback.on_train_end()


@contextmanager
def reported_stage(callback: Callback, stage: Stage) -> Iterator[None]:
    """Report the beginning of a stage and its end."""
    callback.on_stage_begin(stage)
    yield
    callback.on_stage_end(stage)


class MessageCallback(Callback):
    """Passes messages to a function."""

    def __init__(self, function: Callable[[str], None]) -> None:
        self._function = function

    def on_message(self, text: str) -> None:
        self._function(text)


class HistoryCallback(Callback):
    """Writes the record of each epoch to a file, as lines of JSON.

    The file is not touched before the first step. Records of a resumed run are written first, as a
    killed run may have written epochs that its saved state does not contain. `begin` is called
    before that.
    """

    def __init__(
        self,
        path: Path,
        earlier: Sequence[Mapping[str, Any]] = (),
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._earlier, self._begin_run = path, earlier, begin
        self._begun = False

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        del stage, progress, cost
        self._begin()

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        self._begin()
        if not record.get("refit"):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin_run()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(record) + "\n" for record in self._earlier)
            self._path.write_text(lines, encoding="utf-8")


def epoch_line(record: Mapping[str, Any], members: Sequence[Stage] = ()) -> str:
    """Return an epoch as a line of text: the score that selects the best epoch comes first."""
    number = record.get("member", 0)
    stage = members[number] if members else Stage("")
    parts = [f"model {number + 1}/{len(members)} {stage.name}"] if len(members) > 1 else []
    total = f"/{stage.epochs}" if stage.epochs and not record.get("refit") else ""
    parts += [f"{'refit' if record.get('refit') else 'epoch'} {record['epoch']}{total}"]
    parts += [f"cost {record['cost']:9.4g}"]
    criterion = record.get("criterion")
    if criterion is not None and record[f"valid_{criterion}"] is not None:
        parts.append(f"valid {CRITERIA[criterion]} {record[f'valid_{criterion}']:.4f}")
        parts.append(f"best {record[f'best_{criterion}']:.4f} @ {record['best_epoch']}")
        parts += [
            f"{label} {record[f'valid_{name}']:.4f}"
            for name, label in CRITERIA.items()
            if name != criterion and record.get(f"valid_{name}") is not None
        ]
    return "   ".join([*parts, f"{record['seconds']:.1f} s"])
