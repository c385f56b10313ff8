"""A network's two sparse hot spots, in plain torch: any device, any float type, differentiable.

Both work on a (M, K, D) table whose K × D block of a column is contiguous. D is the hidden size, or
the number of factors. Nothing of size rows × columns × levels is ever built, and a gather of
targets × levels × D is done in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cfnade.models.batch import Context

PIECE = 1 << 22
"""How many numbers a temporary array may hold: 16 MB in float32."""


def context_sum(table: Tensor, context: Context, *, shared: bool) -> Tensor:
    """Sum what each row's context says. Returns (B, D); a row without context gets zeros.

    A rating of column m at level k adds table[m, k] (the sum in Eq. 2), or if shared
    table[m, 0] + ... + table[m, k] (Eq. 9).
    """
    K, D = table.shape[1:]
    columns, levels = context.columns.long(), context.levels.long()
    if shared:
        # Summing over levels once per column met replaces a sum per rating.
        met, columns = torch.unique(columns, return_inverse=True)
        table = table[met].cumsum(1)  # (columns met, K, D)
    return functional.embedding_bag(
        columns * K + levels,  # (C,)
        table.reshape(-1, D),
        context.offsets.long(),
        mode="sum",
        include_last_offset=True,
    )


def cell_scores(
    state: Tensor, table: Tensor, bias: Tensor, rows: Tensor, columns: Tensor, *, shared: bool
) -> Tensor:
    """Scores of every level for the given cells, before the softmax. Returns (T, K).

    Level k of cell t scores bias[m, k] + table[m, k] · state[r] (Eq. 4), or if shared the sum of
    that over all levels up to k (Eq. 10). state (B, D), table (M, K, D), bias (M, K).
    """
    rows, columns = rows.long(), columns.long()
    products: Tensor = _CellProducts.apply(state, table, rows, columns)  # type: ignore[no-untyped-call]
    scores = products + bias[columns]  # (T, K)
    return scores.cumsum(1) if shared else scores


class _CellProducts(torch.autograd.Function):
    """table[columns] · state[rows], (T, K), gathering the table again in the backward pass.

    Left to autograd, the gather (T, K, D) would be kept until then: gigabytes for one batch.
    """

    @staticmethod
    def forward(ctx: Any, state: Tensor, table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(state, table, rows, columns)
        products = state.new_empty(rows.numel(), table.shape[1])
        for piece in _pieces(rows, table):
            vectors = table[columns[piece]]  # (t, K, D)
            products[piece] = (vectors @ state[rows[piece]].unsqueeze(2)).squeeze(2)
        return products

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        state, table, rows, columns = ctx.saved_tensors
        d_state = torch.zeros_like(state) if ctx.needs_input_grad[0] else None
        d_table = torch.zeros_like(table) if ctx.needs_input_grad[1] else None
        for piece in _pieces(rows, table):
            m, r, g = columns[piece], rows[piece], grad[piece].unsqueeze(2)  # g (t, K, 1)
            if d_state is not None:
                d_state.index_add_(0, r, (g * table[m]).sum(1))
            if d_table is not None:
                d_table.index_add_(0, m, g * state[r].unsqueeze(1))
        return d_state, d_table, None, None


def _pieces(rows: Tensor, table: Tensor) -> Iterator[slice]:
    step = max(1, PIECE // (table.shape[1] * table.shape[2]))
    return (slice(first, first + step) for first in range(0, rows.numel(), step))
