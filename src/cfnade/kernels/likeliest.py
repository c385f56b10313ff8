"""Chances of all columns from their scores, and the few columns of each row that are likeliest."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.bounds import sink
from cfnade.kernels.compiled import inner, kernel
from cfnade.kernels.exponentials import exp
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import (
    LANES,
    address,
    beyond,
    fill,
    load,
    maximum,
    store,
    total,
    where_at_most,
)


@inner
def _highest(row: Any, M: int, lanes: Any) -> Any:
    """The largest of M numbers; lanes is memory for a vector."""
    top, whole = fill(row, -np.inf), M - M % LANES
    for j in range(0, whole, LANES):
        top = maximum(top, load(row, j))
    store(lanes, 0, top)
    highest = lanes[0]
    for t in range(1, LANES):
        highest = max(highest, lanes[t])
    for j in range(whole, M):
        highest = max(highest, row[j])
    return highest


@inner
def _mass(row: Any, M: int, highest: Any, lanes: Any) -> Any:
    """Σ e^(score - highest)."""
    high, zero, least = fill(row, highest), fill(row, 0.0), fill(row, -87.0)
    mass, whole = zero, M - M % LANES
    for j in range(0, whole, LANES):
        gap = load(row, j) - high
        mass = mass + where_at_most(gap, least, zero, exp(gap))
    store(lanes, 0, fill(row, -np.inf))
    for j in range(whole, M):
        lanes[j - whole] = row[j] - highest
    gap = load(lanes, 0)
    return total(mass + where_at_most(gap, least, zero, exp(gap)))


@kernel
def _log_softmax(scores: Any, B: int, M: int, memory: Any) -> None:
    lanes = address(memory)
    for number in range(B):
        row = beyond(address(scores), number * M)
        highest = _highest(row, M, lanes)
        if highest == -np.inf:
            continue
        rest = np.log(_mass(row, M, highest, lanes))
        for j in range(M):
            row[j] = (row[j] - highest) - rest  # one by one: both may be large


@inner
def least_of_largest(values: Any, count: int, heap: Any) -> Any:
    """The least of the n largest of the first `count` values, at least n; heap (n,) is memory."""
    n = len(heap)
    for m in range(n):
        heap[m] = values[m]
    for place in range(n // 2 - 1, -1, -1):
        sink(heap, place)
    for m in range(n, count):
        if values[m] > heap[0]:
            heap[0] = values[m]
            sink(heap, np.int64(0))
    return heap[0]


@kernel
def _nth_largest(rows: Any, n: int, out: Any) -> None:
    heap = np.empty(n, rows.dtype)
    for row in range(len(rows)):
        out[row] = least_of_largest(rows[row], rows.shape[1], heap)


@kernel
def _between(rows: Any, low: Any, high: Any, which: Any, columns: Any) -> int:
    """How many there are; they are written as far as there is room."""
    count = 0
    for row in range(len(rows)):
        for m in range(rows.shape[1]):
            if low[row] <= rows[row, m] < high[row]:
                if count < len(which):
                    which[count], columns[count] = row, m
                count += 1
    return count


def log_softmax(scores: Array) -> Array:
    """Over the last of two axes, in place; of nothing but -∞ nothing has a chance."""
    _log_softmax(scores.reshape(-1), *scores.shape, np.empty(LANES, scores.dtype))
    return scores


def nth_largest(rows: Array, n: int) -> Array:
    """The n-th largest of each of rows (B, M), the least one where there are fewer. (B,)."""
    out = np.empty(len(rows), rows.dtype)
    _nth_largest(rows, min(n, rows.shape[1]), out)
    return out


def cells_between(rows: Array, low: Array, high: Array, *, expected: int) -> tuple[Array, Array]:
    """The cells of rows (B, M) from low (B,) on and below high (B,), row by row.

    Room is made for `expected` ones at first. Returns whose each is, and its column.
    """
    which, columns = np.empty(expected, np.int64), np.empty(expected, np.int64)
    count = _between(rows, low, high, which, columns)
    if count > expected:
        return cells_between(rows, low, high, expected=count)
    return which[:count], columns[:count]
