"""What one request may cost: sizes that the schema states, bounds on bytes and time, and threads
with a bounded queue before them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from cfnade.server.errors import ApiError
from cfnade.utils.cancellation import cancelled_by
from cfnade.utils.threads import available_threads

T = TypeVar("T")

HISTORY = 5_000
"""Ratings of one person: more than nearly anybody has films in a diary."""
BEST = 500
"""Items in one list."""
ITEMS = 1_000
"""Items in one prediction, films in one match."""
NEW_ITEMS = 20
"""Items that the model has never met, in one prediction."""
NEW_ITEM_RATINGS = 1_000
"""Ratings of one such item: one with more belongs in the training data."""
GENRES = 100
"""Genres that one list may be of."""
SEARCHED = 50
"""Items found by one search."""
ASKED = 50
"""Questions at a time."""
MAPPED = 500
"""Items on the map."""
TEXT = 300
"""Characters of a title, an id or a query."""
FIELDS = 50
"""Fields of one object of a body; no valid one has as many."""
VALUES = 30_000
"""Arrays and objects of one body, more than any valid one has."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one process; the defaults suit a page and a few programs on two cores."""

    body_bytes: int = 1 << 20
    header_bytes: int = 1 << 14
    body_seconds: float = 10.0
    """For a request to arrive whole, headers and body each."""
    write_seconds: float = 30.0
    """For a client to read an answer."""
    work_seconds: float = 10.0
    """For an answer, waiting included."""
    threads: int = field(default_factory=available_threads)
    waiting: int = 64
    """Requests that wait for a thread; the next one is told to come again."""
    connections: int = 512
    """Open connections; beyond, the one that has waited for its client longest is closed."""


def _run_cancellable(
    cancelled: threading.Event, function: Callable[..., T], *arguments: object
) -> T:
    with cancelled_by(cancelled):
        return function(*arguments)


class WorkerPool:
    """Threads for kernels, which release the GIL; no more of them than cores."""

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._threads = limits.work_seconds, limits.threads
        self._pool: ThreadPoolExecutor | None = None
        self._places = threading.BoundedSemaphore(limits.threads + limits.waiting)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns, or a refusal if too many wait or it takes too long."""
        if not self._places.acquire(blocking=False):
            raise ApiError(
                503,
                "too many requests are waiting; try again in a second",
                headers={"Retry-After": "1"},
            )
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "answer")
        cancelled = threading.Event()
        future = self._pool.submit(_run_cancellable, cancelled, function, *arguments)
        future.add_done_callback(lambda _: self._places.release())
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            # What has begun keeps its place until it looks for its cancellation, or is done.
            raise ApiError(
                504, f"no answer within {self._seconds:g} s; try again, or ask for less"
            ) from None
        finally:
            cancelled.set()

    def close(self) -> None:
        """Wait for what is being computed; the next question opens the threads again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
