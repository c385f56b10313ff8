"""Where answers are computed: a few threads, a bounded queue before them, and a deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from cfnade.serve.limits import Limits
from cfnade.serve.problems import Problem

T = TypeVar("T")


class Work:
    """Threads for kernels, which release the GIL; no more of them than cores."""

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._threads = limits.work_seconds, limits.threads
        self._pool: ThreadPoolExecutor | None = None
        self._places = threading.BoundedSemaphore(limits.threads + limits.waiting)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns, or a refusal if too many wait or it takes too long."""
        if not self._places.acquire(blocking=False):
            raise Problem(
                503,
                "too many requests are waiting; try again in a second",
                headers={"Retry-After": "1"},
            )
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "answer")
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(self._leave)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            # What has begun cannot be stopped: it keeps its place until it is done.
            raise Problem(
                504, f"no answer within {self._seconds:g} s; try again, or ask for less"
            ) from None

    def _leave(self, _: Future[T]) -> None:
        self._places.release()

    def close(self) -> None:
        """Wait for what is being computed; the next question opens the threads again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
