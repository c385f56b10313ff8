"""The two sparse sums of a prediction, on several threads: forward only, nothing is recorded."""

from __future__ import annotations

import numpy as np

from cfnade.exceptions import ModelError
from cfnade.kernels.grouping import Grouped, group, partition
from cfnade.kernels.memory import Array, TableMemory, buffer, unpadded
from cfnade.kernels.passes import Output, add_scores, sum_context
from cfnade.kernels.table_checks import require_array, require_table
from cfnade.kernels.threads import run, thread_count

COLUMN = 4.0
"""What a column costs beside its ratings, counted in ratings."""


def context_sum(
    table: Array, context: Grouped, *, shared: bool, threads: int | None = None
) -> Array:
    """Sum of each row's context: table[m, k], or the levels up to k if shared. Returns (B, D)."""
    M = require_table("table", table)[0]
    if context.n_columns != M:
        raise ModelError(
            f"the ratings are grouped for {context.n_columns} columns; the table has {M}"
        )
    memory = TableMemory(table, thread_count(threads), unpadded)
    memory.reserve(context.size)
    fixed = (context.touched, context.arrays, memory.flat, memory.shape, shared)
    cuts = _cuts(context, memory.threads)
    run(sum_context, [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts])
    return np.ascontiguousarray(memory.merge(0, context.size))


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
    cells = group(rows, columns, levels, size=len(state), n_columns=M, n_levels=K)
    memory = TableMemory(table, thread_count(threads), unpadded)
    states = buffer(memory.flat.dtype, len(state) * memory.shape.pitch)
    unpadded(states, memory.shape)[:] = state
    out = np.zeros((len(rows), K), table.dtype)
    output = Output(states, memory.flat, bias.reshape(-1), memory.shape, shared)
    fixed = (cells.touched, cells.arrays, cells.order, output, out.reshape(-1))
    cuts = _cuts(cells, memory.threads)
    run(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])
    return out


def _cuts(grouped: Grouped, threads: int) -> list[tuple[int, tuple[int, int]]]:
    """Each thread's range of the touched columns."""
    return list(enumerate(partition(grouped.touched, grouped.starts, COLUMN, threads)))
