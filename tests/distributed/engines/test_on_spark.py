"""Spark with two workers on this machine: `make test-spark`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import known, written
from tests.distributed.engines.promises import Promises

from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.distributed.engines import open_engine

pytest.importorskip("pyspark", reason="needs cfnade[spark]: make test-spark")
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    opened = open_engine("spark", 2)
    yield opened
    opened.close()


class TestSpark(Promises):
    @pytest.mark.parametrize("cut", [5])
    def test_map_in_arrow_gives_the_same_lists_for_any_cut(
        self, engine: Any, model: Path, tmp_path: Path, cut: int
    ) -> None:
        scorer = BatchPredictor(model, n=3)
        people = engine.session.read.parquet(str(written(tmp_path / "in", known(), [50])))
        lists = people.repartition(cut).mapInArrow(scorer.map_arrow, scorer.spark_schema)
        lists.write.parquet(str(tmp_path / "out"))
        found = pl.read_parquet(str(tmp_path / "out" / "*.parquet")).sort("user", "rank")
        assert_frame_equal(found, scorer(known()).sort("user", "rank"), check_exact=True)
