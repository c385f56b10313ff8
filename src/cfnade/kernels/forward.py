"""The two sparse sums of a prediction, on several threads: forward only, nothing is recorded."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels.grouping import Grouped, group, partition
from cfnade.kernels.memory import Array, Workspace, buffer, unpad
from cfnade.kernels.network import require_table, require_tensor
from cfnade.kernels.passes import Output, add_scores, sum_context
from cfnade.kernels.threads import run, thread_count

COLUMN = 4.0
"""What a column costs beside its ratings, counted in ratings."""


def context_sum(
    table: Tensor, context: Grouped, *, shared: bool, threads: int | None = None
) -> Tensor:
    """Sum of each row's context: table[m, k], or the levels up to k if shared. Returns (B, D)."""
    M = require_table("table", table)[0]
    if context.n_columns != M:
        raise ModelError(
            f"the ratings are grouped for {context.n_columns} columns; the table has {M}"
        )
    memory = Workspace(table, thread_count(threads))
    memory.reserve(context.size)
    fixed = (context.touched, context.arrays, memory.flat, memory.shape, shared)
    cuts = _cuts(context, memory.threads)
    run(sum_context, [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts])
    return memory.merge(0, context.size).contiguous()


def cell_scores(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Array,
    columns: Array,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """Scores of every level of the given cells, cumulated over levels if shared. Returns (T, K)."""
    M, K, D = require_table("table", table)
    require_tensor("bias", bias, (M, K), table.dtype)
    require_tensor("state", state, (None, D), table.dtype)
    levels = np.zeros(len(columns), np.uint8)
    cells = group(rows, columns, levels, size=len(state), n_columns=M, n_levels=K)
    memory = Workspace(table, thread_count(threads))
    states = buffer(memory.flat.dtype, len(state) * memory.shape.pitch)
    unpad(states, memory.shape).copy_(state.detach())
    biases = np.asarray(bias.detach().contiguous().view(-1).numpy())
    out = table.new_zeros(len(rows), K)
    output = Output(states, memory.flat, biases, memory.shape, shared)
    fixed = (cells.touched, cells.arrays, cells.order, output, np.asarray(out.view(-1).numpy()))
    cuts = _cuts(cells, memory.threads)
    run(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])
    return out


def _cuts(grouped: Grouped, threads: int) -> list[tuple[int, tuple[int, int]]]:
    """Each thread's range of the touched columns."""
    return list(enumerate(partition(grouped.touched, grouped.starts, COLUMN, threads)))
