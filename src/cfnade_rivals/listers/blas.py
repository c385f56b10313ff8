"""How many threads the BLAS of NumPy and SciPy uses."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cfnade_rivals.libraries import library


def blas_threads(threads: int | None, model: str) -> AbstractContextManager[Any]:
    """So many inside; as many as it likes without a number."""
    if threads is None:
        return nullcontext()
    limits = library("threadpoolctl", "threadpoolctl", model).threadpool_limits
    limited: AbstractContextManager[Any] = limits(threads, "blas")
    return limited
