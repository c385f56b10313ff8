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

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import internal
from cfnade.kernels.simd import data_pointer, intrinsic, signature

T = TypeVar("T")

# -- number of threads -----------------------------------------------------------------------------


def thread_count(threads: int | None) -> int:
    """Return the given number of threads, or torch's if it is None."""
    count = _default_count() if threads is None else threads
    if count < 1:
        raise ModelError(f"threads (={threads}) must be at least 1, or None for torch's number")
    return count


def _default_count() -> int:
    """Torch's number; before torch is imported, the number that it would start with."""
    if _is_torch_loaded():
        import torch

        return torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        number = os.environ.get(name, "").split(",")[0]
        if number.isdecimal() and int(number) > 0:
            return int(number)
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _is_torch_loaded() -> bool:
    """Whether torch is imported completely: another thread may be importing it."""
    return hasattr(sys.modules.get("torch"), "get_num_threads")


# -- torch's threads -------------------------------------------------------------------------------
# torch.set_num_threads sets OpenMP's and MKL's numbers of the calling thread, and besides the
# default of every thread that has yet to use torch, which cannot be taken back. So we set only the
# thread's own numbers, in the libraries that torch has loaded (threadpoolctl does not list torch's
# MKL). Without a limit, the backward pass took six times as long beside our threads
# (experiments/LOG.md).


@cache
def _torch_function(name: str) -> Any:
    """A function of torch's libraries, or None if it cannot be reached, as on Windows."""
    import torch

    try:
        return getattr(ctypes.CDLL(str(torch._C.__file__)), name)
    except (AttributeError, OSError):
        return None


def _set_own_threads(count: int, mkl: int) -> int:
    """Set torch's number of threads for the calling thread; 0 for mkl means MKL's default.

    Returns MKL's number before.
    """
    import torch

    torch.get_num_threads()  # a thread's first use of torch would reset its numbers
    set_openmp = _torch_function("omp_set_num_threads")
    set_mkl = _torch_function("MKL_Set_Num_Threads_Local")
    if set_openmp is None:
        torch.set_num_threads(count)
        return mkl
    set_openmp(count)
    return mkl if set_mkl is None else int(set_mkl(mkl))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Limit torch to `count` threads for what the calling thread does inside.

    Other threads are not affected, whether they exist or not. (Where torch's OpenMP cannot be
    reached, a thread that first uses torch meanwhile keeps this number.)
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


# -- thread pool -----------------------------------------------------------------------------------

_pools: dict[int, ThreadPoolExecutor] = {}
_submitting = threading.Lock()
_worker = threading.local()


def _forget_pools() -> None:
    global _submitting
    _submitting = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)  # a child has none of its parent's threads


def run_parallel(function: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call function(*part) for every part, the first on this thread, the others on pool threads.

    All parts have ended when it returns or raises: they write to arrays of the caller.
    """
    if len(parts) == 1:
        return [function(*parts[0])]
    futures = _submit(function, parts[1:])
    try:
        first = function(*parts[0])
    finally:
        wait(futures)
    return [first, *(future.result() for future in futures)]


def even_ranges(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of about equal size."""
    return list(pairwise(lo + (hi - lo) * part // parts for part in range(parts + 1)))


def _submit(function: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[Future[T]]:
    """Queue the parts for a pool of exactly as many threads.

    The parts may wait for each other at a barrier. So one caller's parts are queued before
    another's: if two callers' parts alternated, both callers would wait for ever.
    """
    count = len(parts)
    with _submitting:
        if count not in _pools:
            _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="cfnade")
        return [_pools[count].submit(_run_part, function, part) for part in parts]


def _run_part(function: Callable[..., T], part: tuple[Any, ...]) -> T:
    if not getattr(_worker, "is_limited", False) and _is_torch_loaded():
        _set_own_threads(1, 1)
        _worker.is_limited = True
    return function(*part)


# -- barrier ---------------------------------------------------------------------------------------

COUNTER_STRIDE = 16
"""Numbers between two threads' counters: two cache lines, as they are fetched in pairs."""

SPIN_LIMIT = 20_000
"""Reads of a counter, some 20 µs, before each further one yields the processor."""


class BarrierPoint(NamedTuple):
    """One thread's view of a point that all threads of a step must reach."""

    counters: Array  # (threads · COUNTER_STRIDE,) int64: last point that each thread reached
    thread: int
    threads: int
    number: int


NO_WAIT = BarrierPoint(np.zeros(COUNTER_STRIDE, np.int64), 0, 1, 0)
"""For a kernel that need not wait."""


class Barrier:
    """Counters on which kernels wait for the other threads of a step, without the GIL.

    All threads pass the same points in the same order, counted from 1.
    """

    def __init__(self, threads: int) -> None:
        self._counters, self._threads = np.zeros(threads * COUNTER_STRIDE, np.int64), threads

    def point(self, thread: int, number: int) -> BarrierPoint:
        """Return the point with that number, as one thread reaches it."""
        return BarrierPoint(self._counters, thread, self._threads, number)

    @contextmanager
    def release_on_error(self, thread: int) -> Iterator[None]:
        """If this thread fails inside, the others do not wait for it."""
        try:
            yield
        except BaseException:
            self._counters[thread * COUNTER_STRIDE] = np.iinfo(np.int64).max
            raise


# Acquire and release order the threads' writes on every processor; x86 would do so without.


@intrinsic
def _store_release(_, place, index, value):
    """place[index] = value, visible to others after everything written before."""

    def generate(context, builder, _kinds, args):
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "release", 8)
        return context.get_dummy_value()

    return signature(place, index, value), generate


@intrinsic
def _load_acquire(_, place, index):
    """place[index]; everything that its writer wrote before is visible, too."""

    def generate(_context, builder, _kinds, args):
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "acquire", 8)

    return place.dtype(*signature(place, index).args), generate


@intrinsic
def _yield_cpu(_):
    """Yield the processor to another thread; nothing on Windows, which has no such function."""

    def generate(context, builder, _kinds, _args):
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            declared = builder.module.globals.get("sched_yield")
            builder.call(declared or ir.Function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@internal
def barrier_wait(point):
    """Wait until all threads of the step have reached this point."""
    counters = data_pointer(point.counters)
    _store_release(counters, point.thread * COUNTER_STRIDE, point.number)
    for peer in range(point.threads):
        reads = 0
        while _load_acquire(counters, peer * COUNTER_STRIDE) < point.number:
            reads += 1
            if reads > SPIN_LIMIT:
                _yield_cpu()
