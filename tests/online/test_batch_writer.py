"""The background thread processes tasks once, in order, and in batches."""

from __future__ import annotations

import threading

from cfnade.online import batch_writer
from cfnade.online.batch_writer import BatchWorker


def test_waiting_tasks_are_processed_together_and_in_order() -> None:
    batches: list[list[int]] = []
    begun, may_end = threading.Event(), threading.Event()

    def work(tasks: list[int]) -> None:
        begun.set()
        may_end.wait(60)
        batches.append(tasks)

    worker: BatchWorker[int] = BatchWorker("test", work, max_waiting=1_000)
    assert worker.submit(0)
    begun.wait(60)
    assert all(worker.submit(n) for n in range(1, 300))  # while the first is being processed
    may_end.set()
    worker.close()
    size = batch_writer._BATCH
    assert batches == [[0], list(range(1, 1 + size)), list(range(1 + size, 300))]


def test_tasks_beyond_the_size_of_the_queue_are_refused() -> None:
    done: list[int] = []
    begun, may_end = threading.Event(), threading.Event()

    def work(tasks: list[int]) -> None:
        begun.set()
        may_end.wait(60)
        done.extend(tasks)

    worker: BatchWorker[int] = BatchWorker("test", work, max_waiting=2)
    assert worker.submit(0)
    begun.wait(60)
    assert [worker.submit(n) for n in (1, 2, 3)] == [True, True, False]
    may_end.set()
    worker.close()
    assert done == [0, 1, 2]


def test_a_closed_worker_starts_again() -> None:
    done: list[int] = []
    worker: BatchWorker[int] = BatchWorker("test", done.extend, max_waiting=2)
    for n in range(3):
        assert worker.submit(n)
        worker.close()  # processes what waits
        assert done == list(range(n + 1))
    worker.close()
