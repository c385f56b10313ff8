"""A column's block of levels × width: copied in (cumulated if shared), its gradient taken back out.

A block is padded to whole vectors with zeros and stays in the first-level cache. Sharing (Eq. 9 and
10) makes level k the sum of the table's levels up to k, so a gradient runs back the other way.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cfnade.kernels.simd import LANES, fill, load, load_part, store, store_part


@njit(nogil=True)
def read_block(table: Any, column: int, shape: Any, shared: bool, block: Any) -> None:
    """block[k] = level k of the table's column, or the sum of its levels up to k."""
    for k in range(shape.levels):
        at, to = (column * shape.levels + k) * shape.width, k * shape.whole
        for i in range(0, shape.whole, LANES):
            value = load_part(table, at + i, shape.width - i)
            if shared and k > 0:
                value = value + load(block, to - shape.whole + i)
            store(block, to + i, value)


@njit(nogil=True)
def write_block(block: Any, shape: Any, table: Any, column: int) -> None:
    """The block without its padding becomes the table's column."""
    for k in range(shape.levels):
        to = (column * shape.levels + k) * shape.width
        for i in range(0, shape.whole, LANES):
            store_part(table, to + i, load(block, k * shape.whole + i), shape.width - i)


@njit(nogil=True)
def clear(numbers: Any, count: int) -> None:
    """Set the first `count`, a multiple of 16, to zero."""
    zero = fill(numbers, 0.0)
    for i in range(0, count, LANES):
        store(numbers, i, zero)


@njit(nogil=True)
def add_row(into: Any, to: int, source: Any, at: int, whole: int) -> None:
    """into[to:to+whole] += source[at:at+whole]"""
    for i in range(0, whole, LANES):
        store(into, to + i, load(into, to + i) + load(source, at + i))


@njit(nogil=True)
def unshare(block: Any, shape: Any) -> None:
    """The gradient of a cumulated block becomes that of the table: a sum from each level on."""
    for k in range(shape.levels - 2, -1, -1):
        add_row(block, k * shape.whole, block, (k + 1) * shape.whole, shape.whole)


@njit(nogil=True)
def read_bias(bias: Any, column: int, levels: int, shared: bool, out: Any) -> None:
    """out[k] = the bias of level k, or the sum of those up to k."""
    running = bias[column * levels]
    out[0] = running
    for k in range(1, levels):
        step = bias[column * levels + k]
        running = running + step if shared else step
        out[k] = running


@njit(nogil=True)
def unshare_bias(grad: Any, levels: int) -> None:
    """As `unshare`, for a bias."""
    running = grad[levels - 1]
    for k in range(levels - 2, -1, -1):
        running += grad[k]
        grad[k] = running
