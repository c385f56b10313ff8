"""The passes over columns that a training step and a prediction are made of.

Each kernel visits the columns columns[lo:hi] of ratings grouped by column. Threads take disjoint
ranges: a table is then written by one thread only, and sums of rows go to a buffer per thread,
cleared first and merged afterwards in a fixed order. A column's block is read once; its targets go
through in tiles of 16: scores, cost, gradients of the block (kept in the first-level cache) and of
the rows' states.

Prefetching columns ahead takes a step of a wide model from 93-104 to 80-90 ms; columns that share a
tile take it from 6.9 to 6.45 ms, and Adam on several columns from 3.15 to 2.4 ms
(experiments/LOG.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade.kernels.adam import adam_blocks, parameter_pointers, prefetch_parameter, update_weights
from cfnade.kernels.buffers import (
    Array,
    BlockLayout,
    add_row,
    clear,
    column_scratch,
    cumulate_gradient,
    cumulate_score_gradient,
    cumulate_scores,
    prefetch_column,
    read_block,
    tile_scratch,
)
from cfnade.kernels.column_groups import cell_pointers
from cfnade.kernels.jit import inlined, kernel
from cfnade.kernels.ordinal_cost import tile_cost
from cfnade.kernels.register_products import (
    PrefetchBlock,
    add_block_gradient,
    add_state_gradient,
    tile_scores,
)
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    horizontal_sum,
    load_masked,
    offset,
    store,
)
from cfnade.kernels.threads import barrier_wait

PREFETCH_DISTANCE = 4
"""Columns ahead that are prefetched where columns are left out: the processor's own prefetcher
foresees successive ones only."""


@inlined
def _has_gaps(lo, hi, columns):
    """Whether columns are left out between those visited."""
    return lo < hi and columns[hi - 1] - columns[lo] >= hi - lo


# -- contexts: Eq. 2 and 9 ------------------------------------------------------------------------


@kernel
def sum_context(lo, hi, columns, cells, table, layout, shared, sums, memory):
    """sums[row] = the sum of the (cumulated) vectors of the row's context in these columns.

    Traffic: the columns' blocks once, from memory; per rating one row read and written in the
    second-level cache.
    """
    cells = cell_pointers(cells)
    scratch = tile_scratch(memory, layout)
    vectors = data_pointer(table)
    rows = data_pointer(sums)
    clear(rows, len(sums))
    apart = _has_gaps(lo, hi, columns)
    for u in range(lo, hi):
        c = columns[u]
        if apart:
            prefetch_column(vectors, columns[min(u + PREFETCH_DISTANCE, hi - 1)], layout)
        read_block(vectors, c, layout, shared, scratch.block)
        for p in range(cells.starts[c], cells.starts[c + 1]):
            level = cells.levels[p] * layout.padded_width
            add_row(
                rows, cells.rows[p] * layout.row_stride, scratch.block, level, layout.padded_width
            )


@kernel
def update_input_table(lo, hi, point, columns, cells, d_sums, layout, shared, update, memory):
    """Adam moves each column by its gradient, that of the rows' sums being given.

    Traffic: weights and moments of the columns, read and written once; the gradient stays in cache.
    """
    barrier_wait(point)
    cells = cell_pointers(cells)
    scratch = tile_scratch(memory, layout)
    update = parameter_pointers(update)
    gradient, apart = data_pointer(d_sums), _has_gaps(lo, hi, columns)
    columns, block = data_pointer(columns), layout.levels * layout.padded_width
    for u in range(lo, hi, min(PREFETCH_DISTANCE, layout.columns_per_tile)):
        n = min(PREFETCH_DISTANCE, layout.columns_per_tile, hi - u)
        clear(scratch.d_block, n * block)
        for j in range(n):
            if apart:
                prefetch_parameter(update, columns[min(u + PREFETCH_DISTANCE + j, hi - 1)], layout)
            begin, end = cells.starts[columns[u + j]], cells.starts[columns[u + j] + 1]
            d_block = offset(scratch.d_block, j * block)
            for p in range(begin, end):
                level = cells.levels[p] * layout.padded_width
                add_row(
                    d_block, level, gradient, cells.rows[p] * layout.row_stride, layout.padded_width
                )
            if shared and begin < end:
                cumulate_gradient(d_block, layout)
        adam_blocks(update, offset(columns, u), n, layout, scratch.d_block, scratch.level_sums)


# -- targets: Eq. 4, 10 and 17 to 19 --------------------------------------------------------------


class OutputLayer(NamedTuple):
    """Arguments of scores, flat: the rows' states, the table, and the bias."""

    states: Array  # (B · pitch,)
    table: Array  # (M · K · D,)
    bias: Array  # (M · K,)
    layout: BlockLayout
    shared: bool


