"""The passes over columns that a training step and a prediction are made of.

Each kernel visits the columns which[lo:hi] of ratings grouped by column. Threads take disjoint
ranges: a table is then written by one thread only, and sums of rows go to a buffer per thread,
cleared first, which are added up afterwards in a fixed order. A column's block is read once; its
targets go through in tiles of 16: scores, cost, gradients of the block (kept in the first-level
cache) and of the rows' states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.adam import adam_blocks, adam_run, bare_update, fetch_block
from cfnade.kernels.blocks import (
    add_row,
    clear,
    fetch_vectors,
    read_block,
    share_scores,
    unshare,
    unshare_slopes,
)
from cfnade.kernels.compiled import glue, kernel
from cfnade.kernels.costing import tile_costs
from cfnade.kernels.gates import pass_gate
from cfnade.kernels.grouping import bare_cells
from cfnade.kernels.memory import Array, BlockShape, scratch_in, share_of
from cfnade.kernels.simd import LANES, address, beyond, fill, load_part, store, total
from cfnade.kernels.tiles import Soon, tile_back, tile_outer, tile_scores

AHEAD = 4
"""Columns that lie apart are not foreseen by the processor: they are fetched so many before their
turn."""


@glue
def _apart(lo: int, hi: int, which: Any) -> bool:
    """Whether columns are left out between those visited."""
    return lo < hi and which[hi - 1] - which[lo] >= hi - lo


# -- contexts: Eq. 2 and 9 ------------------------------------------------------------------------


@kernel
def sum_context(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    table: Any,
    shape: Any,
    shared: bool,
    sums: Any,
    memory: Any,
) -> None:
    """sums[row] = the sum of the (cumulated) vectors of the row's context in these columns.

    Traffic: the columns' blocks once, from memory; per rating one row read and written in the
    second-level cache.
    """
    cells, scratch, vectors = bare_cells(cells), scratch_in(memory, shape), address(table)
    rows = address(sums)
    clear(rows, len(sums))
    apart = _apart(lo, hi, which)
    for u in range(lo, hi):
        c = which[u]
        if apart:
            fetch_vectors(vectors, which[min(u + AHEAD, hi - 1)], shape)
        read_block(vectors, c, shape, shared, scratch.block)
        for p in range(cells.starts[c], cells.starts[c + 1]):
            level = cells.levels[p] * shape.whole
            add_row(rows, cells.rows[p] * shape.pitch, scratch.block, level, shape.whole)


@kernel
def context_step(
    lo: int,
    hi: int,
    gate: Any,
    which: Any,
    cells: Any,
    d_sums: Any,
    shape: Any,
    shared: bool,
    update: Any,
    memory: Any,
) -> None:
    """Adam moves each column by its gradient, that of the rows' sums being given.

    Traffic: weights and moments of the columns, read and written once; the gradient stays in cache.
    """
    pass_gate(gate)
    cells, scratch, update = bare_cells(cells), scratch_in(memory, shape), bare_update(update)
    slopes, apart = address(d_sums), _apart(lo, hi, which)
    which, block = address(which), shape.levels * shape.whole
    for u in range(lo, hi, min(AHEAD, shape.most)):
        n = min(AHEAD, shape.most, hi - u)
        clear(scratch.d_block, n * block)
        for j in range(n):
            if apart:
                fetch_block(update, which[min(u + AHEAD + j, hi - 1)], shape)
            begin, end = cells.starts[which[u + j]], cells.starts[which[u + j] + 1]
            grads = beyond(scratch.d_block, j * block)
            for p in range(begin, end):
                level = cells.levels[p] * shape.whole
                add_row(grads, level, slopes, cells.rows[p] * shape.pitch, shape.whole)
            if shared and begin < end:
                unshare(grads, shape)
        adam_blocks(update, beyond(which, u), n, shape, scratch.d_block, scratch.running)


# -- targets: Eq. 4, 10 and 17 to 19 --------------------------------------------------------------


class Output(NamedTuple):
    """What scores are made of, flat: the rows' states against the table, and the bias."""

    states: Array  # (B · pitch,)
    table: Array  # (M · K · D,)
    bias: Array  # (M · K,)
    shape: BlockShape
    shared: bool


@glue
def _read(c: int, output: Any, scratch: Any) -> None:
    """Read column c, its levels as they are in the table."""
    read_block(output.table, c, output.shape, np.bool_(False), scratch.block)
    for k in range(output.shape.levels):
        scratch.bias[k] = output.bias[c * output.shape.levels + k]


