"""Adam on one column's block, with the L2 term in the gradient.

Reads and writes weights and moments once: 24 bytes a weight with a second moment for each, 16 with
one per level (the mean of its squared gradient).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array, prefetch_column
from cfnade.kernels.jit import inlined, internal
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    horizontal_sum,
    load,
    load_masked,
    offset,
    sqrt,
    store,
    store_masked,
)


class AdamStep(NamedTuple):
    """A rule at one step, as the kernels use it."""

    size: float  # rate / (1 - β₁ᵗ)
    one_minus_beta1: float
    beta2: float
    one_minus_beta2: float
    correction: float  # 1 / √(1 - β₂ᵗ)
    eps: float
    decay: float


class AdamParameter(NamedTuple):
    """A flat parameter and what Adam keeps of it."""

    table: Array
    moment: Array
    square: Array  # as the table, or one number per column and level if rowwise
    step: AdamStep
    rowwise: bool


@dataclass(frozen=True)
class AdamRule:
    """How a parameter moves: `decay`·w is added to its gradient (the L2 term), then Adam."""

    rate: float = 1e-3
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def at_step(self, step: int, factor: float = 1.0) -> AdamStep:
        """What the kernels read at a step, counted from 1; factor scales the rate."""
        first, second = self.betas
        size = float(self.rate * factor / (1.0 - first**step))
        spread = float((1.0 - second**step) ** -0.5)
        return AdamStep(
            size, 1.0 - first, second, 1.0 - second, spread, float(self.eps), float(self.decay)
        )


class AdamState:
    """Arrays that Adam moves in place, with their moments and their rules at the current step.

    Args:
        arrays: Contiguous, writable arrays by name.
        rules: A rule for each of them.
        rowwise: Names of tables (M, K, D) with one second moment per column and level, not one per
            weight.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        rules: Mapping[str, AdamRule],
        rowwise: Collection[str] = (),
    ) -> None:
        if differ := set(arrays) ^ set(rules):
            raise ModelError(
                f"rules must name exactly the arrays {sorted(arrays)}; these differ: "
                f"{sorted(differ)}"
            )
        self.arrays, self.rules, self.rowwise, self.steps = arrays, rules, rowwise, 0
        self.moments = {}
        for name, array in arrays.items():
            second = array.shape[:2] if name in rowwise else array.shape
            self.moments[name] = np.zeros(array.shape, array.dtype), np.zeros(second, array.dtype)
        self._flat = {
            name: [part.reshape(-1) for part in (array, *self.moments[name])]
            for name, array in arrays.items()
        }
        self._steps = {name: rule.at_step(1) for name, rule in rules.items()}

    def start_step(self, rate: float = 1.0) -> None:
        """Count a step: parameters move by their rules at that count, times the factor `rate`."""
        self.steps += 1
        self._steps = {name: rule.at_step(self.steps, rate) for name, rule in self.rules.items()}

    def parameter(self, name: str) -> AdamParameter:
        """Return a parameter, flat, with its moments and its rule at this step."""
        table, moment, square = self._flat[name]
        return AdamParameter(table, moment, square, self._steps[name], name in self.rowwise)


@inlined
def parameter_pointers(update):
    """The same, as pointers."""
    moments = data_pointer(update.moment), data_pointer(update.square)
    return AdamParameter(data_pointer(update.table), *moments, update.step, update.rowwise)


@inlined
def prefetch_parameter(update, column, layout):
    """Prefetch a column's weights and moments."""
    prefetch_column(update.table, column, layout)
    prefetch_column(update.moment, column, layout)
    if not update.rowwise:
        prefetch_column(update.square, column, layout)


@inlined
def adam_blocks(update, columns, n, layout, grads, sizes):
    """Move columns[:n] by the gradients of their blocks, which lie one behind the other.

    sizes is memory for 32 numbers per level.
    """
    if update.rowwise:
        _adam_rowwise(update, columns, n, layout, grads, sizes)
    else:
        _adam_elementwise(update, columns, n, layout, grads)


@internal
def _adam_elementwise(update, columns, n, layout, grads):
    for j in range(n):
        for k in range(layout.levels):
            row = j * layout.levels + k
            start = (columns[j] * layout.levels + k) * layout.width
            update_weights(update, start, offset(grads, row * layout.padded_width), layout.width)


