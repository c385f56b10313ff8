"""Large jobs at a shell: `cfnade data shard` and `cfnade batch`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfnade.distributed.shards import ShardedRatings
from cfnade.estimator import CFNADE

Shell = Any


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def test_shard_says_what_it_made_and_does_it_once(shell: Shell, tmp_path: Path) -> None:
    file, out = tmp_path / "r.csv", tmp_path / "out"
    rows = [f"{u},{i},{1 + (u + i) % 5}" for u in range(30) for i in range(9) if (u + i) % 2]
    file.write_text("user,item,rating\n" + "\n".join(rows))
    done = shell("data", "shard", file, "--out", out, "--side", "item", "--valid", "0.1")
    assert done.code == 0
    assert f"of {len(rows)}" in f"of {sum(ShardedRatings.open(out).sizes.values())}"
    assert "30 users, 9 items, 1–5" in done.out
    assert (
        "is complete"
        in shell("data", "shard", file, "--out", out, "--side", "item", "--valid", "0.1").said
    )
    other = shell("data", "shard", file, "--out", out, "--side", "item", "--valid", "0.2")
    assert other.code == 1
    assert "valid was 0.1 and is 0.2; give --overwrite" in other.said
    assert shell("data", "shard", file, "--out", out, "--side", "item", "--overwrite").code == 0


def test_a_model_without_a_test_part_names_a_next_command_that_works(
    shell: Shell, tmp_path: Path, ratings_file: Path
) -> None:
    """Shards have no test part unless one is asked for."""
    out, other = tmp_path / "model of mine", tmp_path / "other"
    assert shell("data", "shard", ratings_file, "--out", tmp_path / "shards").code == 0
    done = shell("train", tmp_path / "shards", "--side", "user", "--epochs", "1", "--out", out)
    assert done.code == 0, done.err
    command = shlex.split(done.out.partition("next: ")[2])
    assert command[:2] == ["cfnade", "recommend"]
    assert shell(*command[1:]).code == 0
    failed = shell("evaluate", out)
    assert failed.code == 1
    assert "was split without a test part; give the ratings to evaluate on: cfnade" in failed.said
    assert shell("data", "shard", ratings_file, "--out", other, "--test", "0.1").code == 0
    done = shell("train", other, "--side", "user", "--epochs", "1", "--out", tmp_path / "second")
    assert done.code == 0, done.err
    command = shlex.split(done.out.partition("next: ")[2])
    assert command[:2] == ["cfnade", "evaluate"]
    assert shell(*command[1:]).code == 0


def test_a_job_that_failed_at_its_start_may_be_corrected(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("user,item\n3,7\n")
    command = ("batch", "evaluate", user_model, parts, "--out", tmp_path / "scores")
    assert "has no column rating" in shell(*command).said
    (parts / "a.csv").write_text("user,item,rating\n999,7,4\n")
    done = shell(*command)
    assert done.code == 0, done.said


def test_lists_of_many_people_are_those_of_each(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    people, out = tmp_path / "people.csv", tmp_path / "lists"
    people.write_text("user\n3\n5\n8\n")
    done = shell("batch", "recommend", user_model, people, "--out", out, "-n", "4")
    assert done.code == 0
    assert "12 rows in 1 Parquet file," in done.said
    lists = pl.read_parquet(out / "*.parquet")
    expected = CFNADE.load(user_model).recommend([3, 5, 8], n=4)
    assert lists["item"].to_list() == expected["item"].to_list()
    assert json.loads((out / "_SUCCESS").read_text())["rows"] == 12


def test_predictions_and_scores_of_a_folder(shell: Shell, user_model: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("user,item\n3,7\n5,9\n")
    (parts / "b.csv").write_text("user,item\n5,4444\n")
    assert shell("batch", "predict", user_model, parts, "--out", tmp_path / "out").code == 0
    found = pl.read_parquet(tmp_path / "out" / "*.parquet")["prediction"].to_list()
    assert found == pytest.approx(
        CFNADE.load(user_model).predict([3, 5, 5], [7, 9, 4444], unknown="mean").tolist()
    )
    test = tmp_path / "test.csv"
    test.write_text("user,item,rating\n3333,7,3\n4444,9,5\n")
    alone = json.loads(shell("evaluate", user_model, test, "--json").out)
    done = shell("batch", "evaluate", user_model, test, "--out", tmp_path / "j", "--json")
    assert json.loads(done.out)["rmse"] == pytest.approx(alone["rmse"])


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_an_engine_that_is_not_installed_is_one_error(
    shell: Shell, user_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    for name in ("ray", "pyspark", "pyspark.sql"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    command = ("batch", "recommend", user_model, "--out", tmp_path / "out", "--engine", engine)
    done = shell(*command)
    assert done.code == 1
    assert f"pip install 'cfnade[{engine}]'" in done.said