@glue
def _find_rows(p: int, count: int, cells: Any, pitch: int, scratch: Any) -> None:
    for t in range(count):
        scratch.begins[t] = cells.rows[p + t] * pitch


@glue
def _score(p: int, count: int, cells: Any, output: Any, scratch: Any, soon: Any) -> None:
    """Scores of targets p..p+count of one column."""
    _find_rows(p, count, cells, output.shape.pitch, scratch)
    tile_scores(output.states, count, output.shape, scratch, soon)


@glue
def _clear_gradients(shape: Any, scratch: Any) -> None:
    clear(scratch.d_block, shape.levels * shape.whole)
    for k in range(shape.levels):
        scratch.d_bias[k] = 0.0


@glue
def _collect(count: int, output: Any, d_states: Any, scratch: Any, soon: Any) -> None:
    """Add what the tile's slopes say about block, bias and states; two blocks come soon."""
    for k in range(output.shape.levels):
        scratch.d_bias[k] += total(load_part(scratch.slopes, LANES * k, count))
    tile_outer(output.states, count, output.shape, scratch, soon[0])
    tile_back(d_states, count, output.shape, scratch, soon[1])


@glue
def _move(which: Any, n: int, output: Any, updates: Any, scratch: Any) -> None:
    """Adam moves columns which[:n]."""
    shape, K = output.shape, output.shape.levels
    for j in range(n):
        adam_run(updates[1], which[j] * K, share_of(scratch, j, 0, shape).d_bias, K)
    adam_blocks(updates[0], which, n, shape, scratch.d_block, scratch.running)


@glue
def _coming(u: int, hi: int, which: Any, first: bool, shape: Any, update: Any) -> Any:
    """Weights, and both moments, of the column after which[u], asked for with its first tile.

    That is for large blocks: `fetch_block` asks for all of a small one at once.
    """
    begin = which[min(u + 1, hi - 1)] * shape.levels * shape.width
    levels = shape.levels if first and shape.most == 1 else 0
    table, moment = beyond(update.table, begin), beyond(update.moment, begin)
    square = Soon(table, 0) if update.rowwise else Soon(beyond(update.square, begin), levels)
    return Soon(table, levels), (Soon(moment, levels), square)


@glue
def _bunch(u: int, hi: int, which: Any, starts: Any, most: int) -> int:
    """How many columns from which[u] on have their targets in one tile; at least one column."""
    n, begin = 1, starts[which[u]]
    while n < most and u + n < hi and starts[which[u + n] + 1] - begin <= LANES:
        n += 1
    return n


@glue
def _fill_tile(p: int, count: int, cells: Any, weight_of: Any, factor: float, scratch: Any) -> None:
    """Levels and weights of targets p..p+count; the other lanes count nothing."""
    zero = fill(scratch.truth, 0.0)
    store(scratch.truth, 0, zero)
    store(scratch.weights, 0, zero)
    for t in range(count):
        scratch.truth[t] = cells.levels[p + t]
        scratch.weights[t] = weight_of[p + t] * factor


@glue
def _cost_of(output: Any, ordinal: float, scratch: Any) -> float:
    """The cost of a tile, its scores and slopes those of the table's own levels."""
    if output.shared:
        share_scores(scratch.scores, output.shape.levels)
    cost: float = tile_costs(output.shape.levels, ordinal, scratch)
    if output.shared:
        unshare_slopes(scratch.slopes, output.shape.levels)
    return cost


