"""Ratings of some rows, and the levels of given cells among them: one pass, nothing is sorted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from cfnade.kernels.layout import Array


class Known(NamedTuple):
    """The ratings of some rows, each with the number of its row among them."""

    offsets: Array  # (B+1,) int64
    rows: Array  # (C,) int32
    columns: Array  # (C,) int32
    levels: Array  # (C,) uint8


@njit(nogil=True, cache=True)
def _copy(offsets: Any, columns: Any, levels: Any, rows: Any, known: Any) -> None:
    for b in range(len(rows)):
        at = known.offsets[b]
        for p in range(offsets[rows[b]], offsets[rows[b]] + known.offsets[b + 1] - at):
            known.rows[at], known.columns[at], known.levels[at] = b, columns[p], levels[p]
            at += 1


def ratings_of(offsets: Array, columns: Array, levels: Array, rows: Array) -> Known:
    """The ratings of these rows; a row that is unknown (-1) has none."""
    counts = np.where(rows < 0, 0, offsets[rows + 1] - offsets[rows])
    at = np.concatenate([[0], np.cumsum(counts)])
    kinds = np.int32, columns.dtype, levels.dtype
    known = Known(at, *(np.empty(at[-1], kind) for kind in kinds))
    _copy(offsets, columns, levels, rows, known)
    return known


@njit(nogil=True, cache=True)
def _find(known: Any, order: Any, rows: Any, columns: Any, marks: Any, out: Any) -> None:
    """marks (M,) is -1 everywhere before and after; inside it holds the levels of one row."""
    i = 0
    while i < len(order):
        row = rows[order[i]]
        first, end = known.offsets[row], known.offsets[row + 1]
        for p in range(first, end):
            marks[known.columns[p]] = known.levels[p]
        while i < len(order) and rows[order[i]] == row:
            column = columns[order[i]]
            out[order[i]] = marks[column] if column >= 0 else -1
            i += 1
        for p in range(first, end):
            marks[known.columns[p]] = -1


def levels_of(known: Known, rows: Array, columns: Array, n_columns: int) -> Array:
    """The known level of each cell, -1 where there is none; rows count among known. (n,)."""
    out, marks = np.empty(len(rows), np.int64), np.full(n_columns, -1, np.int64)
    _find(known, np.argsort(rows, kind="stable"), rows, columns, marks, out)
    return out
