"""Adam on one column's block, with the L2 term in the gradient.

Reads and writes weights and moments once: 24 bytes a weight with a second moment for each, 16 with
one per level (the mean of its squared gradient).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from numba import njit

from cfnade.kernels.layout import Array
from cfnade.kernels.simd import (
    LANES,
    address,
    fill,
    load,
    load_part,
    sqrt,
    store,
    store_part,
    total,
)


class Numbers(NamedTuple):
    """A rule at one step, as the kernels use it."""

    size: float  # rate / (1 - β₁ᵗ)
    fresh: float  # 1 - β₁
    keep: float  # β₂
    add: float  # 1 - β₂
    spread: float  # 1 / √(1 - β₂ᵗ)
    eps: float
    decay: float


class Update(NamedTuple):
    """A flat parameter and what Adam keeps of it."""

    table: Array
    moment: Array
    square: Array  # as the table, or one number per column and level if rowwise
    numbers: Numbers
    rowwise: bool


@dataclass(frozen=True)
class Rule:
    """How a parameter moves: `decay`·w is added to its gradient (the L2 term), then Adam."""

    rate: float = 1e-3
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def numbers(self, step: int, factor: float = 1.0) -> Numbers:
        """What the kernels read at a step, counted from 1; factor scales the rate."""
        first, second = self.betas
        size = float(self.rate * factor / (1.0 - first**step))
        spread = float((1.0 - second**step) ** -0.5)
        return Numbers(
            size, 1.0 - first, second, 1.0 - second, spread, float(self.eps), float(self.decay)
        )


@njit(nogil=True)
def bare_update(update: Any) -> Any:
    """The same, as pointers."""
    moments = address(update.moment), address(update.square)
    return Update(address(update.table), *moments, update.numbers, update.rowwise)


@njit(nogil=True)
def adam_block(update: Any, column: int, shape: Any, scratch: Any) -> None:
    """Move a column by its gradient, the scratch's d_block (which is used up)."""
    if update.rowwise:
        _rowwise(update, column * shape.levels, shape, scratch.d_block, scratch.running)
        return
    for k in range(shape.levels):
        row = column * shape.levels + k
        adam_run(update, row * shape.width, scratch.d_block, k * shape.whole, shape.width)


@njit(nogil=True)
def adam_run(update: Any, at: int, grads: Any, g: int, count: int) -> None:
    """Move `count` weights from `at` on, each with its own second moment.

    grads is read from g on, up to whole vectors.
    """
    table, moment, square, rule, _ = update
    size, fresh, keep = fill(table, -rule.size), fill(table, rule.fresh), fill(table, rule.keep)
    add, spread, eps = fill(table, rule.add), fill(table, rule.spread), fill(table, rule.eps)
    decay = fill(table, rule.decay)
    for i in range(0, count, LANES):
        n = count - i
        weight = load_part(table, at + i, n)
        slope = load(grads, g + i) + decay * weight
        m = load_part(moment, at + i, n)
        m = m + fresh * (slope - m)
        v = keep * load_part(square, at + i, n) + add * slope * slope
        store_part(moment, at + i, m, n)
        store_part(square, at + i, v, n)
        store_part(table, at + i, weight + size * m / (sqrt(v) * spread + eps), n)


@njit(nogil=True)
def _rowwise(update: Any, row: int, shape: Any, grads: Any, sizes: Any) -> None:
    """Move the levels from `row` on; the weights of a level share a second moment."""
    table, moment, square, rule, _ = update
    width, decay = shape.width, fill(table, rule.decay)
    for k in range(shape.levels):
        energy = fill(table, 0.0)
        for i in range(0, width, LANES):
            # Read in part: the gradient's padding must not count.
            at, weight = k * shape.whole + i, load_part(table, (row + k) * width + i, width - i)
            slope = load_part(grads, at, width - i) + decay * weight
            store(grads, at, slope)
            energy = energy + slope * slope
        sizes[k] = total(energy)
    _sizes(square, row, shape, rule, sizes)
    fresh = fill(table, rule.fresh)
    for k in range(shape.levels):
        size = fill(table, sizes[k])
        for i in range(0, width, LANES):
            to, n = (row + k) * width + i, width - i
            weight, m = load_part(table, to, n), load_part(moment, to, n)
            m = m + fresh * (load(grads, k * shape.whole + i) - m)
            store_part(moment, to, m, n)
            store_part(table, to, weight + size * m, n)


@njit(nogil=True)
def _sizes(square: Any, row: int, shape: Any, rule: Any, sizes: Any) -> None:
    """From each level's squared gradient to its second moment and the size of its step."""
    size, spread, eps = fill(sizes, -rule.size), fill(sizes, rule.spread), fill(sizes, rule.eps)
    keep, add = fill(sizes, rule.keep), fill(sizes, rule.add / shape.width)
    for i in range(0, shape.levels, LANES):
        n = shape.levels - i
        v = keep * load_part(square, row + i, n) + add * load(sizes, i)
        store_part(square, row + i, v, n)
        store(sizes, i, size / (sqrt(v) * spread + eps))
