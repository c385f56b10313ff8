"""Threads: every part runs, errors come back, torch's own setting is left as it was."""

from __future__ import annotations

import threading

import pytest
import torch

from cfnade.errors import ModelError
from cfnade.kernels.threads import one_torch_thread, run, thread_count


def test_results_come_in_the_order_of_the_parts() -> None:
    assert run(lambda a, b: a * b, [(1, 2), (3, 4), (5, 6)]) == [2, 12, 30]


def test_parts_run_on_threads_of_their_own() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def part(_: int) -> int:
        meeting.wait()  # passes only if all three run at the same time
        return threading.get_ident()

    names = run(part, [(0,), (1,), (2,)])
    assert len(set(names)) == 3
    assert names[0] == threading.get_ident()


def test_an_error_in_a_part_is_raised_here() -> None:
    def part(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        run(part, [(1,), (0,)])


def test_torch_keeps_its_number_of_threads() -> None:
    before = torch.get_num_threads()
    run(torch.get_num_threads, [(), ()])
    assert torch.get_num_threads() == before
    with one_torch_thread():
        assert run(torch.get_num_threads, [(), ()]) == [1, 1]
    seen: list[int] = []
    stranger = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    stranger.start()
    stranger.join()
    assert seen == [before]


def test_the_default_is_torchs_number() -> None:
    assert thread_count(None) == torch.get_num_threads()
    with pytest.raises(ModelError, match=r"threads \(=0\) must be at least 1"):
        thread_count(0)
