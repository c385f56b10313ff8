"""Blocks and tiles on their way: read, fetched ahead, cleared, and their levels added up.

Sharing (Eq. 9 and 10) makes level k the sum of the table's levels up to k, so a gradient runs back
the other way.
"""

from __future__ import annotations

from typing import Any

from cfnade.kernels.compiled import glue, inner
from cfnade.kernels.simd import LANES, fetch, fill, load, load_part, store


@inner
def read_block(table: Any, column: int, shape: Any, shared: bool, block: Any) -> None:
    """block[k] = level k of the table's column, or the sum of its levels up to k."""
    for k in range(shape.levels):
        first, to = (column * shape.levels + k) * shape.width, k * shape.whole
        for i in range(0, shape.whole, LANES):
            value = load_part(table, first + i, shape.width - i)
            if shared and k > 0:
                value = value + load(block, to - shape.whole + i)
            store(block, to + i, value)


@glue
def fetch_vectors(table: Any, column: int, shape: Any) -> None:
    """Have a column of the table brought near, which will soon be read."""
    first = column * shape.levels * shape.width
    # The last vector reaches beyond the block: the processor asks for lanes that are masked, too.
    end = first + (shape.levels - 1) * shape.width + shape.whole
    for i in range(first, end, LANES):
        fetch(table, i)
    fetch(table, end - 1)  # what begins within a line has one line more


@glue
def clear(numbers: Any, count: int) -> None:
    """Set the first `count`, a multiple of 16, to zero."""
    zero = fill(numbers, 0.0)
    for i in range(0, count, LANES):
        store(numbers, i, zero)


@glue
def add_row(into: Any, to: int, source: Any, first: int, whole: int) -> None:
    """into[to:to+whole] += source[first:first+whole]"""
    for i in range(0, whole, LANES):
        store(into, to + i, load(into, to + i) + load(source, first + i))


@glue
def unshare(block: Any, shape: Any) -> None:
    """The gradient of a cumulated block becomes that of the table: a sum from each level on."""
    for k in range(shape.levels - 2, -1, -1):
        add_row(block, k * shape.whole, block, (k + 1) * shape.whole, shape.whole)


@glue
def share_scores(scores: Any, levels: int) -> None:
    """The scores of the table's own levels become those of their sums: each of those up to it."""
    for k in range(1, levels):
        add_row(scores, k * LANES, scores, (k - 1) * LANES, LANES)


@glue
def unshare_slopes(slopes: Any, levels: int) -> None:
    """As `unshare`, for the gradient of a tile's scores."""
    for k in range(levels - 2, -1, -1):
        add_row(slopes, k * LANES, slopes, (k + 1) * LANES, LANES)
