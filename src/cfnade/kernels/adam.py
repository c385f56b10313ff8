"""Adam on one column's block, with the L2 term in the gradient.

Reads and writes weights and moments once: 24 bytes a weight with a second moment for each, 16 with
one per level (the mean of its squared gradient).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from cfnade.kernels.compiled import glue, inner
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import (
    LANES,
    address,
    beyond,
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


@glue
def bare_update(update: Any) -> Any:
    """The same, as pointers."""
    moments = address(update.moment), address(update.square)
    return Update(address(update.table), *moments, update.numbers, update.rowwise)


@glue
def adam_block(update: Any, column: int, shape: Any, grads: Any) -> None:
    """Move a column by the gradient of its block, which is used up."""
    for k in range(shape.levels):
        row, slopes = column * shape.levels + k, beyond(grads, k * shape.whole)
        if update.rowwise:
            _adam_level(update, row, slopes, shape.width)
        else:
            adam_run(update, row * shape.width, slopes, shape.width)


@inner
def adam_run(update: Any, first: int, grads: Any, count: int) -> None:
    """Move `count` weights from `first` on, each with its own second moment.

    grads is read up to whole vectors.
    """
    table, moment, square, rule, _ = update
    size, fresh, keep = fill(table, -rule.size), fill(table, rule.fresh), fill(table, rule.keep)
    add, spread, eps = fill(table, rule.add), fill(table, rule.spread), fill(table, rule.eps)
    decay = fill(table, rule.decay)
    for i in range(0, count, LANES):
        p, n = first + i, count - i
        weight = load_part(table, p, n)
        slope = load(grads, i) + decay * weight
        m = load_part(moment, p, n)
        m = m + fresh * (slope - m)
        v = keep * load_part(square, p, n) + add * slope * slope
        store_part(moment, p, m, n)
        store_part(square, p, v, n)
        store_part(table, p, weight + size * m / (sqrt(v) * spread + eps), n)


@inner
def _adam_level(update: Any, row: int, grads: Any, width: int) -> None:
    """Move the weights of one level, which share a second moment: their mean squared gradient."""
    table, moment, square, rule, _ = update
    energy, decay, fresh = fill(table, 0.0), fill(table, rule.decay), fill(table, rule.fresh)
    for i in range(0, width, LANES):
        # Read in part: the gradient's padding must not count.
        weight = load_part(table, row * width + i, width - i)
        slope = load_part(grads, i, width - i) + decay * weight
        store(grads, i, slope)
        energy = energy + slope * slope
    v = rule.keep * square[row] + rule.add * total(energy) / width
    square[row] = v
    size = fill(table, -rule.size / (math.sqrt(v) * rule.spread + rule.eps))
    for i in range(0, width, LANES):
        p, n = row * width + i, width - i
        m = load_part(moment, p, n)
        m = m + fresh * (load(grads, i) - m)
        store_part(moment, p, m, n)
        store_part(table, p, load_part(table, p, n) + size * m, n)