@internal
def _adam_rowwise(update, columns, n, layout, grads, sizes):
    """Take each stage for all columns before the next one: sums across lanes, roots and quotients
    have long latencies, which overlap between columns."""
    K, block = layout.levels, layout.levels * layout.padded_width
    energies = offset(sizes, LANES * K)
    for j in range(n):
        _gradient_energies(
            update, columns[j] * K, layout, offset(grads, j * block), offset(energies, j * K)
        )
    for j in range(n):
        # Whole vectors are written: the next column's sizes take the place of what is too much.
        _level_step_sizes(
            update, columns[j] * K, layout, offset(energies, j * K), offset(sizes, j * K)
        )
    for j in range(n):
        for k in range(K):
            row, level = columns[j] * K + k, offset(grads, j * block + k * layout.padded_width)
            _adam_level(update, row * layout.width, level, layout.width, sizes[j * K + k])


@internal
def update_weights(update, first, grads, count):
    """Move `count` weights from `first` on, each with its own second moment.

    grads is read up to whole vectors.
    """
    table, moment, square, rule, _ = update
    size = broadcast(table, -rule.size)
    fresh = broadcast(table, rule.one_minus_beta1)
    keep = broadcast(table, rule.beta2)
    add = broadcast(table, rule.one_minus_beta2)
    spread = broadcast(table, rule.correction)
    eps = broadcast(table, rule.eps)
    decay = broadcast(table, rule.decay)
    for i in range(0, count, LANES):
        p, n = first + i, count - i
        weight = load_masked(table, p, n)
        slope = load(grads, i) + decay * weight
        m = load_masked(moment, p, n)
        m = m + fresh * (slope - m)
        v = keep * load_masked(square, p, n) + add * slope * slope
        store_masked(moment, p, m, n)
        store_masked(square, p, v, n)
        store_masked(table, p, weight + size * m / (sqrt(v) * spread + eps), n)


@inlined
def _gradient_energies(update, first, layout, grads, energies):
    """energies[k] = the sum of the squared gradient of a column's level."""
    table, _, _, rule, _ = update
    width, decay = layout.width, broadcast(table, rule.decay)
    for k in range(layout.levels):
        energy = broadcast(table, 0.0)
        for i in range(0, layout.padded_width, LANES):
            weight = load_masked(table, (first + k) * width + i, width - i)
            slope = load(grads, k * layout.padded_width + i) + decay * weight
            energy = energy + slope * slope
        energies[k] = horizontal_sum(energy)


@inlined
def _level_step_sizes(update, first, layout, energies, sizes):
    """sizes[k] = the step of a column's level along its first moment: its weights share a second
    moment, their mean squared gradient. All levels at once, as roots and quotients are slow."""
    table, _, square, rule, _ = update
    width = layout.width
    for k in range(0, layout.levels, LANES):
        remaining = layout.levels - k
        v = broadcast(table, rule.beta2) * load_masked(square, first + k, remaining)
        v = v + broadcast(table, rule.one_minus_beta2 / width) * load(energies, k)
        store_masked(square, first + k, v, remaining)
        spread = sqrt(v) * broadcast(table, rule.correction) + broadcast(table, rule.eps)
        store(sizes, k, broadcast(table, -rule.size) / spread)


@inlined
def _adam_level(update, first, grads, width, size):
    """Move the weights of one level by a step of this size.

    If their number is no multiple of 16, the last vector overlaps the one before: masked stores are
    slow on AVX2. It is read before anything is written, so that no weight moves twice.
    """
    table, moment, _, _, _ = update
    last = max(0, width - LANES)
    p = first + last
    weight, m = load_masked(table, p, width), load_masked(moment, p, width)
    for i in range(0, last, LANES):
        here = load(table, first + i), load(moment, first + i)
        _along_moment(update, first + i, here, load(grads, i), size, LANES)
    _along_moment(update, p, (weight, m), load(grads, last), size, width)


@inlined
def _along_moment(update, p, old, slope, size, count):
    """Move the vector of weights at p, given the weights and moments that were read there."""
    table, moment, _, rule, _ = update
    weight, m = old
    slope = slope + broadcast(table, rule.decay) * weight
    m = m + broadcast(table, rule.one_minus_beta1) * (slope - m)
    store_masked(moment, p, m, count)
    store_masked(table, p, weight + broadcast(table, size) * m, count)
