"""Batch jobs: complete, resumed, and the same for any division of the input into files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import cells, known, newcomers, read_parts, saved_model, written

from cfnade import CFNADE, load
from cfnade.distributed import batch_job
from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.distributed.batch_job import predict_to_parquet
from cfnade.exceptions import CfnadeError, PredictionError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("all") / "model")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        batch_job, "ROWS_PER_FILE", {"recommend": 50, "predict": 300, "evaluate": 100}
    )


@pytest.mark.parametrize("table", [known(), newcomers()], ids=["known", "new"])
def test_lists_are_the_same_for_any_division_into_files(
    model: Path, tmp_path: Path, table: pl.DataFrame
) -> None:
    expected, draw = BatchPredictor(model, n=4)(table), random.Random(1)
    for attempt in range(3):
        cuts = sorted(draw.sample(range(len(table)), 6))
        inputs = written(tmp_path / f"in {attempt}", table, cuts)
        out = tmp_path / f"out {attempt}"
        summary = predict_to_parquet(model, [inputs], out, n=4)
        assert summary["rows"] == len(expected)
        assert_frame_equal(read_parts(out), expected, check_exact=True)
        assert (out / "_SUCCESS").exists()


@contextmanager
def fail_after(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    """Let the write of a file fail after some files."""
    write = batch_job._write_file
    finished: list[Any] = []

    def write_or_fail(*arguments: Any) -> None:
        if len(finished) == count:
            raise CfnadeError("failed")
        finished.append(arguments)
        write(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(batch_job, "_write_file", write_or_fail)
        yield


def test_a_rerun_completes_a_half_finished_job_and_repeats_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, out = written(tmp_path / "in", known(), [100, 101]), tmp_path / "out"
    with fail_after(monkeypatch, 3), pytest.raises(CfnadeError, match="failed"):
        predict_to_parquet(model, [inputs], out)
    assert not (out / "_SUCCESS").exists()
    first = {file: file.stat().st_mtime_ns for file in out.glob("part-*")}
    assert len(first) == 3
    predict_to_parquet(model, [inputs], out)
    assert_frame_equal(read_parts(out), BatchPredictor(model)(known()), check_exact=True)
    assert {file: file.stat().st_mtime_ns for file in first} == first


@pytest.mark.parametrize("task", ["recommend", "evaluate"])
def test_a_damaged_part_is_made_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any
) -> None:
    table = known() if task == "recommend" else pl.read_parquet(model.parent / "test.parquet")
    inputs, out = written(tmp_path / "in", table, []), tmp_path / "out"
    summary = predict_to_parquet(model, [inputs], out, task)
    expected = read_parts(out)
    first, second, third, *intact = sorted(out.glob("part-*"))
    first.write_bytes(first.read_bytes()[:-20])
    second.write_bytes(b"")
    third.unlink()
    untouched = {file: file.stat().st_mtime_ns for file in intact}
    with fail_after(monkeypatch, 0), pytest.raises(CfnadeError, match="failed"):
        predict_to_parquet(model, [inputs], out, task)
    assert not (out / "_SUCCESS").exists()  # it would vouch for damaged parts
    again = predict_to_parquet(model, [inputs], out, task)
    assert again.get("scores", {}).get("rmse") == pytest.approx(
        summary.get("scores", {}).get("rmse")
    )
    assert (again["rows"], again["parts"]) == (summary["rows"], summary["parts"])
    assert_frame_equal(read_parts(out), expected, check_exact=True)
    assert {file: file.stat().st_mtime_ns for file in intact} == untouched


def test_overwrite_repeats_the_same_job(model: Path, tmp_path: Path) -> None:
    inputs, out = written(tmp_path / "in", known(), []), tmp_path / "out"
    predict_to_parquet(model, [inputs], out)
    expected = read_parts(out)
    for file in out.glob("part-*"):  # readable, with other content
        pl.DataFrame({"user": [1]}).write_parquet(file)
    predict_to_parquet(model, [inputs], out, overwrite=True)
    assert_frame_equal(read_parts(out), expected, check_exact=True)
    (out / "job.json").write_text("{")
    with pytest.raises(PredictionError, match=r"another job \(job.json is damaged\).*--overwrite"):
        predict_to_parquet(model, [inputs], out)
    predict_to_parquet(model, [inputs], out, overwrite=True)
    assert_frame_equal(read_parts(out), expected, check_exact=True)


def test_all_means_all_users_of_the_model(model: Path, tmp_path: Path) -> None:
    predict_to_parquet(model, "all", tmp_path / "out", n=2)
    assert_frame_equal(read_parts(tmp_path / "out"), BatchPredictor(model, n=2)(known()[:-1]))
    with pytest.raises(PredictionError, match="'all' is for recommend"):
        predict_to_parquet(model, "all", tmp_path / "two", "predict")


def test_scores_added_up_from_parts_are_those_of_one_evaluation(
    model: Path, tmp_path: Path
) -> None:
    test = pl.read_parquet(model.parent / "test.parquet")
    inputs = written(tmp_path / "in", test, [1, 7, 250])
    summary = predict_to_parquet(model, [inputs], tmp_path / "out", "evaluate")
    whole = CFNADE.load(model).evaluate(load(test, scale="1-5")).as_dict()
    scores = summary["scores"]
    for name in ("n", "rmse", "nll", "mae_of_medians", "rps", "unseen_ratings"):
        assert scores[name] == pytest.approx(whole[name], rel=1e-6)
    for name in ("by_user", "by_item"):
        assert [b["n"] for b in scores[name]] == [b["n"] for b in whole[name]]
    results = read_parts(tmp_path / "out")
    assert results["rating"].to_list() == test["rating"].to_list()


def test_ratings_in_the_model_are_not_scored(model: Path, tmp_path: Path) -> None:
    context = CFNADE.load(model).fitted_.context
    seen = pl.DataFrame(
        {
            "user": context.user_ids[context.users[:5]],
            "item": context.item_ids[context.items[:5]],
            "rating": context.values[:5],
        }
    )
    inputs = written(tmp_path / "in", seen, [])
    with pytest.raises(PredictionError, match=r"part-000\.parquet, rows 0–4: 5 of 5 test ratings"):
        predict_to_parquet(model, [inputs], tmp_path / "out", "evaluate")


def test_another_job_is_not_mixed_in(model: Path, tmp_path: Path) -> None:
    inputs, out = written(tmp_path / "in", cells(), []), tmp_path / "out"
    predict_to_parquet(model, [inputs], out, "predict")
    assert json.loads((out / "_SUCCESS").read_text())["rows"] == len(cells())
    with pytest.raises(PredictionError, match=r"another job \(task was 'predict'.*--overwrite"):
        predict_to_parquet(model, [inputs], out, n=3)
    predict_to_parquet(model, [inputs], out, n=3, overwrite=True)
    assert "rank" in read_parts(out).columns
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(PredictionError, match="is not empty"):
        predict_to_parquet(model, [inputs], tmp_path / "mine")
    (tmp_path / "odd.parquet").write_bytes(b"PAR1 but not more")
    with pytest.raises(PredictionError, match=r"odd\.parquet: cannot be read"):
        predict_to_parquet(model, [tmp_path / "odd.parquet"], tmp_path / "new")


def test_csv_parts_and_several_processes_give_the_same_files(model: Path, tmp_path: Path) -> None:
    predict_to_parquet(model, [written(tmp_path / "in", cells(), [150])], tmp_path / "1", "predict")
    (tmp_path / "csv").mkdir()
    for number, part in enumerate((cells()[:150], cells()[150:])):
        part.write_csv(tmp_path / "csv" / f"{number}.csv")
    summary = predict_to_parquet(model, [tmp_path / "csv"], tmp_path / "2", "predict", n_workers=2)
    assert summary["parts"] == 3
    for name in ("part-000000.parquet", "part-000001.parquet", "part-000002.parquet"):
        texts = pl.read_parquet(tmp_path / "2" / name).with_columns(pl.col("user").cast(pl.Int64))
        # Another process may sum in another order: predictions agree to 1e-7.
        assert_frame_equal(texts, pl.read_parquet(tmp_path / "1" / name), abs_tol=1e-6)
