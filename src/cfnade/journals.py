"""Journals: how training goes, told to TensorBoard or MLflow epoch by epoch.

A journal is a Reporter of the loop: CFNADE.fit(..., reporter=TensorBoard("runs/mine")), or
`cfnade train … --log tensorboard`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cfnade.exceptions import TrainingError
from cfnade.utils.validation import check_choice

FIGURES = ("cost", "valid_rmse", "valid_nll", "rate")


class Journal:
    """Told of each epoch; `write` gets its figures by name, with the member if there are some."""

    def step(self, done: float, cost: float) -> None:
        """Steps are too many to be told."""

    def epoch(self, record: dict[str, Any]) -> None:
        before = f"member {record['member'] + 1}/" if "member" in record else ""
        figures = {f"{before}{name}": record.get(name) for name in FIGURES}
        told = {name: float(value) for name, value in figures.items() if value is not None}
        self.write(told, int(record["epoch"]))

    def write(self, figures: Mapping[str, float], epoch: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more will be told."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class TensorBoard(Journal):
    """Event files in a folder, for `tensorboard --logdir`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("TensorBoard", "tensorboard") from None
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, figures: Mapping[str, float], epoch: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class MLflow(Journal):
    """A run of MLflow, where its own settings say (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME).

    Inside `mlflow.start_run()` it writes into that run; else it makes one, and ends it.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | None = None) -> None:
        try:
            import mlflow
        except ImportError:
            raise _missing("MLflow", "mlflow") from None
        self._mlflow = mlflow
        self._own = mlflow.active_run() is None
        if self._own:
            mlflow.start_run(run_name=name)
        if arguments:
            mlflow.log_params({key: str(value) for key, value in arguments.items()})

    def write(self, figures: Mapping[str, float], epoch: int) -> None:
        self._mlflow.log_metrics(dict(figures), step=epoch)

    def close(self) -> None:
        if self._own:
            with suppress(Exception):  # a tracking server that went away must not cost the model
                self._mlflow.end_run()


class Several:
    """Tells all of these, those of stages that have a method for it."""

    def __init__(self, *reporters: Any) -> None:
        self._reporters = reporters

    def step(self, done: float, cost: float) -> None:
        for one in self._reporters:
            one.step(done, cost)

    def epoch(self, record: dict[str, Any]) -> None:
        for one in self._reporters:
            one.epoch(record)

    def stage(self, name: str, member: int | None) -> None:
        for one in self._reporters:
            if hasattr(one, "stage"):
                one.stage(name, member)


KINDS: dict[str, Callable[[Path, Mapping[str, Any]], Journal]] = {
    "tensorboard": lambda out, _: TensorBoard(Path("runs") / out.name),
    "mlflow": lambda out, job: MLflow(out.name, job),
}


def journal(kind: str | None, out: Path, job: Mapping[str, Any]) -> Journal:
    """What `--log` asks for, of a model that will lie in a folder; without it nobody is told."""
    if kind is None:
        return _Nobody()
    return KINDS[check_choice("log", kind, KINDS, error=TrainingError)](out, job)


class _Nobody(Journal):
    def write(self, figures: Mapping[str, float], epoch: int) -> None:
        pass


def _missing(what: str, extra: str) -> TrainingError:
    return TrainingError(f"{what} is not installed; pip install 'cfnade[{extra}]'")