@inlined
def _read_column(c, output, scratch):
    """Read column c, its levels as they are in the table."""
    read_block(output.table, c, output.layout, np.bool_(False), scratch.block)
    for k in range(output.layout.levels):
        scratch.bias[k] = output.bias[c * output.layout.levels + k]


@inlined
def _set_row_starts(p, count, cells, pitch, scratch):
    for t in range(count):
        scratch.row_starts[t] = cells.rows[p + t] * pitch


@inlined
def _score_targets(p, count, cells, output, scratch, upcoming):
    """Scores of targets p..p+count of one column."""
    _set_row_starts(p, count, cells, output.layout.row_stride, scratch)
    tile_scores(output.states, count, output.layout, scratch, upcoming)


@inlined
def _clear_gradients(layout, scratch):
    clear(scratch.d_block, layout.levels * layout.padded_width)
    for k in range(layout.levels):
        scratch.d_bias[k] = 0.0


@inlined
def _add_gradients(count, output, d_states, scratch, upcoming):
    """Add the gradients of block, bias and states; `upcoming` are two blocks to prefetch."""
    for k in range(output.layout.levels):
        scratch.d_bias[k] += horizontal_sum(load_masked(scratch.gradient, LANES * k, count))
    add_block_gradient(output.states, count, output.layout, scratch, upcoming[0])
    add_state_gradient(d_states, count, output.layout, scratch, upcoming[1])


@inlined
def _update_columns(columns, n, output, updates, scratch):
    """Adam moves columns columns[:n]."""
    layout, K = output.layout, output.layout.levels
    for j in range(n):
        update_weights(updates[1], columns[j] * K, column_scratch(scratch, j, 0, layout).d_bias, K)
    adam_blocks(updates[0], columns, n, layout, scratch.d_block, scratch.level_sums)


@inlined
def _next_blocks(u, hi, columns, first, layout, update):
    """Weights, and both moments, of the column after columns[u], prefetched with its first tile.

    That is for large blocks: `prefetch_parameter` fetches a small one at once.
    """
    begin = columns[min(u + 1, hi - 1)] * layout.levels * layout.width
    levels = layout.levels if first and layout.columns_per_tile == 1 else 0
    table, moment = offset(update.table, begin), offset(update.moment, begin)
    square = (
        PrefetchBlock(table, 0)
        if update.rowwise
        else PrefetchBlock(offset(update.square, begin), levels)
    )
    return PrefetchBlock(table, levels), (PrefetchBlock(moment, levels), square)


@inlined
def _columns_in_tile(u, hi, columns, starts, limit):
    """How many columns from columns[u] on have their targets in one tile; at least one column."""
    n, begin = 1, starts[columns[u]]
    while n < limit and u + n < hi and starts[columns[u + n] + 1] - begin <= LANES:
        n += 1
    return n


@inlined
def _fill_tile(p, count, cells, weight_of, factor, scratch):
    """Levels and weights of targets p..p+count; the other lanes count nothing."""
    zero = broadcast(scratch.levels, 0.0)
    store(scratch.levels, 0, zero)
    store(scratch.weights, 0, zero)
    for t in range(count):
        scratch.levels[t] = cells.levels[p + t]
        scratch.weights[t] = weight_of[p + t] * factor


@inlined
def _cost_of_tile(output, ordinal, scratch):
    """The cost of a tile, whose scores and gradients are those of the table's own levels."""
    if output.shared:
        cumulate_scores(scratch.scores, output.layout.levels)
    cost: float = tile_cost(output.layout.levels, ordinal, scratch)
    if output.shared:
        cumulate_score_gradient(scratch.gradient, output.layout.levels)
    return cost


