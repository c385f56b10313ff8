"""Ray with two workers: `make test-ray`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import newcomers, written
from tests.distributed.engines.promises import Promises

from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.distributed.engines import TaskEngine, open_engine

ray = pytest.importorskip("ray", reason="needs cfnade[ray]: make test-ray")
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def engine() -> Iterator[TaskEngine]:
    opened = open_engine("ray", 2)
    yield opened
    opened.close()


class TestRay(Promises):
    def test_map_batches_gives_the_same_lists_for_any_cut(
        self, engine: TaskEngine, model: Path, tmp_path: Path
    ) -> None:
        del engine  # it has started Ray
        crowd = newcomers()
        written(tmp_path / "in", crowd, [20, 21])
        people = ray.data.read_parquet(str(tmp_path / "in"))
        lists = people.repartition(target_num_rows_per_block=30).map_batches(
            BatchPredictor,
            fn_constructor_args=[str(model)],
            batch_format="pyarrow",
            batch_size=7,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        lists.write_parquet(str(tmp_path / "out"))
        found = pl.read_parquet(str(tmp_path / "out" / "*.parquet")).sort("user", "rank")
        expected = BatchPredictor(model)(crowd).sort("user", "rank")
        assert_frame_equal(found, expected, check_exact=True)
