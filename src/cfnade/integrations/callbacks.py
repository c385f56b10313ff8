"""Callbacks that log each epoch to TensorBoard or MLflow.

    CFNADE().fit(ratings, callbacks=[TensorBoardCallback("runs/first")])

The option of the command line is `cfnade train … --log tensorboard`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cfnade.exceptions import TrainingError
from cfnade.training.callbacks import Callback
from cfnade.utils.validation import check_choice

METRICS = ("cost", "valid_rmse", "valid_nll", "valid_ndcg", "rate")


class MetricsCallback(Callback):
    """Writes the metrics of each epoch by name, with the number of the member if there are some."""

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        prefix = f"member {record['member'] + 1}/" if "member" in record else ""
        metrics = {f"{prefix}{name}": record.get(name) for name in METRICS}
        present = {name: float(value) for name, value in metrics.items() if value is not None}
        self.write(present, int(record["epoch"]))

    def write(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch."""
        raise NotImplementedError


class TensorBoardCallback(MetricsCallback):
    """Writes event files into a folder, for `tensorboard --logdir`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _not_installed("TensorBoard", "tensorboard") from None
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, metrics: Mapping[str, float], epoch: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def on_train_end(self) -> None:
        self._writer.close()


class MLflowCallback(MetricsCallback):
    """Logs to MLflow, as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say.

    Inside `mlflow.start_run()` it logs to that run; otherwise it starts one, and ends it.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | None = None) -> None:
        try:
            import mlflow
        except ImportError:
            raise _not_installed("MLflow", "mlflow") from None
        self._mlflow = mlflow
        self._started = mlflow.active_run() is None
        if self._started:
            mlflow.start_run(run_name=name)
        if arguments:
            mlflow.log_params({key: str(value) for key, value in arguments.items()})

    def write(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._mlflow.log_metrics(dict(metrics), step=epoch)

    def on_train_end(self) -> None:
        if self._started:
            with suppress(Exception):  # a tracking server that is gone must not cost the model
                self._mlflow.end_run()


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any]], Callback]] = {
    "tensorboard": lambda out, _: TensorBoardCallback(Path("runs") / out.name),
    "mlflow": lambda out, arguments: MLflowCallback(out.name, arguments),
}


def logging_callback(name: str, out: Path, arguments: Mapping[str, Any]) -> Callback:
    """Return the callback that `--log` names, for a model that is written into a folder."""
    return LOGGERS[check_choice("log", name, LOGGERS, error=TrainingError)](out, arguments)


def _not_installed(library: str, extra: str) -> TrainingError:
    return TrainingError(f"{library} is not installed; pip install 'cfnade[{extra}]'")
