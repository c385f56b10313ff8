"""Sharding on Spark runs the same statements as on DuckDB and must give the same content."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.sharded import cells_of, csv_file, lines, parquet_file, sharded

from cfnade.distributed.backends import spark_session
from cfnade.distributed.build_shards import ShardOptions, build_shards
from cfnade.distributed.shards import SPLITS, ShardedRatings
from cfnade.exceptions import DataError

pytest.importorskip("pyspark")
pytestmark = pytest.mark.external
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)
LINES = lines(800, 5, [*range(80), "Ω", "7b"], range(30))


@pytest.fixture(scope="module", autouse=True)
def _spark() -> Iterator[None]:
    with spark_session(2):
        yield


def content(shards: ShardedRatings) -> list[object]:
    return [cells_of(shards, split) for split in SPLITS]


@pytest.mark.timeout(600)
def test_spark_gives_the_content_of_duckdb(tmp_path: Path) -> None:
    numbers = [line for line in LINES if isinstance(line[0], int)]
    files = [parquet_file(tmp_path / "a.parquet", numbers), csv_file(tmp_path / "b.csv", LINES)]
    options: dict[str, Any] = {"valid": 0.2, "test": 0.1, "duplicates": "last", "side": "both"}
    here = sharded(tmp_path / "here", *files, **options)
    there = build_shards(files, tmp_path / "there", ShardOptions(**options), engine="spark")
    assert content(there) == content(here)
    for axis in ("user", "item"):
        assert there.ids(axis).tolist() == here.ids(axis).tolist()
        one, other = there.load(axis, "train", 1, 3), here.load(axis, "train", 1, 3)
        assert one.position_in_row.tolist() == other.position_in_row.tolist()
        assert one.rows.columns.tolist() == other.rows.columns.tolist()
    assert not (tmp_path / "there" / "work").exists()


@pytest.mark.timeout(600)
def test_an_error_of_a_worker_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,2,3\n1,3,many\n")
    with pytest.raises(DataError, match=r"^\S+bad\.csv:3: rating 'many' is not a number"):
        build_shards([tmp_path / "bad.csv"], tmp_path / "out", engine="spark")
