"""Tasks on this machine: in this process, or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from cfnade.distributed.engines import Task, answers, told
from cfnade.exceptions import CfnadeError


class OnThisMachine:
    """One process unless more are asked for."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or 1
        self._pool: ProcessPoolExecutor | None = None
        if self.workers > 1:  # a fork would take locks of threads along
            self._pool = ProcessPoolExecutor(self.workers, get_context("spawn"))

    def each(self, function: Callable[..., Any], tasks: Sequence[Task]) -> list[Any]:
        if self._pool is None:
            return [function(*task) for task in tasks]
        try:
            running = [self._pool.submit(told, function, task) for task in tasks]
            return answers([one.result() for one in running])
        except BrokenProcessPool:
            raise CfnadeError(
                "a worker was ended from outside (out of memory?); give the command again to go "
                "on, with fewer --workers if memory was short"
            ) from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