@kernel
def target_step(
    lo: int,
    hi: int,
    gate: Any,
    which: Any,
    cells: Any,
    weights: Any,
    states: Any,
    updates: Any,
    shape: Any,
    shared: bool,
    ordinal: float,
    factor: float,
    d_states: Any,
    memory: Any,
) -> float:
    """factor · Σ weight·cost; Adam moves block and bias by its gradient while they are in cache.

    Most columns have a few targets in a batch, so that several share a tile, and its exponentials.
    updates = (table's, bias's). Traffic: weights and moments of the columns, read and written once.
    """
    pass_gate(gate)
    cost, cells, scratch = 0.0, bare_cells(cells), scratch_in(memory, shape)
    updates = bare_update(updates[0]), bare_update(updates[1])
    output = Output(address(states), updates[0].table, updates[1].table, shape, shared)
    d_rows, weight_of, starts = address(d_states), address(weights), cells.starts
    clear(d_rows, len(d_states))
    apart, which, u = shape.most > 1 and _apart(lo, hi, which), address(which), lo
    while u < hi:
        n = _bunch(u, hi, which, starts, shape.most)
        for j in range(n):
            own = share_of(scratch, j, 0, shape)
            _read(which[u + j], output, own)
            _clear_gradients(shape, own)
        end = starts[which[u + n - 1] + 1]
        for p in range(starts[which[u]], end, LANES):
            count = min(LANES, end - p)
            clear(scratch.scores, shape.levels * LANES)
            for j in range(n):
                c = which[u + j]
                first, last = max(p, starts[c]), min(p + LANES, starts[c + 1])
                own = share_of(scratch, j, first - p, shape)
                soon, _ = _coming(u + j, hi, which, p <= starts[c], shape, updates[0])
                _score(first, last - first, cells, output, own, soon)
            _fill_tile(p, count, cells, weight_of, factor, scratch)
            cost += _cost_of(output, ordinal, scratch)
            for j in range(n):
                c = which[u + j]
                first, last = max(p, starts[c]), min(p + LANES, starts[c + 1])
                if apart and p <= starts[c]:
                    fetch_block(updates[0], which[min(u + j + shape.most, hi - 1)], shape)
                if first < last:
                    own = share_of(scratch, j, first - p, shape)
                    _, soon = _coming(u + j, hi, which, p <= starts[c], shape, updates[0])
                    _collect(last - first, output, d_rows, own, soon)
        _move(beyond(which, u), n, output, updates, scratch)
        u += n
    return cost


@kernel
def score_step(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    order: Any,
    slopes: Any,
    states: Any,
    updates: Any,
    shape: Any,
    shared: bool,
    d_states: Any,
    memory: Any,
) -> None:
    """As `target_step`, from given gradients of the scores, slopes[order[p]·K + k]: for models that
    add their scores."""
    K, cells, scratch = shape.levels, bare_cells(cells), scratch_in(memory, shape)
    updates = bare_update(updates[0]), bare_update(updates[1])
    output = Output(address(states), updates[0].table, updates[1].table, shape, shared)
    d_rows, place_of, slope_of = address(d_states), address(order), address(slopes)
    clear(d_rows, len(d_states))
    apart, which = shape.most > 1 and _apart(lo, hi, which), address(which)
    for u in range(lo, hi):
        c = which[u]
        if apart:
            fetch_block(updates[0], which[min(u + AHEAD, hi - 1)], shape)
        read_block(output.table, c, shape, np.bool_(False), scratch.block)
        _clear_gradients(shape, scratch)
        for p in range(cells.starts[c], cells.starts[c + 1], LANES):
            count = min(LANES, cells.starts[c + 1] - p)
            _find_rows(p, count, cells, shape.pitch, scratch)
            for t in range(count):
                for k in range(K):
                    scratch.slopes[LANES * k + t] = slope_of[place_of[p + t] * K + k]
            if shared:
                unshare_slopes(scratch.slopes, K)
            _, soon = _coming(u, hi, which, p == cells.starts[c], shape, updates[0])
            _collect(count, output, d_rows, scratch, soon)
        _move(beyond(which, u), np.int64(1), output, updates, scratch)


@kernel
def add_scores(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    order: Any,
    output: Any,
    out: Any,
    memory: Any,
) -> None:
    """out[order[p]·K + k] += the score of level k for target p.

    Traffic: the columns' blocks read once; T·K numbers read and written.
    """
    states, table, bias, shape, shared = output
    output = Output(address(states), address(table), address(bias), shape, shared)
    cells, scratch = bare_cells(cells), scratch_in(memory, shape)
    K, place_of, sums = shape.levels, address(order), address(out)
    for u in range(lo, hi):
        c = which[u]
        _read(c, output, scratch)
        for p in range(cells.starts[c], cells.starts[c + 1], LANES):
            count = min(LANES, cells.starts[c + 1] - p)
            _score(p, count, cells, output, scratch, Soon(output.table, 0))
            if shared:
                share_scores(scratch.scores, K)
            for t in range(count):
                for k in range(K):
                    sums[place_of[p + t] * K + k] += scratch.scores[LANES * k + t]


# -- flat parameters ------------------------------------------------------------------------------


@kernel
def flat_step(lo: int, hi: int, update: Any, grads: Any) -> None:
    """Adam on weights lo..hi of a flat parameter. Traffic: 24 bytes a weight and its gradient."""
    adam_run(bare_update(update), lo, beyond(address(grads), lo), hi - lo)
