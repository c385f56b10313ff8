"""One thread that writes for all others: who waits at the same time is written at once.

To make a write durable takes a disk some milliseconds, however much it is. So whatever came
meanwhile goes into the next transaction together, and each caller hears when its own is on disk.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from cfnade.errors import StoreAwayError, StoreError
from cfnade.store.events import Kept, Saying, keep
from cfnade.store.opening import Store

_AT_ONCE = 200
_WAITING = 2_000
"""Beyond, a caller is told to come again."""
_Job = tuple[Saying, "Future[Kept]"]


class Writer:
    """Keeps what is said, for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: queue.Queue[_Job | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def keep(self, said: Saying) -> Future[Kept]:
        """Done when it is on disk; the error is a StoreError if it is not."""
        future: Future[Kept] = Future()
        with self._lock:
            try:
                self._jobs.put_nowait((said, future))
            except queue.Full:
                raise StoreAwayError("too many writes are waiting; try again in a second") from None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
                self._thread.start()
        return future

    def close(self) -> None:
        """Write what waits, then end; the next write begins again."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread.join()
                self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs, last = [job], False
            while len(jobs) < _AT_ONCE:
                try:
                    more = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                jobs.append(more)
            self._write([one for one in jobs if one[1].set_running_or_notify_cancel()])
            if last:
                return

    def _write(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            outcomes = keep(self._store, [said for said, _ in jobs])
        except StoreAwayError as error:
            outcomes = [error] * len(jobs)
        except StoreError as error:
            if len(jobs) > 1:  # one of them is at fault: each by itself
                for one in jobs:
                    self._write([one])
                return
            outcomes = [error]
        except BaseException as error:  # a bug; whoever waits must not wait for ever
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
