"""Threads that compute responses, with a bounded queue and a deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cfnade.server.errors import ApiError
from cfnade.server.settings import Limits
from cfnade.utils.cancellation import cancelled_by

T = TypeVar("T")


def _run_cancellable(cancelled: threading.Event, function: Callable[..., T], *args: object) -> T:
    with cancelled_by(cancelled):
        return function(*args)


class WorkerPool:
    """Threads for kernels, which release the GIL; no more of them than cores."""

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._threads = limits.work_seconds, limits.threads
        self._executor: ThreadPoolExecutor | None = None
        self._slots = threading.BoundedSemaphore(limits.threads + limits.waiting)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run in a thread: 503 if the queue is full, 504 at the deadline."""
        if not self._slots.acquire(blocking=False):
            raise ApiError(
                503,
                "too many requests are waiting; try again in a second",
                headers={"Retry-After": "1"},
            )
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, "worker")
        cancelled = threading.Event()
        future = self._executor.submit(_run_cancellable, cancelled, function, *args)
        future.add_done_callback(lambda _: self._slots.release())
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            # A running computation keeps its slot until it checks for its cancellation, or ends.
            raise ApiError(
                504, f"no answer within {self._seconds:g} s; try again, or ask for less"
            ) from None
        finally:
            cancelled.set()

    def close(self) -> None:
        """Wait for running computations; the next call of run starts new threads."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
