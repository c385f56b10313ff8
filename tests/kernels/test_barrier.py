"""Threads that wait for each other inside kernels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import kernel
from cfnade.kernels.threads import NO_WAIT, Barrier, BarrierPoint, barrier_wait, run_parallel


@kernel
def _wait(gate: Any) -> None:
    barrier_wait(gate)


def test_nobody_passes_a_gate_before_all_have_come() -> None:
    threads, rounds = 3, 20
    gates, done = Barrier(threads), np.zeros((rounds, threads))
    seen: list[Array] = []

    def work(thread: int) -> None:
        for number in range(1, rounds + 1):
            if (number + thread) % 5 == 0:
                time.sleep(0.001)  # one is late, each in turn
            done[number - 1, thread] = 1
            _wait(gates.point(thread, number))
            seen.append(done[number - 1].copy())

    run_parallel(work, [(thread,) for thread in range(threads)])
    assert np.all(seen)
    assert len(seen) == threads * rounds


def test_an_open_gate_waits_for_nobody() -> None:
    for gate in (NO_WAIT, Barrier(4).point(2, 0)):
        assert gate.passed.min() >= gate.number  # asked first, as below
        _wait(gate)


def test_a_thread_that_fails_is_not_waited_for() -> None:
    gates = Barrier(2)
    with pytest.raises(KeyboardInterrupt), gates.release_on_error(0):
        raise KeyboardInterrupt
    last = gates.point(1, 1_000_000)
    assert last.passed[0] >= last.number  # asked first: nothing ends a kernel that waits in vain
    _wait(last)


def test_a_gate_names_its_thread() -> None:
    gate: BarrierPoint = Barrier(3).point(2, 7)
    assert (gate.thread, gate.threads, gate.number) == (2, 3, 7)
