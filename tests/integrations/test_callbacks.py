"""TensorBoard and MLflow receive what the history has, epoch by epoch."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from cfnade import CFNADE, Dataset, synthetic
from cfnade.exceptions import TrainingError
from cfnade.integrations.callbacks import (
    METRICS,
    MLflowCallback,
    TensorBoardCallback,
    logging_callback,
)

SMALL: dict[str, Any] = {"side": "user", "hidden": (4,), "epochs": 3, "ridge": 0, "n_threads": 1}


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(30, 20, 300, seed=3).ratings


LOGGED = [name for name in METRICS if name != "valid_ndcg"]  # of a model for ratings


def history_of(model: CFNADE, name: str) -> list[tuple[int, Any]]:
    return [(record["epoch"], pytest.approx(record[name], rel=1e-6)) for record in model.history_]


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    read = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in read.Scalars(name)]
        for name in read.Tags()["scalars"]
    }


def test_tensorboard_reads_the_history(ratings: Dataset, tmp_path: Path) -> None:
    model = CFNADE(**SMALL).fit(ratings, callbacks=[TensorBoardCallback(tmp_path)])
    found = events(tmp_path)
    assert set(found) == set(LOGGED)
    for name in LOGGED:
        assert found[name] == history_of(model, name)


def test_members_are_told_apart(ratings: Dataset, tmp_path: Path) -> None:
    CFNADE(**SMALL | {"n_seeds": 2}).fit(ratings, callbacks=[TensorBoardCallback(tmp_path)])
    found = events(tmp_path)
    assert {f"member {n}/cost" for n in (1, 2)} <= set(found)
    assert found["member 1/cost"] != found["member 2/cost"]


@pytest.mark.filterwarnings("ignore")  # of MLflow's own libraries
def test_mlflow_keeps_the_history(
    ratings: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    monkeypatch.chdir(tmp_path)
    callback = MLflowCallback("mine", {"side": "user", "hidden": (4,)})
    run = mlflow.active_run().info.run_id
    model = CFNADE(**SMALL).fit(ratings, callbacks=[callback])
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient()
    kept = client.get_run(run)
    assert kept.info.status == "FINISHED"
    assert kept.data.params == {"side": "user", "hidden": "(4,)"}
    for name in LOGGED:
        history = client.get_metric_history(run, name)
        assert [(metric.step, metric.value) for metric in history] == history_of(model, name)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tensorboard", r"TensorBoard is not installed; .*'cfnade\[tensorboard\]'"),
        ("mlflow", r"MLflow is not installed; pip install 'cfnade\[mlflow\]'"),
        ("wandb", r"log \(='wandb'\) must be one of tensorboard, mlflow"),
    ],
)
def test_a_missing_library_or_unknown_name_is_named(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch.utils.tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainingError, match=message):
        logging_callback(kind, tmp_path / "model", {})


def test_the_command_logs_too(
    ratings: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cfnade.cli import main
    from cfnade.data.readers.tables import write_parquet

    monkeypatch.chdir(tmp_path)
    write_parquet(ratings, tmp_path / "ratings.parquet")
    asked = ["train", "ratings.parquet", "--side", "user", "--ridge", "0", "--hidden", "4"]
    asked += ["--epochs", "2", "--n-threads", "1", "--out", "mine", "--log", "tensorboard"]
    monkeypatch.setattr(sys, "argv", ["cfnade", *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert [epoch for epoch, _ in events(tmp_path / "runs" / "mine")["cost"]] == [1, 2]
