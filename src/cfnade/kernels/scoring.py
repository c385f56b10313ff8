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
"""Cost of a column besides its ratings, in ratings."""


def context_sum(
    table: Array, context: ColumnGroups, *, shared: bool, threads: int | None = None
) -> Array:
    """Return the sum of each row's context, (B, D): table[m, k], up to level k if shared."""
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
    """Return the scores of all levels of cells, (T, K), cumulated over levels if shared."""
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
    """Σ table[first+i]·row[begin+i], of pointers; the row is one of `_pad_rows`."""
    a = broadcast(table, 0.0)
    b, c, d = a, a, a
    i = 0
    while i + 4 * LANES <= width:  # four sums: no product waits for the one before
        a = a + load(table, first + i) * load(row, begin + i)
        b = b + load(table, first + i + LANES) * load(row, begin + i + LANES)
        c = c + load(table, first + i + 2 * LANES) * load(row, begin + i + 2 * LANES)
        d = d + load(table, first + i + 3 * LANES) * load(row, begin + i + 3 * LANES)
        i += 4 * LANES
    while i + LANES <= width:
        a = a + load(table, first + i) * load(row, begin + i)
        i += LANES
    if i < width and width >= LANES:  # overlaps: the row has zeros where it was counted before
        b = b + load(table, first + width - LANES) * load(row, begin + i)
    elif i < width:
        b = b + load_masked(table, first, width) * load(row, begin)
    return horizontal_sum((a + b) + (c + d))


@kernel
def _add_ratings(columns, levels, row_of, table, K, D, shared, out):
    """out[row_of[p]] += the embedding of rating p; table (M·K·D,), out (n·D,)."""
    n, vectors, sums = len(columns), data_pointer(table), data_pointer(out)
    columns, levels, row_of = data_pointer(columns), data_pointer(levels), data_pointer(row_of)
    for p in range(n):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            vector, to = (columns[p] * K + k) * D, row_of[p] * D
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
        score = _dot(table, level * D, rows, begin, D) + bias[level]
        out[k * step] = score + out[(k - 1) * step] if shared and k > 0 else score


@kernel
def _score_cells(states, pitch, row_of, columns, table, bias, K, shared, out):
    """out[t·K + k] = the score of column columns[t]'s level k for state row_of[t]."""
    n = len(columns)
    D = len(table) // len(bias)
    scores = data_pointer(out)
    rows = data_pointer(states)
    row_of = data_pointer(row_of)
    columns = data_pointer(columns)
    vectors = data_pointer(table)
    biases = data_pointer(bias)
    for t in range(n):
        to = offset(scores, t * K)
        _score_levels(rows, row_of[t] * pitch, vectors, biases, columns[t], K, D, shared, to, 1)


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
    """Return the summed embeddings of each row's ratings, (B, D), for a table (M, K, D)."""
    row_of, size = ratings.rows.astype(np.int64), len(ratings.offsets) - 1
    return _sum_embeddings(ratings.columns, ratings.levels, row_of, table, shared, size)


def embed(columns: Array, levels: Array, table: Array, *, shared: bool) -> Array:
    """Return the embedding of each rating, (n, D)."""
    return _sum_embeddings(columns, levels, np.arange(len(columns)), table, shared, len(columns))


def _sum_embeddings(
    columns: Array, levels: Array, row_of: Array, table: Array, shared: bool, size: int
) -> Array:
    _, K, D = table.shape
    out = np.zeros((size, D), table.dtype)
    ratings = np.array(columns, np.int64), np.array(levels, np.int64), row_of
    _add_ratings(*ratings, table.reshape(-1), K, D, shared, out.reshape(-1))
    return out


def affine(rows: Array, weights: Array, bias: Array) -> Array:
    """Return bias + rows @ weights.T, (B, O), for rows (B, I) and weights (O, I)."""
    out = np.empty((len(rows), len(weights)), weights.dtype)
    padded = _pad_rows(rows)
    fixed = (padded.reshape(-1), padded.shape[1], weights.reshape(-1), rows.shape[1], bias)
    _affine(*fixed, out.reshape(-1))
    return out


def score_cells(
    states: Array, row_of: Array, columns: Array, table: Array, bias: Array, *, shared: bool
) -> Array:
    """Return scores of given columns (n, K), each for one of the states (B, D)."""
    if len(row_of) < len(states):
        states, row_of = states[row_of], np.arange(len(row_of))
    K, padded = table.shape[1], _pad_rows(states)
    out = np.empty((len(columns), K), table.dtype)
    cells = np.array(row_of, np.int64), np.array(columns, np.int64)
    fixed = (padded.reshape(-1), padded.shape[1], *cells, table.reshape(-1), bias.reshape(-1))
    _score_cells(*fixed, K, shared, out.reshape(-1))
    return out


def score_all(
    state: Array, table: Array, bias: Array, *, shared: bool, out: Array | None = None
) -> Array:
    """Return the scores of every column for one state (D,), levels before columns: (K, M)."""
    out = np.empty(table.shape[1::-1], table.dtype) if out is None else out
    padded = _pad_rows(state[None])
    fixed = (padded.reshape(-1), table.reshape(-1), bias.reshape(-1), table.shape[1])
    _score_all(*fixed, shared, out.reshape(-1))
    return out


def _pad_rows(rows: Array) -> Array:
    """Return the rows padded to whole vectors, (B, ≥ D): zeros come before the last numbers.

    The last vector then overlaps the one before, as it does in a row of a table, which needs no
    mask. Rows shorter than a vector have their zeros at the end.
    """
    D = rows.shape[1]
    out, even = np.empty((len(rows), pad_width(D)), rows.dtype), D - D % LANES
    end = out.shape[1] if even else D
    out[:, even:] = 0
    out[:, :even] = rows[:, :even]
    out[:, end - (D - even) : end] = rows[:, even:]
    return out


def product(rows: Array, table: Array) -> Array:
    """Return rows @ table.T, (B, M), for (B, D) and (M, D)."""
    import torch

    return np.asarray((torch.from_numpy(rows) @ torch.from_numpy(table).T).numpy())


def level_products(states: Array, table: Array, bias: Array, *, shared: bool) -> Array:
    """Return the scores of every column for each state (B, S), level by level: (B, K, M)."""
    import torch

    weights, first = torch.from_numpy(table), torch.from_numpy(bias)
    M, K = first.shape
    state, out = torch.from_numpy(states), first.new_empty(len(states), K, M)
    for k in range(K):
        torch.addmm(first[:, k], state, weights[:, k].T, out=out[:, k])
        if shared and k:
            out[:, k] += out[:, k - 1]
    return np.asarray(out.numpy())
