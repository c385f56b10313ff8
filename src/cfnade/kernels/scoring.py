"""Inference: context sums and scores of cells, of one row, and of many rows.

The functions of one row are serial compiled loops that release the GIL and use no torch. They share
nothing between calls, so any number of threads may call them at once, and the bits of an answer
depend on its own arguments alone.
"""

from __future__ import annotations

import numpy as np

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import (
    Array,
    RowBuffers,
    aligned_zeros,
    pad_width,
    require_array,
    require_table,
    unpadded,
)
from cfnade.kernels.column_groups import (
    ColumnGroups,
    RowRatings,
    group_by_column,
    partition_columns,
)
from cfnade.kernels.column_passes import OutputLayer, add_scores, sum_context
from cfnade.kernels.jit import inlined, kernel
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    horizontal_sum,
    load,
    load_masked,
    offset,
)
from cfnade.kernels.threads import run_parallel, thread_count

COLUMN_COST = 4.0
"""What a column costs beside its ratings, counted in ratings."""


def context_sum(
    table: Array, context: ColumnGroups, *, shared: bool, threads: int | None = None
) -> Array:
    """Sum of each row's context: table[m, k], or the levels up to k if shared. Returns (B, D)."""
    M = require_table("table", table)[0]
    if context.n_columns != M:
        raise ModelError(
            f"the ratings are grouped for {context.n_columns} columns; the table has {M}"
        )
    memory = RowBuffers(table, thread_count(threads))
    memory.reserve(context.n_rows)
    fixed = (context.present, context.arrays, memory.flat, memory.layout, shared)
    cuts = _column_ranges(context, memory.threads)
    run_parallel(
        sum_context, [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts]
    )
    return np.ascontiguousarray(memory.merge(0, context.n_rows))


def cell_scores(
    state: Array,
    table: Array,
    bias: Array,
    rows: Array,
    columns: Array,
    *,
    shared: bool,
    threads: int | None = None,
) -> Array:
    """Scores of every level of the given cells, cumulated over levels if shared. Returns (T, K)."""
    M, K, D = require_table("table", table)
    require_array("bias", bias, (M, K), table.dtype)
    require_array("state", state, (None, D), table.dtype)
    levels = np.zeros(len(columns), np.uint8)
    cells = group_by_column(rows, columns, levels, n_rows=len(state), n_columns=M, n_levels=K)
    memory = RowBuffers(table, thread_count(threads))
    states = aligned_zeros(memory.flat.dtype, len(state) * memory.layout.row_stride)
    unpadded(states, memory.layout)[:] = state
    out = np.zeros((len(rows), K), table.dtype)
    output = OutputLayer(states, memory.flat, bias.reshape(-1), memory.layout, shared)
    fixed = (cells.present, cells.arrays, cells.order, output, out.reshape(-1))
    cuts = _column_ranges(cells, memory.threads)
    run_parallel(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])
    return out


def _column_ranges(grouped: ColumnGroups, threads: int) -> list[tuple[int, tuple[int, int]]]:
    """Each thread's range of the touched columns."""
    return list(enumerate(partition_columns(grouped.present, grouped.starts, COLUMN_COST, threads)))


@inlined
def _dot(table, first, row, begin, width):
    """Σ table[first+i]·row[begin+i], of pointers; the row is one that `_whole` made."""
    a = broadcast(table, 0.0)
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
        b = b + load_masked(table, first, width) * load(row, begin)
    return horizontal_sum((a + b) + (c + d))


@kernel
def _add_ratings(columns, levels, which, table, K, D, shared, out):
    """out[which[p]] += what rating p adds to a sum; table (M·K·D,), out (n·D,)."""
    n, vectors, sums = len(columns), data_pointer(table), data_pointer(out)
    columns, levels, which = data_pointer(columns), data_pointer(levels), data_pointer(which)
    for p in range(n):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            vector, to = (columns[p] * K + k) * D, which[p] * D
            for i in range(D):
                sums[to + i] += vectors[vector + i]


@kernel
def _affine(rows, pitch, weights, width, bias, out):
    """out[b, o] = bias[o] + Σ weights[o, i]·rows[b, i], all flat."""
    count, outer = len(out) // len(bias), len(bias)
    x = data_pointer(rows)
    w = data_pointer(weights)
    first = data_pointer(bias)
    to = data_pointer(out)
    for o in range(outer):  # a row of weights stays in the nearest cache for all rows
        for b in range(count):
            to[b * outer + o] = first[o] + _dot(w, o * width, x, b * pitch, width)


