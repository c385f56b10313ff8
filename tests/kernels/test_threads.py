"""Threads: every part runs, errors come back, torch's own setting is left as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.kernels.threads import (
    Answers,
    Helper,
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


def test_parts_that_wait_for_each_other_end_whoever_else_hands_out_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Helpers that had the parts of two callers in different orders would wait for ever."""
    begin = Helper.begin

    def slowly(helper: Helper, function: Callable[..., object], part: Sequence[object]) -> Answers:
        time.sleep(0.001)  # in which others come to hand out theirs
        return begin(helper, function, part)

    monkeypatch.setattr(Helper, "begin", slowly)
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
from cfnade.kernels.network import Network
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
    table = torch.zeros(2, 2, 8)
    network = Network(table, table.clone(), torch.zeros(2, 2), torch.zeros(8))
    data = np.array([0, 2]), np.array([0, 1], np.int32), np.zeros(2, np.uint8)
    batch = RowSampler(*data, n_columns=2, n_levels=2).sample(np.zeros(1, int), seed=0, step=0)
    for threads in (1, 2, 3):
        engine = Engine(network, dict.fromkeys(network.named(), AdamRule()), threads=threads)
        engine.step(batch)
    run_parallel(torch.get_num_threads, [(), (), ()])
    with torch_threads(1):
        assert (torch.get_num_threads(), shared()) == (1, False)
        assert newborns()[0] == before[0], "newborns inside"
    with single_torch_thread():
        run_parallel(shared, [(), ()])
    cells = np.arange(60)
    ratings = polars.DataFrame({"user": cells // 5, "item": cells % 5, "rating": cells % 3})
    cfnade.CFNADE(side="user", hidden=(4,), epochs=1, threads=1).fit(ratings)

for number in (None, 2, 1):
    if number is not None:
        torch.set_num_threads(number)
    before = newborns()
    use_everything()
    assert newborns() == before, (number, before, newborns())
"""


def test_no_thread_yet_to_be_born_sees_a_trace() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
