"""Threads that stay, for kernels that release the GIL.

A kernel is plain serial code over a range of its work; here ranges meet threads. Unlike Numba's
own parallel loops, this may be called from several threads at once, ends after a fork without
hanging, and leaves no spinning worker behind that would fight with BLAS for the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

import torch

from cfnade.errors import ModelError

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_making = Lock()


def thread_count(threads: int | None) -> int:
    """The number asked for, or torch's."""
    count = torch.get_num_threads() if threads is None else threads
    if count < 1:
        raise ModelError(f"threads (={threads}) must be at least 1, or None for torch's number")
    return count


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Have torch use so many threads inside.

    For training, not for requests: torch keeps the number for each thread, but a thread that first
    uses torch while another one is in here takes over the number and keeps it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_torch_thread() -> AbstractContextManager[None]:
    """Keep torch on the calling thread inside: its workers would compete with ours."""
    return torch_threads(1)


def _helpers(count: int) -> ThreadPoolExecutor:
    key = os.getpid(), count
    if key in _pools:
        return _pools[key]
    with _making:
        if key not in _pools:
            _pools[key] = _new_pool(count)
        return _pools[key]


def _new_pool(count: int) -> ThreadPoolExecutor:
    # A worker's own setting also becomes the default of threads not yet born: set it back.
    with one_torch_thread():
        pool = ThreadPoolExecutor(count, "cfnade", initializer=torch.set_num_threads, initargs=(1,))
        for future in [pool.submit(torch.get_num_threads) for _ in range(count)]:
            future.result()
    return pool


def run(function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
    """function(*part) for every part, each on a thread of its own, the first on this one."""
    if len(parts) == 1:
        return [function(*parts[0])]
    pool = _helpers(len(parts) - 1)
    futures = [pool.submit(function, *part) for part in parts[1:]]
    first = function(*parts[0])
    return [first, *(future.result() for future in futures)]
