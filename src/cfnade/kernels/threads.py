"""A thread pool for kernels that release the GIL, a barrier inside kernels, torch's thread limits.

A kernel is plain serial code over a range of its work; `run_parallel` runs the ranges. Unlike
Numba's parallel loops, several threads may call it at once, it survives a fork without hanging, and
it leaves no spinning worker behind that would compete with BLAS for the cores. This module does not
import torch before torch is loaded: inference needs none.

The barrier lets each thread run a whole training step by itself: a kernel that reads what other
threads have written waits inside, without the GIL. A hand-over through Python takes 73 µs, and a
step had seven; with the fused hidden layer, an epoch of Netflix went from 8.0-8.9 to 5.6-5.8 s
(experiments/LOG.md).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import internal
from cfnade.kernels.simd import data_pointer, intrinsic, signature

Answers = SimpleQueue[tuple[Any, BaseException | None]]
HandedOver = tuple[Callable[..., Any], Sequence[Any], Answers]

_known: dict[tuple[int, int], Crew] = {}
_making = Lock()


def thread_count(threads: int | None) -> int:
    """The number asked for, or torch's."""
    count = _default_count() if threads is None else threads
    if count < 1:
        raise ModelError(f"threads (={threads}) must be at least 1, or None for torch's number")
    return count


def _default_count() -> int:
    """Torch's number; while nobody has imported it, what it would begin with."""
    if _is_torch_loaded():
        import torch

        return torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        number = os.environ.get(name, "").split(",")[0]
        if number.isdecimal() and int(number) > 0:
            return int(number)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _is_torch_loaded() -> bool:
    """Whether it was imported, all of it: another thread may be about to."""
    return hasattr(sys.modules.get("torch"), "get_num_threads")


# torch.set_num_threads sets the numbers of the calling thread, OpenMP's and MKL's, and besides the
# default of every thread that has yet to use torch, which cannot be taken back. So we set the
# thread's own numbers only, in the libraries that torch has loaded.


@cache
def _function(name: str) -> Any:
    """A function of torch or of what it is linked with, None if there is no such."""
    import torch

    try:
        return getattr(ctypes.CDLL(str(torch._C.__file__)), name)
    except (AttributeError, OSError):
        return None