@inlined
def _score_levels(rows, begin, table, bias, column, K, D, shared, out, step):
    """out[k·step] = the score of the column's level k for the row from `begin` on, of pointers."""
    for k in range(K):
        level = column * K + k
        own = _dot(table, level * D, rows, begin, D) + bias[level]
        out[k * step] = own + out[(k - 1) * step] if shared and k > 0 else own


@kernel
def _score_cells(states, pitch, which, columns, table, bias, K, shared, out):
    """out[t·K + k] = the score of column columns[t]'s level k for state which[t]."""
    n = len(columns)
    D = len(table) // len(bias)
    scores = data_pointer(out)
    rows = data_pointer(states)
    which = data_pointer(which)
    columns = data_pointer(columns)
    vectors = data_pointer(table)
    biases = data_pointer(bias)
    for t in range(n):
        to = offset(scores, t * K)
        _score_levels(rows, which[t] * pitch, vectors, biases, columns[t], K, D, shared, to, 1)


@kernel
def _score_all(state, table, bias, K, shared, out):
    """out[k·M + m] = the score of column m's level k: one state, which may stay in registers."""
    n = len(bias) // K
    D = len(table) // len(bias)
    row = data_pointer(state)
    scores = data_pointer(out)
    vectors, biases = data_pointer(table), data_pointer(bias)
    for m in range(n):
        _score_levels(row, 0, vectors, biases, m, K, D, shared, offset(scores, m), n)


# -- for arrays: C-contiguous, of one dtype, indices inside (the caller's part) --------------------
# Indices are copied: one integer type, and writable, makes one compiled version of each kernel.


def sum_ratings(ratings: RowRatings, table: Array, *, shared: bool) -> Array:
    """The summed embeddings of each row's ratings, table (M, K, D). Returns (B, D)."""
    which, size = ratings.rows.astype(np.int64), len(ratings.offsets) - 1
    return _sum_embeddings(ratings.columns, ratings.levels, which, table, shared, size)


def embed(columns: Array, levels: Array, table: Array, *, shared: bool) -> Array:
    """What each rating adds to that sum. Returns (c, D)."""
    return _sum_embeddings(columns, levels, np.arange(len(columns)), table, shared, len(columns))


def _sum_embeddings(
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
    whole = _pad_rows(rows)
    fixed = (whole.reshape(-1), whole.shape[1], weights.reshape(-1), rows.shape[1], bias)
    _affine(*fixed, out.reshape(-1))
    return out


def score_cells(
    states: Array, which: Array, columns: Array, table: Array, bias: Array, *, shared: bool
) -> Array:
    """Scores of given columns, each for one of the states (B, D). Returns (n, K)."""
    if len(which) < len(states):
        states, which = states[which], np.arange(len(which))
    K, whole = table.shape[1], _pad_rows(states)
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
    whole = _pad_rows(state[None])
    fixed = (whole.reshape(-1), table.reshape(-1), bias.reshape(-1), table.shape[1])
    _score_all(*fixed, shared, out.reshape(-1))
    return out


def _pad_rows(rows: Array) -> Array:
    """The rows in whole vectors: what is over ends the last one, after zeros. Returns (B, ≥ D).

    It then meets the last numbers of a line of a table, of which no part need be cut off. Only
    a row of less than one vector begins with its own.
    """
    D = rows.shape[1]
    out, even = np.empty((len(rows), pad_width(D)), rows.dtype), D - D % LANES
    end = out.shape[1] if even else D
    out[:, even:] = 0
    out[:, :even] = rows[:, :even]
    out[:, end - (D - even) : end] = rows[:, even:]
    return out


def product(rows: Array, others: Array) -> Array:
    """rows @ others.T, for (B, D) and (M, D). Returns (B, M)."""
    import torch

    return np.asarray((torch.from_numpy(rows) @ torch.from_numpy(others).T).numpy())


def add_product(total: Array, rows: Array, others: Array, share: float) -> None:
    """total += share · rows @ others.T, for (B, M), (B, D) and (M, D)."""
    import torch

    torch.from_numpy(total).addmm_(torch.from_numpy(rows), torch.from_numpy(others).T, alpha=share)


def level_products(states: Array, table: Array, bias: Array, *, shared: bool) -> Array:
    """Scores of every column for each state (B, S), level by level. Returns (B, K, M)."""
    import torch

    weights, first = torch.from_numpy(table), torch.from_numpy(bias)
    M, K = first.shape
    state, out = torch.from_numpy(states), first.new_empty(len(states), K, M)
    for k in range(K):
        torch.addmm(first[:, k], state, weights[:, k].T, out=out[:, k])
        if shared and k:
            out[:, k] += out[:, k - 1]
    return np.asarray(out.numpy())
