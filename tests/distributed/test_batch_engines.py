"""Batch jobs on Ray and Spark, each with two workers on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import cells, known, newcomers, saved_model, written

from cfnade.distributed import batch_job
from cfnade.distributed.backends import ray_session, spark_session
from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.distributed.batch_job import predict_to_parquet
from cfnade.exceptions import PredictionError

pytestmark = [pytest.mark.external, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module", params=["ray", "spark"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip({"ray": "ray", "spark": "pyspark"}[request.param])
    if request.param == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    with {"ray": ray_session, "spark": spark_session}[request.param](2):  # jobs join it
        yield request.param


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        batch_job, "ROWS_PER_FILE", {"recommend": 60, "predict": 200, "evaluate": 100}
    )


def read(folder: Path) -> pl.DataFrame:
    """Return the rows of all files, sorted: engines write them in any order."""
    rows = pl.read_parquet(folder / "*.parquet")
    return rows.sort("user", "rank" if "rank" in rows.columns else "item")


def expected(model: Path, task: Any, table: pl.DataFrame) -> pl.DataFrame:
    rows: pl.DataFrame = BatchPredictor(model, task)(table)
    return rows.sort("user", "rank" if task == "recommend" else "item")


@pytest.mark.parametrize(
    ("task", "table"),
    [("recommend", known()), ("recommend", newcomers()), ("predict", cells().unique())],
    ids=["known", "new", "pairs"],
)
def test_a_job_gives_the_rows_of_one_process(
    engine: Any, model: Path, tmp_path: Path, task: Any, table: pl.DataFrame
) -> None:
    inputs, out = written(tmp_path / "in", table, [3, 60, 61]), tmp_path / "out"
    summary = predict_to_parquet(model, [inputs], out, task, engine=engine, n_workers=2)
    assert_frame_equal(read(out), expected(model, task, table), rel_tol=1e-6)
    assert summary["rows"] == len(read(out))
    assert summary["parts"] > 1
    again = predict_to_parquet(model, [inputs], out, task, engine=engine, n_workers=2)
    assert again == summary  # a complete job is not run again


def test_scores_and_all_users_are_those_of_one_process(
    engine: Any, model: Path, tmp_path: Path
) -> None:
    csv = tmp_path / "test.csv"
    pl.read_parquet(model.parent / "test.parquet").write_csv(csv)
    scores = [
        predict_to_parquet(model, [csv], tmp_path / name, "evaluate", engine=name)["scores"]
        for name in ("local", engine)
    ]
    for name in ("n", "rmse", "nll", "mae_of_medians", "rps", "unseen_ratings"):
        assert scores[0][name] == pytest.approx(scores[1][name], rel=1e-6)
    predict_to_parquet(model, "all", tmp_path / "all", engine=engine)
    users = known().filter(pl.col("user") < 9_999)
    assert_frame_equal(read(tmp_path / "all"), expected(model, "recommend", users))


def test_an_error_of_a_worker_is_one_sentence_and_the_next_job_runs(
    engine: Any, model: Path, tmp_path: Path
) -> None:
    inputs = written(tmp_path / "in", pl.DataFrame({"user": ["1", "anna"]}), [])
    with pytest.raises(PredictionError, match=r"^row 1: user 'anna': .* numbers$") as failure:
        predict_to_parquet(model, [inputs], tmp_path / "out", engine=engine)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    inputs = written(tmp_path / "in", pl.DataFrame({"user": ["1", "2"]}), [])
    # The exception is still referred to, which must not keep workers of the failed job.
    summary = predict_to_parquet(model, [inputs], tmp_path / "out", engine=engine)
    assert summary["rows"] == 20
    del failure


def test_the_example_gives_the_lists_of_one_process(
    engine: Any, model: Path, tmp_path: Path
) -> None:
    inputs = written(tmp_path / "in", known(), [20, 21])
    script = Path(__file__).parents[2] / "examples" / f"on_{engine}.py"
    command = [sys.executable, str(script), str(model), str(inputs), str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    lists = read(tmp_path / "out")
    assert_frame_equal(lists, expected(model, "recommend", known()), check_exact=True)


def test_a_killed_worker_leaves_the_result_complete(
    engine: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "kill"
    flag.touch()
    path = str(flag)

    class Killed(BatchPredictor):  # a local class travels to the workers by value
        def __call__(self, table: Any) -> Any:
            self.kill_once(len(table))
            return super().__call__(table)

        def map_arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                self.kill_once(len(batch))
                yield from super().map_arrow([batch])

        @staticmethod
        def kill_once(n_rows: int) -> None:
            if n_rows and os.path.exists(path):  # noqa: PTH110
                os.unlink(path)  # noqa: PTH108
                os._exit(9)

    monkeypatch.setattr(batch_job, "BatchPredictor", Killed)
    inputs, out = written(tmp_path / "in", known(), [40, 80]), tmp_path / "out"
    with monkeypatch.context() as here:  # the schema is found in this process
        here.setattr(Killed, "__call__", BatchPredictor.__call__) if engine == "spark" else None
        predict_to_parquet(model, [inputs], out, engine=engine, n_workers=2)
    assert not flag.exists()
    assert_frame_equal(read(out), expected(model, "recommend", known()), check_exact=True)