def _set_own_threads(count: int, mkl: int) -> int:
    """Have the calling thread use `count` threads in torch; 0 for mkl is what all threads have.

    Returns the number that MKL had here.
    """
    import torch

    torch.get_num_threads()  # a thread's first use of torch would set its numbers anew
    set_openmp, set_mkl = map(_function, ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"))
    if set_openmp is None:
        torch.set_num_threads(count)
        return mkl
    set_openmp(count)
    return mkl if set_mkl is None else int(set_mkl(mkl))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Have torch use so many threads for what the calling thread does inside.

    No other thread sees it, born or unborn. (Where torch's OpenMP cannot be reached, as on Windows,
    a thread that first uses torch meanwhile takes the number over and keeps it.)
    """
    import torch

    before = torch.get_num_threads()
    mkl = _set_own_threads(count, count)
    try:
        yield
    finally:
        _set_own_threads(before, mkl)


def single_torch_thread() -> AbstractContextManager[None]:
    """Keep torch on the calling thread inside: its workers would compete with ours."""
    return torch_threads(1)


class Helper:
    """A thread that takes over parts, one after the other.

    A step of training hands out once or twice. A pool of the standard library, with its locks and
    conditions for each part, takes half as long again.
    """

    def __init__(self, number: int) -> None:
        self._parts: SimpleQueue[HandedOver | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"cfnade_{number}", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def begin(self, function: Callable[..., Any], part: Sequence[Any]) -> Answers:
        """Have function(*part) called; what it returns or raises will stand in the answers."""
        answers: Answers = SimpleQueue()
        self._parts.put((function, part, answers))
        return answers

    def _end(self) -> None:
        """Wait for a part that is still being worked on: its memory is about to go."""
        self._parts.put(None)
        self._thread.join()

    def _work(self) -> None:
        alone = False  # whether torch, which may come late, has one thread here
        while (handed_over := self._parts.get()) is not None:
            if not alone and _is_torch_loaded():
                _set_own_threads(1, 1)
                alone = True
            function, part, answers = handed_over
            try:
                answers.put((function(*part), None))
            except BaseException as error:
                answers.put((None, error))
            # Nothing is held while waiting: a model is freed when its owner drops it.
            del function, part, answers, handed_over


class Crew:
    """Helpers that work together.

    Their parts may wait for each other at a barrier. So all of one caller's parts are queued before
    all of another's: in different orders on two helpers, both callers would wait for ever.
    """

    def __init__(self, count: int) -> None:
        self._helpers, self._handing_out = [Helper(number) for number in range(count)], Lock()

    def begin(self, function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Answers]:
        with self._handing_out:
            pairs = zip(self._helpers, parts, strict=True)
            return [helper.begin(function, part) for helper, part in pairs]


def _crew(count: int) -> Crew:
    """Of so many threads; a child after a fork has none of its parent's."""
    key = os.getpid(), count
    if key in _known:
        return _known[key]
    with _making:
        if key not in _known:
            _known[key] = Crew(count)
        return _known[key]


def run_parallel(function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
    """function(*part) for every part, each on a thread of its own, the first on this one.

    All parts have ended when it returns or raises: they write to arrays of the caller.
    """
    if len(parts) == 1:
        return [function(*parts[0])]
    begun = _crew(len(parts) - 1).begin(function, parts[1:])
    results: list[Any] = []
    try:
        results.append(function(*parts[0]))
    finally:
        answers = [answer.get() for answer in begun]
    for result, error in answers:
        if error is not None:
            raise error
        results.append(result)
    return results


COUNTER_STRIDE = 16
"""Numbers between two threads' counters: two cache lines, as they are fetched in pairs."""

SPIN_LIMIT = 20_000
"""Looks at a gate, some 20 microseconds, before the processor is offered to others each time."""


class BarrierPoint(NamedTuple):
    """How far each thread of a step is, and which gate this one stands at."""

    passed: Array  # (threads · APART,) int64
    thread: int
    threads: int
    number: int


NO_WAIT = BarrierPoint(np.zeros(COUNTER_STRIDE, np.int64), 0, 1, 0)
"""For a kernel that need not wait."""


class Barrier:
    """The gates of a few kernels that all threads call in the same order, counted from 1."""

    def __init__(self, threads: int) -> None:
        self._passed, self._threads = np.zeros(threads * COUNTER_STRIDE, np.int64), threads

    def point(self, thread: int, number: int) -> BarrierPoint:
        """The gate with that number, as one thread comes to it."""
        return BarrierPoint(self._passed, thread, self._threads, number)

    @contextmanager
    def release_on_error(self, thread: int) -> Iterator[None]:
        """If this thread fails inside, the others need not wait for it."""
        try:
            yield
        except BaseException:
            self._passed[thread * COUNTER_STRIDE] = np.iinfo(np.int64).max
            raise


@intrinsic
def _store_release(_: Any, place: Any, index: Any, value: Any) -> Any:
    """place[index] = value, seen by others after all that was written before."""

    def generate(context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "release", 8)
        return context.get_dummy_value()

    return signature(place, index, value), generate


@intrinsic
def _load_acquire(_: Any, place: Any, index: Any) -> Any:
    """place[index] as it is now; what its writer wrote before is seen, too."""

    def generate(_context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "acquire", 8)

    return place.dtype(*signature(place, index).args), generate


@intrinsic
def _yield_cpu(_: Any) -> Any:
    """Offer the processor to whoever waits for it; Windows knows no such function."""

    def generate(context: Any, builder: Any, _kinds: Any, _args: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            known = builder.module.globals.get("sched_yield")
            builder.call(known or ir.Function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@internal
def barrier_wait(gate: Any) -> None:
    """Say that this thread is here, and wait for the others."""
    passed = data_pointer(gate.passed)
    _store_release(passed, gate.thread * COUNTER_STRIDE, gate.number)
    for other in range(gate.threads):
        looks = 0
        while _load_acquire(passed, other * COUNTER_STRIDE) < gate.number:
            looks += 1
            if looks > SPIN_LIMIT:
                _yield_cpu()
