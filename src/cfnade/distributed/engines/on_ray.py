"""Tasks as a Ray Data job, on the cluster that RAY_ADDRESS names, or on this machine."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from cfnade.distributed.engines import Task, answers, told
from cfnade.exceptions import CfnadeError

_TRIES = 4  # Ray gives up starting after half a minute, which a busy machine may need
_BLOCKS = 16  # for every worker
_STORE = 256 << 20  # bytes of Ray's object store: what travels is small


class OnRay:
    """Ray, started here if nobody has."""

    def __init__(self, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # or they starve on a busy machine
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise CfnadeError(
                f"engine=ray: Ray is not installed ({error}); pip install 'cfnade[ray]'"
            ) from error
        self._ray, self._own = ray, not ray.is_initialized()
        if self._own:
            _started(workers)
        there = int(ray.cluster_resources().get("CPU", 2))
        # As many actors as there are processors would leave none for reading and writing.
        self.workers = min(workers or there, max(1, there - 1))
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)

    def each(self, function: Callable[..., Any], tasks: Sequence[Task]) -> list[Any]:
        def run(row: dict[str, Any]) -> dict[str, Any]:
            number = int(row["id"])
            return {"id": number, "told": json.dumps(told(function, tasks[number]))}

        if not tasks:
            return []
        # Many blocks, or Ray would give all small tasks to one worker; not one each, as they cost.
        blocks = min(len(tasks), _BLOCKS * self.workers)
        numbers = self._ray.data.range(len(tasks), override_num_blocks=blocks)
        pool = self._ray.data.TaskPoolStrategy(size=min(self.workers, blocks))
        rows = numbers.map(run, num_cpus=1, compute=pool).take_all()
        answered = {row["id"]: json.loads(row["told"]) for row in rows}
        return answers([answered[number] for number in range(len(tasks))])

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


def _started(workers: int | None) -> None:
    import ray

    for attempt in range(_TRIES):
        try:
            start_ray(workers)
            return
        except Exception as error:  # Ray raises plain ones
            ray.shutdown()
            if attempt == _TRIES - 1:
                reason = str(error).strip().splitlines()[0]
                raise CfnadeError(f"engine=ray: Ray does not start ({reason})") from error


def start_ray(workers: int | None) -> None:
    """Join the cluster, or start one process more than workers here."""
    import ray

    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
        return
    ray.init(
        num_cpus=(workers or max(1, (os.cpu_count() or 2) - 1)) + 1,
        object_store_memory=_STORE,
        include_dashboard=False,
        **quiet,
    )
