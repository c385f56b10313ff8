"""The kernels as differentiable torch functions, with the signatures of the plain torch ones.

Ratings may come in any order (they are grouped here) or already grouped. The gradient of a table is
dense: the touched columns' blocks are written, the others are zero.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels import targets as kernels
from cfnade.kernels.checks import require_table, require_tensor
from cfnade.kernels.context import context_gradient, sum_context
from cfnade.kernels.grouping import Grouped, partition
from cfnade.kernels.inputs import Ragged, group_cells, group_context
from cfnade.kernels.layout import Array
from cfnade.kernels.rows import merge
from cfnade.kernels.side import Side, unpad
from cfnade.kernels.threads import run, thread_count


def context_sum(
    table: Tensor, context: Ragged | Grouped, *, shared: bool, threads: int | None = None
) -> Tensor:
    """Sum of each row's context: table[m, k], or the levels up to k if shared. Returns (B, D)."""
    M, K, _ = require_table("table", table)
    grouped = context if isinstance(context, Grouped) else group_context(context, M, K)
    _require_columns(grouped, M)
    return _apply(_ContextSum, table, grouped, shared, thread_count(threads))


def cell_scores(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """Scores of every level of the given cells, cumulated over levels if shared. Returns (T, K)."""
    M, K = _check_output(state, table, bias)
    cells = group_cells(rows, columns, size=len(state), n_columns=M, n_levels=K)
    return _apply(_CellScores, state, table, bias, cells, shared, thread_count(threads))


def target_cost(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    levels: Tensor,
    weights: Tensor,
    *,
    shared: bool,
    ordinal_weight: float,
    threads: int | None = None,
) -> Tensor:
    """Σ weight·cost of the given cells; cost = (1-λ)·regular + λ·ordinal (Eq. 18). A scalar."""
    M, K = _check_output(state, table, bias)
    weighed = weights.detach().to(table.dtype)
    cells = group_cells(rows, columns, levels, weighed, size=len(state), n_columns=M, n_levels=K)
    return grouped_cost(
        state, table, bias, cells, shared=shared, ordinal_weight=ordinal_weight, threads=threads
    )


def grouped_cost(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    targets: Grouped,
    *,
    shared: bool,
    ordinal_weight: float,
    threads: int | None = None,
) -> Tensor:
    """As `target_cost`, for targets grouped already."""
    _check_output(state, table, bias)
    _require_columns(targets, len(table))
    require_tensor("state", state, (targets.size, table.shape[2]), table.dtype)
    if not 0.0 <= ordinal_weight <= 1.0:
        raise ModelError(f"ordinal_weight (={ordinal_weight}) must lie in 0..1")
    given = (targets, shared, float(ordinal_weight), thread_count(threads))
    return _apply(_TargetCost, state, table, bias, *given)


class _ContextSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, context: Grouped, shared: bool, threads: int) -> Tensor:
        ctx.save_for_backward(table)
        ctx.given = context, shared, threads
        side = _side(table, threads, context.size)
        fixed = (context.touched, context, side.flat, side.shape, shared)
        cuts = _cuts(context, threads)
        run(sum_context, [(*cut, *fixed, side.part(t), side.scratch[t]) for t, cut in cuts])
        return _merged(side)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (table,), (context, shared, threads) = ctx.saved_tensors, ctx.given
        side = _side(table, threads, context.size)
        d_table = torch.zeros_like(table)
        fixed = (context.touched, context, _pad(grad, side), side.shape, shared, _flat(d_table))
        cuts = _cuts(context, threads)
        run(context_gradient, [(*cut, *fixed, side.scratch[t]) for t, cut in cuts])
        return d_table, None, None, None


class _CellScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        table: Tensor,
        bias: Tensor,
        cells: Grouped,
        shared: bool,
        threads: int,
    ) -> Tensor:
        ctx.save_for_backward(state, table, bias)
        ctx.given = cells, shared, threads
        side = _side(table, threads, cells.size)
        out = table.new_zeros(len(cells.rows), table.shape[1])
        fixed = (cells.touched, cells, _output(state, bias, side, shared), _flat(out))
        cuts = _cuts(cells, threads)
        run(kernels.add_scores, [(*cut, *fixed, side.scratch[t]) for t, cut in cuts])
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (state, table, bias), (cells, shared, threads) = ctx.saved_tensors, ctx.given
        side = _side(table, threads, cells.size)
        d_table, d_bias = torch.zeros_like(table), torch.zeros_like(bias)
        fixed = (cells.touched, cells, _output(state, bias, side, shared), _flat(grad))
        out = (_flat(d_table), _flat(d_bias))
        parts = [
            (*cut, *fixed, side.part(t), *out, side.scratch[t]) for t, cut in _cuts(cells, threads)
        ]
        run(kernels.score_gradients, parts)
        return _merged(side), d_table, d_bias, None, None, None


class _TargetCost(torch.autograd.Function):
    """Cost and gradients come from one pass, so the forward pass keeps the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        table: Tensor,
        bias: Tensor,
        cells: Grouped,
        shared: bool,
        ordinal: float,
        threads: int,
    ) -> Tensor:
        side = _side(table, threads, cells.size)
        d_table, d_bias = torch.zeros_like(table), torch.zeros_like(bias)
        fixed = (cells.touched, cells, _output(state, bias, side, shared), ordinal)
        out = (_flat(d_table), _flat(d_bias))
        parts = [
            (*cut, *fixed, side.part(t), *out, side.scratch[t]) for t, cut in _cuts(cells, threads)
        ]
        costs = run(kernels.target_gradients, parts)
        ctx.save_for_backward(_merged(side), d_table, d_bias)
        return table.new_tensor(sum(costs))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_state, d_table, d_bias = ctx.saved_tensors
        return grad * d_state, grad * d_table, grad * d_bias, None, None, None, None


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def _flat(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().contiguous().view(-1).numpy())


def _side(table: Tensor, threads: int, rows: int) -> Side:
    side = Side(table, threads)
    side.reserve(rows)
    return side


def _output(state: Tensor, bias: Tensor, side: Side, shared: bool) -> kernels.Output:
    return kernels.Output(_pad(state, side), side.flat, _flat(bias), side.shape, shared)


def _pad(rows: Tensor, side: Side) -> Array:
    """A copy with the kernels' row layout. Returns (B · pitch,)."""
    out = np.asarray(rows.new_zeros(rows.shape[0] * side.shape.pitch).numpy())
    unpad(out, side.shape).copy_(rows.detach())
    return out


def _merged(side: Side) -> Tensor:
    """The sum of the threads' buffers. Returns (B, D)."""
    ones = np.ones(side.rows, side.flat.dtype)
    merge(0, side.rows, side.shape.pitch, side.joined, side.size, ones)
    return side.matrix().contiguous()


def _cuts(grouped: Grouped, threads: int) -> list[tuple[int, tuple[int, int]]]:
    """Each thread's range of the touched columns; a column costs about as much as four ratings."""
    bounds = partition(grouped.touched, grouped.starts, 4.0, threads).tolist()
    return list(enumerate(pairwise(bounds)))


def _check_output(state: Tensor, table: Tensor, bias: Tensor) -> tuple[int, int]:
    M, K, D = require_table("table", table)
    require_tensor("bias", bias, (M, K), table.dtype)
    require_tensor("state", state, (None, D), table.dtype)
    return M, K


def _require_columns(grouped: Grouped, n_columns: int) -> None:
    if grouped.n_columns != n_columns:
        raise ModelError(
            f"the ratings are grouped for {grouped.n_columns} columns; the table has {n_columns}"
        )
