"""Scores, costs and gradients of the targets, column by column.

As in `context`, each kernel visits the columns which[lo:hi]; `cells` are the targets grouped by
column. A column's block is read once; its targets go through in tiles of 16: scores, cost,
gradients of the block (kept in the first-level cache) and of the rows' states (`d_states`, a buffer
per thread, cleared first).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from cfnade.kernels.adam import adam_block, adam_run, bare_update
from cfnade.kernels.blocks import clear, read_bias, read_block, unshare, unshare_bias, write_block
from cfnade.kernels.costs import tile_costs
from cfnade.kernels.grouping import bare_ratings
from cfnade.kernels.layout import Array, Shape, bare_scratch
from cfnade.kernels.simd import LANES, address, fill, load_part, store, total
from cfnade.kernels.tiles import tile_back, tile_outer, tile_scores


class Output(NamedTuple):
    """What scores are made of, flat: the rows' states against the table, and the bias."""

    states: Array  # (B · pitch,)
    table: Array  # (M · K · D,)
    bias: Array  # (M · K,)
    shape: Shape
    shared: bool


@njit(nogil=True)
def bare_output(output: Any) -> Any:
    """The same, as pointers."""
    bare = address(output.states), address(output.table), address(output.bias)
    return Output(*bare, output.shape, output.shared)


@njit(nogil=True)
def _begin(c: int, output: Any, scratch: Any) -> None:
    """Read column c and clear its gradients."""
    read_block(output.table, c, output.shape, output.shared, scratch.block)
    read_bias(output.bias, c, output.shape.levels, output.shared, scratch.bias)
    clear(scratch.d_block, output.shape.levels * output.shape.whole)
    clear(scratch.d_bias, output.shape.levels)


@njit(nogil=True)
def _find_rows(p: int, count: int, cells: Any, pitch: int, scratch: Any) -> None:
    for t in range(count):
        scratch.begins[t] = cells.rows[p + t] * pitch


@njit(nogil=True)
def _score(p: int, count: int, cells: Any, output: Any, scratch: Any) -> None:
    """Scores of targets p..p+count; the other lanes score what the bias says."""
    _find_rows(p, count, cells, output.shape.pitch, scratch)
    tile_scores(output.states, count, output.shape, scratch)
    for k in range(output.shape.levels):
        score = load_part(scratch.scores, LANES * k, count) + fill(scratch.scores, scratch.bias[k])
        store(scratch.scores, LANES * k, score)


@njit(nogil=True)
def _collect(count: int, output: Any, d_states: Any, scratch: Any) -> None:
    """Add what the tile's slopes say about block, bias and states."""
    for k in range(output.shape.levels):
        scratch.d_bias[k] += total(load_part(scratch.slopes, LANES * k, count))
    tile_outer(output.states, count, output.shape, scratch)
    tile_back(d_states, count, output.shape, scratch)


@njit(nogil=True)
def _finish(output: Any, scratch: Any) -> None:
    """From gradients of cumulated levels to those of the table's levels."""
    if output.shared:
        unshare(scratch.d_block, output.shape)
        unshare_bias(scratch.d_bias, output.shape.levels)


@njit(nogil=True)
def _costs(
    c: int, cells: Any, output: Any, ordinal: float, factor: float, d_states: Any, scratch: Any
) -> float:
    """factor · Σ weight·cost of column c; its gradients are in scratch and added to d_states."""
    cost = 0.0
    for p in range(cells.starts[c], cells.starts[c + 1], LANES):
        count = min(LANES, cells.starts[c + 1] - p)
        _score(p, count, cells, output, scratch)
        for t in range(LANES):
            scratch.truth[t] = cells.levels[p + t] if t < count else 0
            scratch.weights[t] = cells.weights[p + t] * factor if t < count else 0
        cost += tile_costs(output.shape.levels, ordinal, scratch)
        _collect(count, output, d_states, scratch)
    _finish(output, scratch)
    return cost


@njit(nogil=True)
def _given(c: int, cells: Any, slopes: Any, output: Any, d_states: Any, scratch: Any) -> None:
    """As `_costs`, with the gradients of the scores given: slopes[order[p]·K + k]."""
    K = output.shape.levels
    for p in range(cells.starts[c], cells.starts[c + 1], LANES):
        count = min(LANES, cells.starts[c + 1] - p)
        _find_rows(p, count, cells, output.shape.pitch, scratch)
        for t in range(count):
            for k in range(K):
                scratch.slopes[LANES * k + t] = slopes[cells.order[p + t] * K + k]
        _collect(count, output, d_states, scratch)
    _finish(output, scratch)


@njit(nogil=True)
def _write(c: int, output: Any, d_table: Any, d_bias: Any, scratch: Any) -> None:
    write_block(scratch.d_block, output.shape, d_table, c)
    for k in range(output.shape.levels):
        d_bias[c * output.shape.levels + k] = scratch.d_bias[k]


@njit(nogil=True)
def _move(c: int, output: Any, updates: Any, scratch: Any) -> None:
    K = output.shape.levels
    adam_block(updates[0], c, output.shape, scratch)
    adam_run(updates[1], c * K, scratch.d_bias, 0, K)


