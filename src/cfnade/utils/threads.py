"""Parallel map over the threads that the process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
    """Apply a function as `map` does, in threads; results are in the order of the arguments."""
    with ThreadPoolExecutor(available_threads()) as pool:
        return list(pool.map(function, *iterables))


def chunk_slices(count: int, size: int) -> list[slice]:
    """Split range(count) into slices of the given size; the last may be shorter."""
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
