"""Threads: every part runs, errors come back, torch keeps its number, kernels wait at barriers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.kernels import threads
from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import kernel
from cfnade.kernels.threads import (
    NO_WAIT,
    Barrier,
    BarrierPoint,
    barrier_wait,
    run_parallel,
    single_torch_thread,
    thread_count,
    torch_threads,
)


def test_results_come_in_the_order_of_the_parts() -> None:
    assert run_parallel(lambda a, b: a * b, [(1, 2), (3, 4), (5, 6)]) == [2, 12, 30]


def test_parts_run_on_threads_of_their_own() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def part(_: int) -> int:
        meeting.wait()  # passes only if all three run at the same time
        return threading.get_ident()

    names = run_parallel(part, [(0,), (1,), (2,)])
    assert len(set(names)) == 3
    assert names[0] == threading.get_ident()


def test_parts_that_wait_for_each_other_end_whoever_else_submits_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the parts of two callers alternated in the queue, both callers would wait for ever."""
    submit = ThreadPoolExecutor.submit

    def submit_slowly(pool: ThreadPoolExecutor, *arguments: Any) -> Any:
        time.sleep(0.001)  # others submit meanwhile
        return submit(pool, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_slowly)
    done: list[bool] = []

    def many() -> None:
        for _ in range(20):
            meeting = threading.Barrier(4, timeout=60)
            run_parallel(
                lambda _, meeting=meeting: meeting.wait(), [(number,) for number in range(4)]
            )
            done.append(True)

    callers = [threading.Thread(target=many) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(done) == 80


def test_an_error_in_a_part_is_raised_here() -> None:
    def part(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        run_parallel(part, [(1,), (0,)])


def test_all_parts_have_ended_when_the_callers_own_raises() -> None:
    ended: list[int] = []

    def part(number: int) -> None:
        if number == 0:
            raise ZeroDivisionError
        time.sleep(0.2)
        ended.append(number)

    with pytest.raises(ZeroDivisionError):
        run_parallel(part, [(0,), (1,)])
    assert ended == [1]


def test_the_default_is_torchs_number() -> None:
    assert thread_count(None) == torch.get_num_threads()
    with pytest.raises(ModelError, match=r"threads \(=0\) must be at least 1"):
        thread_count(0)


def test_without_torch_and_affinity_the_number_is_that_of_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only Linux has sched_getaffinity."""
    monkeypatch.setattr(threads, "_is_torch_loaded", lambda: False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert thread_count(None) == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert thread_count(None) == 3


def test_torch_is_limited_where_its_libraries_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_torch_function", lambda _: None)
    before = torch.get_num_threads()
    try:
        with torch_threads(before + 1):
            assert torch.get_num_threads() == before + 1
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


def test_torch_has_its_number_inside_and_the_old_one_outside() -> None:
    before = torch.get_num_threads()
    with torch_threads(3):
        assert torch.get_num_threads() == 3
        with single_torch_thread():
            assert run_parallel(torch.get_num_threads, [(), (), ()]) == [1, 1, 1]
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


# A process of its own: what the user sets can never be unset. A product is large enough for MKL to
# share among its threads; whether they took part shows in the time of this thread against all's.
SCRIPT = """
import sys, threading, time
import numpy as np, polars, torch
import cfnade
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.sampling import RowSampler
from cfnade.kernels.engine import Engine
from cfnade.models.config import CFNADEConfig
from cfnade.kernels.threads import single_torch_thread, run_parallel, torch_threads

SQUARE = torch.ones(600, 600)

def shared():
    SQUARE @ SQUARE
    own, all_of_them = time.thread_time(), time.process_time()
    for _ in range(6):
        SQUARE @ SQUARE
    return (time.process_time() - all_of_them) > 1.4 * (time.thread_time() - own)

def look(product_first):
    if product_first:
        return shared(), torch.get_num_threads()
    return torch.get_num_threads(), shared()

def newborns():
    seen = []
    for product_first in (True, False):
        thread = threading.Thread(target=lambda: seen.append(look(product_first)))
        thread.start()
        thread.join()
    return seen, torch.get_num_threads(), shared()

def use_everything():
    shapes = {"input_table": (2, 2, 8), "output_table": (2, 2, 8), "bias": (2, 2), "c": 8}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    config = CFNADEConfig(columns=2, levels=2, hidden=(8,))
    data = np.array([0, 2]), np.array([0, 1], np.int32), np.zeros(2, np.uint8)
    batch = RowSampler(*data, n_columns=2, n_levels=2).sample(np.zeros(1, int), seed=0, step=0)
    for threads in (1, 2, 3):
        engine = Engine(config, arrays, dict.fromkeys(arrays, AdamRule()), threads=threads)
        engine.step(batch)
    run_parallel(torch.get_num_threads, [(), (), ()])
    with torch_threads(1):
        assert (torch.get_num_threads(), shared()) == (1, False)
        assert newborns()[0] == before[0], "newborns inside"
    with single_torch_thread():
        run_parallel(shared, [(), ()])
    cells = np.arange(60)
    ratings = polars.DataFrame({"user": cells // 5, "item": cells % 5, "rating": cells % 3})
    cfnade.CFNADE(side="user", hidden=(4,), epochs=1, n_threads=1).fit(ratings)

for number in (None, 2, 1):
    if number is not None:
        torch.set_num_threads(number)
    before = newborns()
    use_everything()
    assert newborns() == before, (number, before, newborns())
"""


@pytest.mark.subprocess
def test_no_thread_yet_to_be_born_sees_a_trace() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@kernel
def _wait(point: Any) -> None:
    barrier_wait(point)


def test_no_thread_passes_a_point_before_all_have_reached_it() -> None:
    count, rounds = 3, 20
    barrier, done = Barrier(count), np.zeros((rounds, count))
    seen: list[Array] = []

    def work(thread: int) -> None:
        for number in range(1, rounds + 1):
            if (number + thread) % 5 == 0:
                time.sleep(0.001)  # one is late, each in turn
            done[number - 1, thread] = 1
            _wait(barrier.point(thread, number))
            seen.append(done[number - 1].copy())

    run_parallel(work, [(thread,) for thread in range(count)])
    assert np.all(seen)
    assert len(seen) == count * rounds


def test_a_point_that_is_passed_does_not_wait() -> None:
    for point in (NO_WAIT, Barrier(4).point(2, 0)):
        assert point.counters.min() >= point.number  # checked first, as below
        _wait(point)


def test_a_thread_that_fails_is_not_waited_for() -> None:
    barrier = Barrier(2)
    with pytest.raises(KeyboardInterrupt), barrier.release_on_error(0):
        raise KeyboardInterrupt
    last = barrier.point(1, 1_000_000)
    assert (
        last.counters[0] >= last.number
    )  # checked first: nothing ends a kernel that waits in vain
    _wait(last)


def test_a_point_names_its_thread() -> None:
    point: BarrierPoint = Barrier(3).point(2, 7)
    assert (point.thread, point.threads, point.number) == (2, 3, 7)
