"""Ray with two workers: `make test-ray`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.engines.promises import Promises
from tests.scoring.crowds import newcomers, written

from cfnade.engines import TaskEngine, open_engine
from cfnade.scoring import BatchScorer

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
            BatchScorer,
            fn_constructor_args=[str(model)],
            batch_format="pyarrow",
            batch_size=7,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        lists.write_parquet(str(tmp_path / "out"))
        found = pl.read_parquet(str(tmp_path / "out" / "*.parquet")).sort("user", "rank")
        expected = BatchScorer(model)(crowd).sort("user", "rank")
        assert_frame_equal(found, expected, check_exact=True)
