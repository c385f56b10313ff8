"""One row at a time, for a request: serial compiled loops that release the GIL and use no torch.

Nothing here is shared between calls, so any number of threads may call at once; the bits of an
answer depend on its own arguments alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cfnade.kernels.layout import Array, padded
from cfnade.kernels.simd import LANES, address, fill, load, load_part, total


@njit(nogil=True)
def _dot(table: Any, at: int, row: Any, begin: int, width: int) -> Any:
    """Σ table[at+i]·row[begin+i], of pointers; the row is padded to whole vectors."""
    a = fill(table, 0.0)
    b, c, d = a, a, a
    i = 0
    while i + 4 * LANES <= width:  # four sums, so that no product waits for the one before
        a = a + load(table, at + i) * load(row, begin + i)
        b = b + load(table, at + i + LANES) * load(row, begin + i + LANES)
        c = c + load(table, at + i + 2 * LANES) * load(row, begin + i + 2 * LANES)
        d = d + load(table, at + i + 3 * LANES) * load(row, begin + i + 3 * LANES)
        i += 4 * LANES
    while i + LANES <= width:
        a = a + load(table, at + i) * load(row, begin + i)
        i += LANES
    if i < width:
        b = b + load_part(table, at + i, width - i) * load(row, begin + i)
    return total((a + b) + (c + d))


@njit(nogil=True, cache=True)
def _embed(columns: Any, levels: Any, table: Any, shared: bool, out: Any) -> None:
    """out[p] = what rating p adds to a sum; table (M, K, D), out (c, D)."""
    for p in range(len(columns)):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            for i in range(table.shape[2]):
                out[p, i] += table[columns[p], k, i]


@njit(nogil=True, cache=True)
def _sum(columns: Any, levels: Any, table: Any, shared: bool, out: Any) -> None:
    """out (D,) = the sum of what all ratings add."""
    for p in range(len(columns)):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            for i in range(table.shape[2]):
                out[i] += table[columns[p], k, i]


@njit(nogil=True, cache=True)
def _affine(rows: Any, pitch: int, weights: Any, inner: int, bias: Any, out: Any) -> None:
    """out[b, o] = bias[o] + Σ weights[o, i]·rows[b, i], flat rows and weights."""
    count, outer = out.shape
    x, w = address(rows), address(weights)
    for o in range(outer):  # a row of weights stays in the nearest cache for all rows
        for b in range(count):
            out[b, o] = bias[o] + _dot(w, o * inner, x, b * pitch, inner)


@njit(nogil=True, cache=True)
def _score_cells(
    states: Any, pitch: int, which: Any, columns: Any, table: Any, bias: Any, shared: bool, out: Any
) -> None:
    """out[t, k] = the score of column columns[t]'s level k for state which[t]."""
    K = out.shape[1]
    width = len(table) // bias.size
    vectors, rows = address(table), address(states)
    for t in range(len(columns)):
        score = out.dtype.type(0.0)
        for k in range(K):
            at = (columns[t] * K + k) * width
            own = _dot(vectors, at, rows, which[t] * pitch, width) + bias[columns[t], k]
            score = score + own if shared else own
            out[t, k] = score


@njit(nogil=True, cache=True)
def _score_all(state: Any, table: Any, bias: Any, shared: bool, out: Any) -> None:
    """out[m, k] = the score of column m's level k."""
    M, K = out.shape
    width = len(table) // bias.size
    vectors, row = address(table), address(state)
    for m in range(M):
        score = out.dtype.type(0.0)
        for k in range(K):
            own = _dot(vectors, (m * K + k) * width, row, 0, width) + bias[m, k]
            score = score + own if shared else own
            out[m, k] = score


# -- for arrays: C-contiguous, of one dtype, indices inside (the caller's part) --------------------
# Indices are copied: one integer type, and writable, makes one compiled version of each kernel.


def sum_ratings(columns: Array, levels: Array, table: Array, *, shared: bool) -> Array:
    """The summed embeddings of a row's ratings, table (M, K, D). Returns (D,)."""
    out = np.zeros(table.shape[2], table.dtype)
    _sum(np.array(columns, np.int64), np.array(levels, np.int64), table, shared, out)
    return out


def embed(columns: Array, levels: Array, table: Array, *, shared: bool) -> Array:
    """What each rating adds to that sum. Returns (c, D)."""
    out = np.zeros((len(columns), table.shape[2]), table.dtype)
    _embed(np.array(columns, np.int64), np.array(levels, np.int64), table, shared, out)
    return out


def affine(rows: Array, weights: Array, bias: Array) -> Array:
    """bias + rows @ weights.T, for rows (B, I) and weights (O, I). Returns (B, O)."""
    out = np.empty((len(rows), len(weights)), weights.dtype)
    whole = _whole(rows)
    _affine(whole.reshape(-1), whole.shape[1], weights.reshape(-1), rows.shape[1], bias, out)
    return out


def score_cells(
    states: Array, which: Array, columns: Array, table: Array, bias: Array, *, shared: bool
) -> Array:
    """Scores of given columns, each for one of the states (B, D). Returns (n, K)."""
    out = np.empty((len(columns), table.shape[1]), table.dtype)
    whole, flat = _whole(states), table.reshape(-1)
    cells = np.array(which, np.int64), np.array(columns, np.int64)
    _score_cells(whole.reshape(-1), whole.shape[1], *cells, flat, bias, shared, out)
    return out


def score_all(state: Array, table: Array, bias: Array, *, shared: bool) -> Array:
    """Scores of every column for one state (D,). Returns (M, K)."""
    out = np.empty(table.shape[:2], table.dtype)
    whole = _whole(state[None])
    _score_all(whole.reshape(-1), table.reshape(-1), bias, shared, out)
    return out


def _whole(rows: Array) -> Array:
    """The rows with zeros up to whole vectors. Returns (B, ≥ D)."""
    out = np.zeros((len(rows), padded(rows.shape[1])), rows.dtype)
    out[:, : rows.shape[1]] = rows
    return out
