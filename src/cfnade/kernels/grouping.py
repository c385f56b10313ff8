"""Ratings grouped by column, by counting sort; inside a column they keep their order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from cfnade.errors import ModelError
from cfnade.kernels.layout import Array
from cfnade.kernels.simd import address

NO_WEIGHTS: Array = np.empty(0, np.float32)
NO_ORDER: Array = np.empty(0, np.int64)


class Grouped(NamedTuple):
    """Ratings of `size` rows, by column: column c has those from starts[c] to starts[c+1]."""

    size: int
    starts: Array  # (M+1,) int64
    rows: Array  # (n,) int32: number of the row in the batch
    levels: Array  # (n,) uint8
    touched: Array  # (m,) int32: the columns that have any, rising
    weights: Array = NO_WEIGHTS  # (n,) of targets
    order: Array = NO_ORDER  # (n,) int64: place of the rating as it was given

    @property
    def n_columns(self) -> int:
        return len(self.starts) - 1


@njit(nogil=True)
def bare_ratings(ratings: Any) -> Any:
    """The same, as pointers."""
    return Grouped(
        ratings.size,
        address(ratings.starts),
        address(ratings.rows),
        address(ratings.levels),
        address(ratings.touched),
        address(ratings.weights),
        address(ratings.order),
    )


@njit(nogil=True, cache=True)
def _outside(values: Any, limit: int) -> int:
    """The first index whose value lies outside 0..limit-1, or -1."""
    for i in range(len(values)):
        if values[i] < 0 or values[i] >= limit:
            return i
    return -1


@njit(nogil=True, cache=True)
def _sort(columns: Any, starts: Any, order: Any) -> None:
    """Counting sort. Traffic: columns twice, order once; starts must stay in cache."""
    for i in range(len(columns)):
        starts[columns[i] + 1] += 1
    for c in range(len(starts) - 1):
        starts[c + 1] += starts[c]
    for i in range(len(columns)):
        order[starts[columns[i]]] = i
        starts[columns[i]] += 1
    for c in range(len(starts) - 1, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0


@njit(nogil=True, cache=True)
def _partition(which: Any, starts: Any, fixed: float, bounds: Any) -> None:
    """Cut the columns into len(bounds)-1 ranges of equal work: ratings + `fixed` per column."""
    work = 0.0
    for c in which:
        work += starts[c + 1] - starts[c] + fixed
    parts = len(bounds) - 1
    done, part = 0.0, 1
    for u in range(len(which)):
        while part < parts and done >= work * part / parts:
            bounds[part] = u
            part += 1
        done += starts[which[u] + 1] - starts[which[u]] + fixed
    bounds[part:] = len(which)


def partition(which: Array, starts: Array, fixed: float, parts: int) -> Array:
    """Bounds of `parts` ranges of columns that cost about the same. Returns (parts+1,)."""
    bounds = np.zeros(parts + 1, np.int64)
    _partition(which, starts, fixed, bounds)
    return bounds


def require_inside(name: str, values: Array, limit: int, what: str) -> None:
    """Refuse indices that would leave the memory of a table."""
    place = _outside(values, limit)
    if place >= 0:
        raise ModelError(
            f"{name}[{place}] (={values[place]}) must lie in 0..{limit - 1} ({what} = {limit})"
        )


def group(
    rows: Array,
    columns: Array,
    levels: Array,
    weights: Array = NO_WEIGHTS,
    *,
    size: int,
    n_columns: int,
    n_levels: int,
) -> Grouped:
    """Group cells given in any order; `size` is the number of rows. Checks every index."""
    require_inside("rows", rows, size, "rows")
    require_inside("columns", columns, n_columns, "columns")
    require_inside("levels", levels, n_levels, "levels")
    starts, order = np.zeros(n_columns + 1, np.int64), np.empty(len(columns), np.int64)
    _sort(columns, starts, order)
    touched = np.flatnonzero(np.diff(starts)).astype(np.int32)
    grouped = rows[order].astype(np.int32), levels[order].astype(np.uint8)
    weighed = weights[order] if len(weights) else weights
    return Grouped(size, starts, *grouped, touched, weighed, order)