@njit(nogil=True, cache=True)
def target_gradients(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    output: Any,
    ordinal: float,
    d_states: Any,
    d_table: Any,
    d_bias: Any,
    scratch: Any,
) -> float:
    """Σ weight·cost of the columns' targets, with all its gradients.

    Traffic: the columns' blocks read and their gradients written, once; states from cache.
    """
    cost = 0.0
    cells, output, scratch = bare_ratings(cells), bare_output(output), bare_scratch(scratch)
    d_rows, vectors, steps = address(d_states), address(d_table), address(d_bias)
    clear(d_rows, len(d_states))
    for u in range(lo, hi):
        _begin(which[u], output, scratch)
        cost += _costs(which[u], cells, output, ordinal, 1.0, d_rows, scratch)
        _write(which[u], output, vectors, steps, scratch)
    return cost


@njit(nogil=True, cache=True)
def target_step(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    output: Any,
    ordinal: float,
    factor: float,
    d_states: Any,
    updates: Any,
    scratch: Any,
) -> float:
    """factor · Σ weight·cost; Adam moves block and bias by its gradient while they are in cache.

    updates = (table's, bias's). Traffic: weights and moments of the columns, read and written once.
    """
    cost = 0.0
    cells, output, scratch = bare_ratings(cells), bare_output(output), bare_scratch(scratch)
    updates = bare_update(updates[0]), bare_update(updates[1])
    d_rows = address(d_states)
    clear(d_rows, len(d_states))
    for u in range(lo, hi):
        _begin(which[u], output, scratch)
        cost += _costs(which[u], cells, output, ordinal, factor, d_rows, scratch)
        _move(which[u], output, updates, scratch)
    return cost


@njit(nogil=True, cache=True)
def score_gradients(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    output: Any,
    slopes: Any,
    d_states: Any,
    d_table: Any,
    d_bias: Any,
    scratch: Any,
) -> None:
    """As `target_gradients`, from given gradients of the scores (T·K, cells in their own order)."""
    cells, output, scratch = bare_ratings(cells), bare_output(output), bare_scratch(scratch)
    d_rows, vectors, steps = address(d_states), address(d_table), address(d_bias)
    given = address(slopes)
    clear(d_rows, len(d_states))
    for u in range(lo, hi):
        _begin(which[u], output, scratch)
        _given(which[u], cells, given, output, d_rows, scratch)
        _write(which[u], output, vectors, steps, scratch)


@njit(nogil=True, cache=True)
def score_step(
    lo: int,
    hi: int,
    which: Any,
    cells: Any,
    output: Any,
    slopes: Any,
    d_states: Any,
    updates: Any,
    scratch: Any,
) -> None:
    """As `target_step`, from given gradients of the scores: for models that add their scores."""
    cells, output, scratch = bare_ratings(cells), bare_output(output), bare_scratch(scratch)
    updates = bare_update(updates[0]), bare_update(updates[1])
    d_rows, given = address(d_states), address(slopes)
    clear(d_rows, len(d_states))
    for u in range(lo, hi):
        _begin(which[u], output, scratch)
        _given(which[u], cells, given, output, d_rows, scratch)
        _move(which[u], output, updates, scratch)


@njit(nogil=True, cache=True)
def add_scores(
    lo: int, hi: int, which: Any, cells: Any, output: Any, out: Any, scratch: Any
) -> None:
    """out[order[p]·K + k] += the score of level k for target p.

    Traffic: the columns' blocks read once; T·K numbers read and written.
    """
    cells, output, scratch = bare_ratings(cells), bare_output(output), bare_scratch(scratch)
    K, sums = output.shape.levels, address(out)
    for u in range(lo, hi):
        c = which[u]
        _begin(c, output, scratch)
        for p in range(cells.starts[c], cells.starts[c + 1], LANES):
            count = min(LANES, cells.starts[c + 1] - p)
            _score(p, count, cells, output, scratch)
            for t in range(count):
                for k in range(K):
                    sums[cells.order[p + t] * K + k] += scratch.scores[LANES * k + t]


@njit(nogil=True, cache=True)
def cost_of_scores(
    lo: int,
    hi: int,
    scores: Any,
    levels: Any,
    weights: Any,
    ordinal: float,
    slopes: Any,
    scratch: Any,
) -> float:
    """Σ weight·cost of cells lo..hi from their scores (T·K); slopes = its gradient in them."""
    K = len(scratch.scores) // LANES
    scratch = bare_scratch(scratch)
    cost = 0.0
    for p in range(lo, hi, LANES):
        count = min(LANES, hi - p)
        for t in range(LANES):
            scratch.truth[t] = levels[p + t] if t < count else 0
            scratch.weights[t] = weights[p + t] if t < count else 0
            for k in range(K):
                scratch.scores[LANES * k + t] = scores[(p + t) * K + k] if t < count else 0
        cost += tile_costs(K, ordinal, scratch)
        for t in range(count):
            for k in range(K):
                slopes[(p + t) * K + k] = scratch.slopes[LANES * k + t]
    return cost