@kernel
def update_output_table(
    lo,
    hi,
    point,
    columns,
    cells,
    weights,
    states,
    updates,
    layout,
    shared,
    ordinal,
    factor,
    d_states,
    memory,
):
    """factor · Σ weight·cost; Adam moves block and bias by its gradient while they are in cache.

    Most columns have a few targets in a batch, so that several share a tile, and its exponentials.
    updates = (table's, bias's). Traffic: weights and moments of the columns, read and written once.
    """
    barrier_wait(point)
    cost, cells, scratch = 0.0, cell_pointers(cells), tile_scratch(memory, layout)
    updates = parameter_pointers(updates[0]), parameter_pointers(updates[1])
    output = OutputLayer(data_pointer(states), updates[0].table, updates[1].table, layout, shared)
    d_rows, weight_of, starts = data_pointer(d_states), data_pointer(weights), cells.starts
    clear(d_rows, len(d_states))
    apart = layout.columns_per_tile > 1 and _has_gaps(lo, hi, columns)
    columns = data_pointer(columns)
    u = lo
    while u < hi:
        n = _columns_in_tile(u, hi, columns, starts, layout.columns_per_tile)
        for j in range(n):
            part = column_scratch(scratch, j, 0, layout)
            _read_column(columns[u + j], output, part)
            _clear_gradients(layout, part)
        end = starts[columns[u + n - 1] + 1]
        for p in range(starts[columns[u]], end, LANES):
            count = min(LANES, end - p)
            clear(scratch.scores, layout.levels * LANES)
            for j in range(n):
                c = columns[u + j]
                first, last = max(p, starts[c]), min(p + LANES, starts[c + 1])
                part = column_scratch(scratch, j, first - p, layout)
                upcoming, _ = _next_blocks(u + j, hi, columns, p <= starts[c], layout, updates[0])
                _score_targets(first, last - first, cells, output, part, upcoming)
            _fill_tile(p, count, cells, weight_of, factor, scratch)
            cost += _cost_of_tile(output, ordinal, scratch)
            for j in range(n):
                c = columns[u + j]
                first, last = max(p, starts[c]), min(p + LANES, starts[c + 1])
                if apart and p <= starts[c]:
                    prefetch_parameter(
                        updates[0], columns[min(u + j + layout.columns_per_tile, hi - 1)], layout
                    )
                if first < last:
                    part = column_scratch(scratch, j, first - p, layout)
                    _, upcoming = _next_blocks(
                        u + j, hi, columns, p <= starts[c], layout, updates[0]
                    )
                    _add_gradients(last - first, output, d_rows, part, upcoming)
        _update_columns(offset(columns, u), n, output, updates, scratch)
        u += n
    return cost


@kernel
def update_output_table_from_gradient(
    lo, hi, columns, cells, order, gradient, states, updates, layout, shared, d_states, memory
):
    """As `update_output_table`, from the gradient of the scores, gradient[order[p]·K + k]: for
    members that add the scores of several components."""
    K, cells, scratch = layout.levels, cell_pointers(cells), tile_scratch(memory, layout)
    updates = parameter_pointers(updates[0]), parameter_pointers(updates[1])
    output = OutputLayer(data_pointer(states), updates[0].table, updates[1].table, layout, shared)
    d_rows = data_pointer(d_states)
    place_of = data_pointer(order)
    gradient_of = data_pointer(gradient)
    clear(d_rows, len(d_states))
    apart = layout.columns_per_tile > 1 and _has_gaps(lo, hi, columns)
    columns = data_pointer(columns)
    for u in range(lo, hi):
        c = columns[u]
        if apart:
            prefetch_parameter(updates[0], columns[min(u + PREFETCH_DISTANCE, hi - 1)], layout)
        read_block(output.table, c, layout, np.bool_(False), scratch.block)
        _clear_gradients(layout, scratch)
        for p in range(cells.starts[c], cells.starts[c + 1], LANES):
            count = min(LANES, cells.starts[c + 1] - p)
            _set_row_starts(p, count, cells, layout.row_stride, scratch)
            for t in range(count):
                for k in range(K):
                    scratch.gradient[LANES * k + t] = gradient_of[place_of[p + t] * K + k]
            if shared:
                cumulate_score_gradient(scratch.gradient, K)
            _, upcoming = _next_blocks(u, hi, columns, p == cells.starts[c], layout, updates[0])
            _add_gradients(count, output, d_rows, scratch, upcoming)
        _update_columns(offset(columns, u), np.int64(1), output, updates, scratch)


@kernel
def add_scores(lo, hi, columns, cells, order, output, out, memory):
    """out[order[p]·K + k] += the score of level k for target p.

    Traffic: the columns' blocks read once; T·K numbers read and written.
    """
    states, table, bias, layout, shared = output
    output = OutputLayer(
        data_pointer(states), data_pointer(table), data_pointer(bias), layout, shared
    )
    cells, scratch = cell_pointers(cells), tile_scratch(memory, layout)
    K, place_of, sums = layout.levels, data_pointer(order), data_pointer(out)
    for u in range(lo, hi):
        c = columns[u]
        _read_column(c, output, scratch)
        for p in range(cells.starts[c], cells.starts[c + 1], LANES):
            count = min(LANES, cells.starts[c + 1] - p)
            _score_targets(p, count, cells, output, scratch, PrefetchBlock(output.table, 0))
            if shared:
                cumulate_scores(scratch.scores, K)
            for t in range(count):
                for k in range(K):
                    sums[place_of[p + t] * K + k] += scratch.scores[LANES * k + t]
