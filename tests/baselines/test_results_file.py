"""Records are replaced by their key, sorted, and safe from other writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cfnade.exceptions import DataError
from cfnade_baselines.compare import ResultsFile


@pytest.fixture
def file(tmp_path: Path) -> ResultsFile:
    return ResultsFile(tmp_path / "new" / "table.jsonl")


def test_a_record_replaces_the_one_with_its_key(file: ResultsFile) -> None:
    key = {"name": "b", "split": "u1", "seed": 0}
    assert file.find(key) is None
    file.add(key | {"rmse": 0.9})
    file.add({"name": "a", "split": "u1", "seed": 10})
    file.add({"name": "a", "split": "u1", "seed": 9})
    file.add(key | {"rmse": 0.8})
    assert file.find(key) == key | {"rmse": 0.8}
    assert [(r["name"], r["seed"]) for r in file.records()] == [("a", 9), ("a", 10), ("b", 0)]


def test_key_fields_may_be_tables_in_any_order(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "table.jsonl", ("name", "options"))
    file.add({"name": "a", "options": {"x": 1, "y": 2}})
    assert file.find({"name": "a", "options": {"y": 2, "x": 1}}) is not None
    assert file.find({"name": "a", "options": {"x": 1}}) is None


def test_writers_at_the_same_time_lose_nothing(file: ResultsFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: file.add({"name": "a", "seed": seed}), range(40)))
    assert [record["seed"] for record in file.records()] == list(range(40))


def test_a_line_that_is_no_record_is_named(file: ResultsFile) -> None:
    file.add({"name": "a"})
    file.path.write_text(file.path.read_text() + "[1]\n")
    with pytest.raises(DataError, match=r"table.jsonl, line 2: this is not a record; delete the"):
        file.records()
