"""What is left to the thread in the background is done once, in order, and some at a time."""

from __future__ import annotations

import threading

from cfnade.online import background
from cfnade.online.background import BatchWorker


def test_what_waits_is_done_together_and_in_order() -> None:
    batches: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def work(tasks: list[int]) -> None:
        begun.set()
        go_on.wait(60)
        batches.append(tasks)

    thread: BatchWorker[int] = BatchWorker("test", work, waiting=1_000)
    assert thread.leave(0)
    begun.wait(60)
    assert all(thread.leave(n) for n in range(1, 300))  # while the first is being done
    go_on.set()
    thread.close()
    at_once = background._AT_ONCE
    assert batches == [[0], list(range(1, 1 + at_once)), list(range(1 + at_once, 300))]


def test_more_than_may_wait_is_refused() -> None:
    done: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def work(tasks: list[int]) -> None:
        begun.set()
        go_on.wait(60)
        done.extend(tasks)

    thread: BatchWorker[int] = BatchWorker("test", work, waiting=2)
    assert thread.leave(0)
    begun.wait(60)
    assert [thread.leave(n) for n in (1, 2, 3)] == [True, True, False]
    go_on.set()
    thread.close()
    assert done == [0, 1, 2]


def test_it_begins_again_after_its_end() -> None:
    done: list[int] = []
    thread: BatchWorker[int] = BatchWorker("test", done.extend, waiting=2)
    for n in range(3):
        assert thread.leave(n)
        thread.close()  # does what waits first
        assert done == list(range(n + 1))
    thread.close()
