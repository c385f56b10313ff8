"""The context's sums (Eq. 2 and 9), column by column: forward, gradient, and gradient with update.

Each kernel visits the columns which[lo:hi]; `known` are the ratings grouped by column. Threads take
disjoint ranges: a table is then written by one thread only, and sums of rows go to a buffer per
thread, added up afterwards in a fixed order.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cfnade.kernels.adam import adam_block, bare_update
from cfnade.kernels.blocks import add_row, clear, read_block, unshare, write_block
from cfnade.kernels.grouping import bare_ratings
from cfnade.kernels.layout import bare_scratch
from cfnade.kernels.simd import address


@njit(nogil=True, cache=True)
def sum_context(
    lo: int,
    hi: int,
    which: Any,
    known: Any,
    table: Any,
    shape: Any,
    shared: bool,
    sums: Any,
    scratch: Any,
) -> None:
    """sums[row] = the sum of the (cumulated) vectors of the row's context in these columns.

    Traffic: the columns' blocks once, from memory; per rating one row read and written in the
    second-level cache.
    """
    known, scratch, vectors = bare_ratings(known), bare_scratch(scratch), address(table)
    clear(sums, len(sums))
    rows = address(sums)
    for u in range(lo, hi):
        c = which[u]
        read_block(vectors, c, shape, shared, scratch.block)
        for p in range(known.starts[c], known.starts[c + 1]):
            at = known.levels[p] * shape.whole
            add_row(rows, known.rows[p] * shape.pitch, scratch.block, at, shape.whole)


@njit(nogil=True)
def _gradient(c: int, known: Any, d_sums: Any, shape: Any, shared: bool, grads: Any) -> None:
    """grads = the gradient of column c's block, given that of the rows' sums."""
    clear(grads, shape.levels * shape.whole)
    for p in range(known.starts[c], known.starts[c + 1]):
        to, at = known.levels[p] * shape.whole, known.rows[p] * shape.pitch
        add_row(grads, to, d_sums, at, shape.whole)
    if shared and known.starts[c] < known.starts[c + 1]:
        unshare(grads, shape)


@njit(nogil=True, cache=True)
def context_gradient(
    lo: int,
    hi: int,
    which: Any,
    known: Any,
    d_sums: Any,
    shape: Any,
    shared: bool,
    d_table: Any,
    scratch: Any,
) -> None:
    """d_table's columns. Traffic: their blocks written once; rows from the second-level cache."""
    known, scratch = bare_ratings(known), bare_scratch(scratch)
    slopes, out = address(d_sums), address(d_table)
    for u in range(lo, hi):
        _gradient(which[u], known, slopes, shape, shared, scratch.d_block)
        write_block(scratch.d_block, shape, out, which[u])


@njit(nogil=True, cache=True)
def context_step(
    lo: int,
    hi: int,
    which: Any,
    known: Any,
    d_sums: Any,
    shape: Any,
    shared: bool,
    update: Any,
    scratch: Any,
) -> None:
    """As `context_gradient`, but the gradient stays in cache and Adam moves the column at once.

    Traffic: weights and moments of the columns, read and written once.
    """
    known, scratch, update = bare_ratings(known), bare_scratch(scratch), bare_update(update)
    slopes = address(d_sums)
    for u in range(lo, hi):
        _gradient(which[u], known, slopes, shape, shared, scratch.d_block)
        adam_block(update, which[u], shape, scratch)
