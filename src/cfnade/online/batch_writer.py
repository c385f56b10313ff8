"""Group commit: one thread writes the events of all others, those that wait in one transaction.

Making a write durable takes a disk some milliseconds, however large it is.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from cfnade.exceptions import StoreUnavailableError
from cfnade.online.event_store import AppendResult, Event, EventStore, validate_id

T = TypeVar("T")
_BATCH = 200
_MAX_WAITING = 2_000
"""Beyond, writers get an error and try again."""


class BatchWorker(Generic[T]):
    """A thread that processes tasks of other threads in batches; the first task starts it.

    Args:
        name: Of the thread.
        work: Processes a batch; it handles its own errors.
        max_waiting: Size of the queue.
        delay: Seconds to wait after the first task of a batch, so that more arrive.
    """

    def __init__(
        self, name: str, work: Callable[[list[T]], None], *, max_waiting: int, delay: float = 0.0
    ) -> None:
        self._name, self._work, self._delay = name, work, delay
        self._tasks: queue.Queue[T | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, task: T) -> bool:
        """Add a task; return False if the queue is full."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            try:
                self._tasks.put_nowait(task)
            except queue.Full:
                return False
        return True

    def close(self) -> None:
        """Process the waiting tasks and end the thread; a later task starts it again."""
        with self._lock:
            if self._thread is not None:
                self._tasks.put(None)
                self._thread.join()
                self._thread = None

    def _run(self) -> None:
        while (first := self._tasks.get()) is not None:
            time.sleep(self._delay)
            tasks, is_last = self._next_batch(first)
            self._work(tasks)
            if is_last:
                return

    def _next_batch(self, first: T) -> tuple[list[T], bool]:
        """Return the first task with those that wait, and whether the thread should end."""
        tasks = [first]
        while len(tasks) < _BATCH and not self._tasks.empty():  # no other thread takes any
            task = self._tasks.get()
            if task is None:
                return tasks, True
            tasks.append(task)
        return tasks, False


class EventWriter:
    """Appends events for all threads of a process."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._worker: BatchWorker[tuple[Event, Future[AppendResult]]] = BatchWorker(
            "event-writer", self._write, max_waiting=_MAX_WAITING
        )

    def submit(self, event: Event) -> Future[AppendResult]:
        """Append an event; the result is there when the event is on disk."""
        validate_id(event.user_id, "user")  # here, so that it cannot fail the batch of others
        validate_id(event.item_id, "item")
        future: Future[AppendResult] = Future()
        if not self._worker.submit((event, future)):
            raise StoreUnavailableError("too many writes are waiting; try again in a second")
        return future

    def close(self) -> None:
        """Write the waiting events and end the thread."""
        self._worker.close()

    def _write(self, jobs: list[tuple[Event, Future[AppendResult]]]) -> None:
        jobs = [job for job in jobs if job[1].set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            results = self._store.append([event for event, _ in jobs])
        except BaseException as error:  # also of a bug, so that no request waits for ever
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), result in zip(jobs, results, strict=True):
            future.set_result(result)
