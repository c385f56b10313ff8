"""One thread that works off what any number of others leave to it, some at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_AT_ONCE = 200


class BatchWorker(Generic[T]):
    """Calls `work` with whatever came meanwhile; `work` answers for its own errors.

    At most `waiting` wait. After the first of some comes, a pause of so many seconds lets more
    come. The thread begins with the first task.
    """

    def __init__(
        self, name: str, work: Callable[[list[T]], None], *, waiting: int, pause: float = 0.0
    ) -> None:
        self._name, self._work, self._pause = name, work, pause
        self._tasks: queue.Queue[T | None] = queue.Queue(waiting)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def leave(self, task: T) -> bool:
        """Whether there was room for it."""
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
        """Do what waits, then end; the next task begins again."""
        with self._lock:
            if self._thread is not None:
                self._tasks.put(None)
                self._thread.join()
                self._thread = None

    def _run(self) -> None:
        while (first := self._tasks.get()) is not None:
            if self._pause:
                time.sleep(self._pause)
            tasks, last = self._more(first)
            self._work(tasks)
            if last:
                return

    def _more(self, first: T) -> tuple[list[T], bool]:
        """The first with those that wait behind it, and whether these are the last."""
        tasks = [first]
        while len(tasks) < _AT_ONCE and not self._tasks.empty():  # nobody else takes one
            task = self._tasks.get()
            if task is None:
                return tasks, True
            tasks.append(task)
        return tasks, False
