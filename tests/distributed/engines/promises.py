"""What every engine must keep: the shards and lists of one process, complete when a worker dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import cells, known, read_parts, written

from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.distributed.batch_job import predict_to_parquet
from cfnade.distributed.engines import TaskEngine, open_engine


class Promises:
    """Tests of an engine, which a fixture `engine` opens with two workers."""

    @pytest.mark.parametrize("what", ["recommend", "predict"])
    def test_a_job_has_the_answers_of_one_process(
        self, engine: TaskEngine, model: Path, tmp_path: Path, what: str
    ) -> None:
        people = written(tmp_path / "in", known() if what == "recommend" else cells(), [3, 90, 91])
        predict_to_parquet(model, [people], tmp_path / "there", engine, what)
        predict_to_parquet(model, [people], tmp_path / "here", open_engine("local"), what)
        assert_frame_equal(
            read_parts(tmp_path / "there"), read_parts(tmp_path / "here"), rel_tol=1e-6
        )

    def test_a_killed_worker_leaves_the_result_complete(
        self, engine: TaskEngine, model: Path, tmp_path: Path
    ) -> None:
        dies, out = tmp_path / "dies", tmp_path / "out"
        dies.touch()
        flag = str(dies)

        def answer(folder: str, number: int) -> None:
            import os

            from cfnade.distributed.batch_job import predict_part

            if number == 2 and os.path.exists(flag):  # noqa: PTH110
                os.unlink(flag)  # noqa: PTH108
                os._exit(9)
            predict_part(folder, number)

        people = written(tmp_path / "in", known(), [40, 80, 120, 160])
        predict_to_parquet(model, [people], out, _Instead(engine, answer))
        assert not dies.exists()
        assert_frame_equal(read_parts(out), BatchPredictor(model)(known()), check_exact=True)


class _Instead:
    """An engine that runs another function in place of the one it is given."""

    def __init__(self, engine: TaskEngine, function: Any) -> None:
        self.workers, self._engine, self._function = engine.workers, engine, function

    def each(self, function: Any, tasks: Any) -> list[Any]:
        del function
        return self._engine.each(self._function, tasks)

    def close(self) -> None: ...
