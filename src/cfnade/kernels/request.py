"""One row at a time, for a request: serial compiled loops that release the GIL and use no torch.

Nothing here is shared between calls, so any number of threads may call at once; the bits of an
answer depend on its own arguments alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import glue, kernel
from cfnade.kernels.grouping import RowRatings
from cfnade.kernels.memory import Array, padded
from cfnade.kernels.simd import LANES, address, beyond, fill, load, load_part, total


@glue
def _dot(table: Any, first: int, row: Any, begin: int, width: int) -> Any:
    """Σ table[first+i]·row[begin+i], of pointers; the row is one that `_whole` made."""
    a = fill(table, 0.0)
    b, c, d = a, a, a
    i = 0
    while i + 4 * LANES <= width:  # four sums, so that no product waits for the one before
        a = a + load(table, first + i) * load(row, begin + i)
        b = b + load(table, first + i + LANES) * load(row, begin + i + LANES)
        c = c + load(table, first + i + 2 * LANES) * load(row, begin + i + 2 * LANES)
        d = d + load(table, first + i + 3 * LANES) * load(row, begin + i + 3 * LANES)
        i += 4 * LANES
    while i + LANES <= width:
        a = a + load(table, first + i) * load(row, begin + i)
        i += LANES
    if i < width and width >= LANES:  # once more to the end: where the row was met, it has zeros
        b = b + load(table, first + width - LANES) * load(row, begin + i)
    elif i < width:
        b = b + load_part(table, first, width) * load(row, begin)
    return total((a + b) + (c + d))


@kernel
def _add_ratings(
    columns: Any, levels: Any, which: Any, table: Any, K: int, D: int, shared: bool, out: Any
) -> None:
    """out[which[p]] += what rating p adds to a sum; table (M·K·D,), out (n·D,)."""
    n, vectors, sums = len(columns), address(table), address(out)
    columns, levels, which = address(columns), address(levels), address(which)
    for p in range(n):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            vector, to = (columns[p] * K + k) * D, which[p] * D
            for i in range(D):
                sums[to + i] += vectors[vector + i]


@kernel
def _affine(rows: Any, pitch: int, weights: Any, width: int, bias: Any, out: Any) -> None:
    """out[b, o] = bias[o] + Σ weights[o, i]·rows[b, i], all flat."""
    count, outer = len(out) // len(bias), len(bias)
    x, w, first, to = address(rows), address(weights), address(bias), address(out)
    for o in range(outer):  # a row of weights stays in the nearest cache for all rows
        for b in range(count):
            to[b * outer + o] = first[o] + _dot(w, o * width, x, b * pitch, width)


@glue
def _score_levels(
    rows: Any,
    begin: int,
    table: Any,
    bias: Any,
    column: int,
    K: int,
    D: int,
    shared: bool,
    out: Any,
    step: int,
) -> None:
    """out[k·step] = the score of the column's level k for the row from `begin` on, of pointers."""
    for k in range(K):
        level = column * K + k
        own = _dot(table, level * D, rows, begin, D) + bias[level]
        out[k * step] = own + out[(k - 1) * step] if shared and k > 0 else own


@kernel
def _score_cells(
    states: Any,
    pitch: int,
    which: Any,
    columns: Any,
    table: Any,
    bias: Any,
    K: int,
    shared: bool,
    out: Any,
) -> None:
    """out[t·K + k] = the score of column columns[t]'s level k for state which[t]."""
    n, D, scores, rows = len(columns), len(table) // len(bias), address(out), address(states)
    which, columns, vectors, biases = (
        address(which),
        address(columns),
        address(table),
        address(bias),
    )
    for t in range(n):
        to = beyond(scores, t * K)
        _score_levels(rows, which[t] * pitch, vectors, biases, columns[t], K, D, shared, to, 1)


@kernel
def _score_all(state: Any, table: Any, bias: Any, K: int, shared: bool, out: Any) -> None:
    """out[k·M + m] = the score of column m's level k: one state, which may stay in registers."""
    n, D, row, scores = len(bias) // K, len(table) // len(bias), address(state), address(out)
    vectors, biases = address(table), address(bias)
    for m in range(n):
        _score_levels(row, 0, vectors, biases, m, K, D, shared, beyond(scores, m), n)


# -- for arrays: C-contiguous, of one dtype, indices inside (the caller's part) --------------------
# Indices are copied: one integer type, and writable, makes one compiled version of each kernel.


def sum_ratings(ratings: RowRatings, table: Array, *, shared: bool) -> Array:
    """The summed embeddings of each row's ratings, table (M, K, D). Returns (B, D)."""
    which, size = ratings.rows.astype(np.int64), len(ratings.offsets) - 1
    return _added(ratings.columns, ratings.levels, which, table, shared, size)


def embed(columns: Array, levels: Array, table: Array, *, shared: bool) -> Array:
    """What each rating adds to that sum. Returns (c, D)."""
    return _added(columns, levels, np.arange(len(columns)), table, shared, len(columns))


def _added(
    columns: Array, levels: Array, which: Array, table: Array, shared: bool, size: int
) -> Array:
    _, K, D = table.shape
    out = np.zeros((size, D), table.dtype)
    ratings = np.array(columns, np.int64), np.array(levels, np.int64), which
    _add_ratings(*ratings, table.reshape(-1), K, D, shared, out.reshape(-1))
    return out


def affine(rows: Array, weights: Array, bias: Array) -> Array:
    """bias + rows @ weights.T, for rows (B, I) and weights (O, I). Returns (B, O)."""
    out = np.empty((len(rows), len(weights)), weights.dtype)
    whole = _whole(rows)
    fixed = (whole.reshape(-1), whole.shape[1], weights.reshape(-1), rows.shape[1], bias)
    _affine(*fixed, out.reshape(-1))
    return out


def score_cells(
    states: Array, which: Array, columns: Array, table: Array, bias: Array, *, shared: bool
) -> Array:
    """Scores of given columns, each for one of the states (B, D). Returns (n, K)."""
    K, whole = table.shape[1], _whole(states)
    out = np.empty((len(columns), K), table.dtype)
    cells = np.array(which, np.int64), np.array(columns, np.int64)
    fixed = (whole.reshape(-1), whole.shape[1], *cells, table.reshape(-1), bias.reshape(-1))
    _score_cells(*fixed, K, shared, out.reshape(-1))
    return out


def score_all(
    state: Array, table: Array, bias: Array, *, shared: bool, out: Array | None = None
) -> Array:
    """Scores of every column for one state (D,), levels before columns as in lists: (K, M)."""
    out = np.empty(table.shape[1::-1], table.dtype) if out is None else out
    whole = _whole(state[None])
    fixed = (whole.reshape(-1), table.reshape(-1), bias.reshape(-1), table.shape[1])
    _score_all(*fixed, shared, out.reshape(-1))
    return out


def _whole(rows: Array) -> Array:
    """The rows in whole vectors: what is over ends the last one, after zeros. Returns (B, ≥ D).

    It then meets the last numbers of a line of a table, of which no part need be cut off. Only
    a row of less than one vector begins with its own.
    """
    D = rows.shape[1]
    out, even = np.zeros((len(rows), padded(D)), rows.dtype), D - D % LANES
    out[:, :even] = rows[:, :even]
    end = out.shape[1] if even else D
    out[:, end - (D - even) : end] = rows[:, even:]
    return out
