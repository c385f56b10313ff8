"""Where the threads of one step wait for each other inside kernels.

To leave a kernel, wait for Python's lock, hand over and wake a thread takes as long as a small
kernel. So each thread goes through a whole step by itself, and a kernel that reads what others have
written waits at a gate when it begins, with its arguments taken in and without the lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from cfnade.kernels.compiled import inner
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import address, intrinsic, signature

APART = 16
"""Numbers between two threads' counters: two cache lines, as they are fetched in pairs."""

PATIENCE = 20_000
"""Looks at a gate, some 20 microseconds, before the processor is offered to others each time."""


class Gate(NamedTuple):
    """How far each thread of a step is, and which gate this one stands at."""

    passed: Array  # (threads · APART,) int64
    thread: int
    threads: int
    number: int


OPEN = Gate(np.zeros(APART, np.int64), 0, 1, 0)
"""For a kernel that need not wait."""


class Gates:
    """The gates of a few kernels that all threads call in the same order, counted from 1."""

    def __init__(self, threads: int) -> None:
        self._passed, self._threads = np.zeros(threads * APART, np.int64), threads

    def at(self, thread: int, number: int) -> Gate:
        """The gate with that number, as one thread comes to it."""
        return Gate(self._passed, thread, self._threads, number)

    @contextmanager
    def left_open(self, thread: int) -> Iterator[None]:
        """If this thread fails inside, the others need not wait for it."""
        try:
            yield
        except BaseException:
            self._passed[thread * APART] = np.iinfo(np.int64).max
            raise


@intrinsic
def _say(_: Any, place: Any, index: Any, value: Any) -> Any:
    """place[index] = value, seen by others after all that was written before."""

    def generate(context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "release", 8)
        return context.get_dummy_value()

    return signature(place, index, value), generate


@intrinsic
def _look(_: Any, place: Any, index: Any) -> Any:
    """place[index] as it is now; what its writer wrote before is seen, too."""

    def generate(_context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "acquire", 8)

    return place.dtype(*signature(place, index).args), generate


@intrinsic
def _give_way(_: Any) -> Any:
    """Offer the processor to whoever waits for it; Windows knows no such function."""

    def generate(context: Any, builder: Any, _kinds: Any, _args: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            known = builder.module.globals.get("sched_yield")
            builder.call(known or ir.Function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@inner
def pass_gate(gate: Any) -> None:
    """Say that this thread is here, and wait for the others."""
    passed = address(gate.passed)
    _say(passed, gate.thread * APART, gate.number)
    for other in range(gate.threads):
        looks = 0
        while _look(passed, other * APART) < gate.number:
            looks += 1
            if looks > PATIENCE:
                _give_way()
