"""One thread that writes for all others: who waits at the same time is written at once.

To make a write durable takes a disk some milliseconds, however much it is. So whatever came
meanwhile goes into the next transaction together, and each caller hears when its own is on disk.
"""

from __future__ import annotations

from concurrent.futures import Future

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.online.background import BatchWorker
from cfnade.online.engine import Store
from cfnade.online.event_store import AppendResult, Event, keep

_WAITING = 2_000
"""Beyond, a caller is told to come again."""
_Job = tuple[Event, "Future[AppendResult]"]


class EventWriter:
    """Keeps what is said, for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: BatchWorker[_Job] = BatchWorker("writer", self._run, waiting=_WAITING)

    def keep(self, said: Event) -> Future[AppendResult]:
        """Done when it is on disk; the error is a StoreError if it is not."""
        future: Future[AppendResult] = Future()
        if not self._jobs.leave((said, future)):
            raise StoreUnavailableError("too many writes are waiting; try again in a second")
        return future

    def close(self) -> None:
        """Write what waits, then end; the next write begins again."""
        self._jobs.close()

    def _run(self, jobs: list[_Job]) -> None:
        self._write([one for one in jobs if one[1].set_running_or_notify_cancel()])

    def _write(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            outcomes = keep(self._store, [said for said, _ in jobs])
        except StoreUnavailableError as error:
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
