"""Predictions: given cells, and every column for one row (top-N). All release the GIL."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels.autograd import cell_scores
from cfnade.kernels.checks import require_table, require_tensor
from cfnade.kernels.grouping import require_inside
from cfnade.kernels.layout import Array, Shape, buffer, shape_of
from cfnade.kernels.simd import LANES, fill, load, load_part, maximum, store, store_part, total
from cfnade.kernels.simd_math import exp
from cfnade.kernels.targets import Output
from cfnade.kernels.threads import run, thread_count


@njit(nogil=True)
def _column_scores(first: int, count: int, output: Any, scores: Any) -> None:
    """scores[16·k + t] of columns first..first+count for one row."""
    K, width = output.shape.levels, output.shape.width
    for t in range(count):
        for k in range(K):
            row = (first + t) * K + k
            product = fill(scores, 0.0)
            for i in range(0, width, LANES):
                weights = load_part(output.table, row * width + i, width - i)
                product = product + load(output.states, i) * weights
            scores[LANES * k + t] = total(product) + output.bias[row]
    if output.shared:
        for k in range(1, K):
            value = load(scores, LANES * k) + load(scores, LANES * (k - 1))
            store(scores, LANES * k, value)


@njit(nogil=True)
def _expect(scores: Any, K: int, values: Any) -> Any:
    """Expected value of 16 distributions given by their scores."""
    high = load(scores, 0)
    for k in range(1, K):
        high = maximum(high, load(scores, LANES * k))
    mass, mean = fill(scores, 0.0), fill(scores, 0.0)
    for k in range(K):
        weight = exp(load(scores, LANES * k) - high)
        mass = mass + weight
        mean = mean + weight * fill(scores, values[k])
    return mean / mass


@njit(nogil=True, cache=True)
def _expect_columns(lo: int, hi: int, output: Any, values: Any, scores: Any, out: Any) -> None:
    """out[c] = the expected value of column c for one row, c in lo..hi.

    Traffic: table and bias of the columns read once.
    """
    for first in range(lo, hi, LANES):
        count = min(LANES, hi - first)
        _column_scores(first, count, output, scores)
        store_part(out, first, _expect(scores, output.shape.levels, values), count)


@njit(nogil=True, cache=True)
def _score_columns(lo: int, hi: int, output: Any, scores: Any, out: Any) -> None:
    """out[c·K + k] = the score of column c's level k for one row, c in lo..hi. Traffic as above."""
    K = output.shape.levels
    for first in range(lo, hi, LANES):
        count = min(LANES, hi - first)
        _column_scores(first, count, output, scores)
        for t in range(count):
            for k in range(K):
                out[(first + t) * K + k] = scores[LANES * k + t]


@njit(nogil=True, cache=True)
def _sum_row(columns: Any, levels: Any, table: Any, shape: Any, shared: bool, out: Any) -> None:
    """out = one row's summed context. Traffic: each rating's vectors read once; one thread."""
    for p in range(len(columns)):
        for k in range(0 if shared else levels[p], levels[p] + 1):
            at = (columns[p] * shape.levels + k) * shape.width
            for i in range(0, shape.width, LANES):
                value = load(out, i) + load_part(table, at + i, shape.width - i)
                store(out, i, value)


def probabilities(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """The distribution over levels of the given cells. Returns (T, K)."""
    with torch.no_grad():
        scores = cell_scores(state, table, bias, rows, columns, shared=shared, threads=threads)
        return scores.softmax(1)


def expected_values(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """The expected value of the given cells; values (K,) says what a level is worth. (T,)."""
    chances = probabilities(state, table, bias, rows, columns, shared=shared, threads=threads)
    require_tensor("values", values, (chances.shape[1],), values.dtype)
    return chances @ values.to(chances.dtype)


def expect_all(
    state: Tensor, table: Tensor, bias: Tensor, values: Tensor, *, shared: bool, threads: int = 1
) -> Tensor:
    """The expected value of every column for one row, state (D,). Returns (M,)."""
    output = _row_output(state, table, bias, shared)
    require_tensor("values", values, (output.shape.levels,), values.dtype)
    worth = values.detach().to(table.dtype).contiguous().numpy()
    out = buffer(output.table.dtype, len(table))
    ranges = _column_ranges(len(table), thread_count(threads))
    run(_expect_columns, [(*cut, output, worth, _tile(output), out) for cut in ranges])
    return torch.from_numpy(out)


def score_all(
    state: Tensor, table: Tensor, bias: Tensor, *, shared: bool, threads: int = 1
) -> Tensor:
    """The scores of every column for one row, state (D,). Returns (M, K)."""
    output = _row_output(state, table, bias, shared)
    out = buffer(output.table.dtype, len(table) * output.shape.levels)
    ranges = _column_ranges(len(table), thread_count(threads))
    run(_score_columns, [(*cut, output, _tile(output), out) for cut in ranges])
    return torch.from_numpy(out).view(len(table), -1)


def sum_row(table: Tensor, columns: Array, levels: Array, *, shared: bool) -> Tensor:
    """The summed context of one row, without grouping: for a single request. Returns (D,)."""
    M, K, D = require_table("table", table)
    if columns.ndim != 1 or columns.shape != levels.shape:
        raise ModelError(
            f"columns have shape {columns.shape} and levels {levels.shape}; both must be "
            f"one-dimensional and of one length"
        )
    require_inside("columns", columns, M, "columns")
    require_inside("levels", levels, K, "levels")
    shape: Shape = shape_of(K, D)
    flat = table.detach().view(-1).numpy()
    out = buffer(flat.dtype, shape.whole)
    _sum_row(columns.astype(np.int32), levels.astype(np.uint8), flat, shape, shared, out)
    return torch.from_numpy(out)[:D]


def _row_output(state: Tensor, table: Tensor, bias: Tensor, shared: bool) -> Output:
    M, K, D = require_table("table", table)
    require_tensor("bias", bias, (M, K), table.dtype)
    require_tensor("state", state, (D,), table.dtype)
    shape = shape_of(K, D)
    flat = table.detach().view(-1).numpy()
    row = buffer(flat.dtype, shape.whole)
    row[:D] = state.detach().numpy()
    return Output(row, flat, bias.detach().contiguous().view(-1).numpy(), shape, shared)


def _tile(output: Output) -> Array:
    return buffer(output.table.dtype, LANES * output.shape.levels)


def _column_ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of whole tiles."""
    tiles = -(-count // LANES)
    return list(pairwise([min(count, tiles * t // parts * LANES) for t in range(parts + 1)]))
