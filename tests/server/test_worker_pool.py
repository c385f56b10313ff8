"""Threads, the queue before them and the deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from cfnade.server.errors import ApiError
from cfnade.server.settings import Limits
from cfnade.server.worker_pool import WorkerPool
from cfnade.utils.cancellation import ComputationCancelledError, cancelled_by, check_cancelled


def test_no_more_run_than_threads_and_no_more_wait_than_allowed() -> None:
    opened, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def slow(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        opened.wait()
        with lock:
            running -= 1
        return number

    async def ask() -> list[int | BaseException]:
        work = WorkerPool(Limits(threads=2, waiting=3))
        asked = [asyncio.create_task(work.run(slow, number)) for number in range(8)]
        await asyncio.sleep(0)  # all of them come before the first is done
        opened.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert await work.run(slow, 9) == 9  # there is room again
        work.close()
        return answers

    answers = asyncio.run(ask())
    assert answers[:5] == [0, 1, 2, 3, 4]
    assert most == 2
    for refused in answers[5:]:
        assert isinstance(refused, ApiError)
        assert refused.status_code == 503
        assert refused.headers == {"Retry-After": "1"}


def test_a_late_answer_is_given_up_but_keeps_its_place() -> None:
    opened = threading.Event()

    async def ask() -> None:
        work = WorkerPool(Limits(threads=1, waiting=0, work_seconds=0.01))
        with pytest.raises(ApiError) as late:
            await work.run(opened.wait)
        assert late.value.status_code == 504
        with pytest.raises(ApiError) as full:
            await work.run(opened.wait)
        assert full.value.status_code == 503
        opened.set()
        work.close()
        assert await WorkerPool(Limits()).run(lambda: 1) == 1

    asyncio.run(ask())


def test_one_that_waits_too_long_is_never_begun() -> None:
    opened, begun = threading.Event(), threading.Event()

    async def ask() -> None:
        work = WorkerPool(Limits(threads=1, waiting=1, work_seconds=0.01))
        first = asyncio.create_task(work.run(opened.wait))
        second = asyncio.create_task(work.run(begun.set))
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert [answer.status_code for answer in answers if isinstance(answer, ApiError)] == [
            504
        ] * 2
        opened.set()
        work.close()

    asyncio.run(ask())
    assert not begun.is_set()


def test_a_late_answer_stops_computing_and_frees_its_place() -> None:
    """At its next look for a cancellation; before, it kept its thread for minutes."""
    stopped = threading.Event()

    def endless() -> None:
        try:
            while True:
                check_cancelled()
                time.sleep(0.001)
        except ComputationCancelledError:
            stopped.set()
            raise

    async def ask() -> None:
        work = WorkerPool(Limits(threads=1, waiting=0, work_seconds=0.05))
        with pytest.raises(ApiError) as late:
            await work.run(endless)
        assert late.value.status_code == 504
        assert await asyncio.to_thread(stopped.wait, 30)
        answer = 0
        give_up = time.monotonic() + 30
        while answer == 0 and time.monotonic() < give_up:
            with suppress(ApiError):  # the place is free a moment after the computation has ended
                answer = await work.run(lambda: 1)
        assert answer == 1
        work.close()

    asyncio.run(ask())


def test_a_cancellation_concerns_one_computation_alone() -> None:
    first, second = threading.Event(), threading.Event()
    with cancelled_by(first):
        with cancelled_by(second):
            first.set()
            check_cancelled()
        with pytest.raises(ComputationCancelledError):
            check_cancelled()
    check_cancelled()
