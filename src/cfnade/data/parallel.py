"""Work cut into pieces for as many threads as may run here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def threads() -> int:
    """How many threads may run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """As `map`, in threads; results in the order of the arguments."""
    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(work, *arguments))


def chunks(count: int, size: int) -> list[slice]:
    """0..count in slices of that size; the last may be shorter."""
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
