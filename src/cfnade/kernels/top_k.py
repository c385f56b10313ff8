"""Bounds of ranking criteria, candidates for the top k, and log-softmax.

Only columns whose bounds reach the top k need the exact criterion. It is a mean, or a probability
of the calibrated distribution p' ∝ p^(1/T)·w·exp(θ·v) (calibration/); Newton's method
finds θ in double precision from the mean's log-odds. Where it does not converge soon, the bounds
are ±∞.

Scores (B, M, K) are those of B rows; in memory levels come before columns, so that sixteen columns
of a level lie side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import inlined, internal, kernel
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    exp,
    horizontal_sum,
    load,
    load_masked,
    log,
    maximum,
    offset,
    select_le,
    store,
    store_masked,
)

MEAN_SLACK, SLACK = 1e-5, 1e-6
"""Half the distance of the bounds, of a mean over 0..1 in the precision of the scores, and of a
chance in double precision: far above all rounding."""

_MAX_STEPS = 20
_TOLERANCE = 1e-9  # of log-odds, far below the slack
_MIN_VARIANCE = 1e-6  # a variance below which log-odds say too little about chances
_TINY = 1e-300


class Criterion(NamedTuple):
    """The calibrated probability of a level or a higher one, by which columns are ranked."""

    unit: Array  # (K,) the scale's values, moved and stretched to 0..1
    sharpness: float  # 1/T
    log_weights: Array  # (B, K) of each row
    first: int  # the lowest of the levels that count


# A tile holds, for 16 columns, four blocks of K vectors: scores and weights, and, the same in every
# lane, the scale's values and log_weights. Inner functions take its address (simd.py says why).


@internal
def _spread(tile, K):
    """Mass, mean, 1 - mean and mean square of the weights."""
    ones, zero = broadcast(tile, 1.0), broadcast(tile, 0.0)
    mass, low, high, square = zero, zero, zero, zero
    for k in range(K):
        weight, u = load(tile, LANES * (K + k)), load(tile, LANES * (2 * K + k))
        mass = mass + weight
        high = high + weight * u
        low = low + weight * (ones - u)
        square = square + weight * u * u
    high, low = high / mass, low / mass
    return (
        mass,
        maximum(high, broadcast(tile, _TINY)),
        maximum(low, broadcast(tile, _TINY)),
        square / mass,
    )


@internal
def _weigh(tile, K, theta):
    """Weights = exp(scores + θ·values), the highest 1."""
    top = load(tile, 0) + theta * load(tile, LANES * 2 * K)
    for k in range(1, K):
        top = maximum(top, load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k)))
    for k in range(K):
        score = load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k))
        store(tile, LANES * (K + k), exp(score - top))


@inlined
def _odds(high, low, ones):
    return log(ones / low) - log(ones / high)


@inlined
def _tilt(tile, K, sharpness, high, low):
    """Calibrate; returns the mass, and 0 where the mean is back in place, else 1."""
    zero, ones = broadcast(tile, 0.0), broadcast(tile, 1.0)
    for k in range(K):
        score = load(tile, LANES * k) * broadcast(tile, sharpness)
        store(tile, LANES * k, score + load(tile, LANES * (3 * K + k)))
    goal = _odds(high, low, ones)
    theta, mass, unconverged = zero, ones, ones
    for _ in range(_MAX_STEPS):
        _weigh(tile, K, theta)
        mass, high, low, square = _spread(tile, K)
        gap = _odds(high, low, ones) - goal
        variance = square - high * high
        distance = maximum(gap, zero - gap)
        unconverged = select_le(distance, broadcast(tile, _TOLERANCE), zero, ones)
        unconverged = select_le(variance, broadcast(tile, _MIN_VARIANCE), ones, unconverged)
        if horizontal_sum(unconverged) == 0.0:
            break
        theta = theta - gap * high * low / maximum(variance, broadcast(tile, _TINY))
    return mass, unconverged


@inlined
def _tail_probability(tile, K, first, mass):
    """The share of the mass at level `first` and above."""
    above = broadcast(tile, 0.0)
    for k in range(first, K):
        above = above + load(tile, LANES * (K + k))
    return above / mass


@inlined
def _fill_tile(tile, K, scores, begin, M, count):
    """Scores of the columns from begin on; a last tile that is not full repeats its last column."""
    for k in range(K):
        for t in range(LANES):
            tile[LANES * k + t] = scores[begin + k * M + min(t, count - 1)]


@internal
def _mean(scores, begin, M, K, unit, count):
    """The means of the softmax of `count` columns' scores."""
    top = load_masked(scores, begin, count)
    mass = broadcast(scores, 0.0)
    mean = broadcast(scores, 0.0)
    for k in range(1, K):
        top = maximum(top, load_masked(scores, begin + k * M, count))
    for k in range(K):
        weight = exp(load_masked(scores, begin + k * M, count) - top)
        mass = mass + weight
        mean = mean + weight * broadcast(scores, unit[k])
    return mean / mass


@kernel
def _means(scores, M, unit, out):
    B, K, scores, unit = len(out) // M, len(unit), data_pointer(scores), data_pointer(unit)
    for row in range(B):
        for begin in range(0, M, LANES):
            count = min(LANES, M - begin)
            mean = _mean(scores, row * K * M + begin, M, K, unit, count)
            store_masked(out, row * M + begin, mean, count)


@kernel
def _criterion_bounds(scores, M, criterion, memory, lower, upper):
    K, scores = len(criterion.unit), data_pointer(scores)
    B, tile = len(lower) // M, data_pointer(memory)
    slack, sure = broadcast(tile, SLACK), broadcast(tile, 0.5)
    for k in range(K):
        store(tile, LANES * (2 * K + k), broadcast(tile, criterion.unit[k]))
    for row in range(B):
        for k in range(K):
            store(tile, LANES * (3 * K + k), broadcast(tile, criterion.log_weights[row, k]))
        for begin in range(0, M, LANES):
            count = min(LANES, M - begin)
            _fill_tile(tile, K, scores, row * K * M + begin, M, count)
            _weigh(tile, K, broadcast(tile, 0.0))
            _, high, low, _ = _spread(tile, K)
            mass, unconverged = _tilt(tile, K, criterion.sharpness, high, low)
            probability = _tail_probability(tile, K, criterion.first, mass)
            below = select_le(unconverged, sure, probability - slack, broadcast(tile, -np.inf))
            above = select_le(unconverged, sure, probability + slack, broadcast(tile, np.inf))
            store_masked(lower, row * M + begin, below, count)
            store_masked(upper, row * M + begin, above, count)


# -- the best few of a row ------------------------------------------------------------------------


@internal
def sift_down(heap, place):
    """Move the value at a place of a min-heap below all smaller ones."""
    value, below = heap[place], 2 * place + 1
    while below < len(heap):
        if below + 1 < len(heap) and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= value:
            break
        heap[place] = heap[below]
        place, below = below, 2 * below + 1
    heap[place] = value


@kernel
def _keep_candidates(lower, upper, n, allowed):
    B, heap = len(lower), np.empty(n, lower.dtype)
    for row in range(B):
        count = 0
        for m in range(lower.shape[1]):
            if not allowed[row, m]:
                continue
            if count < n:
                heap[count] = lower[row, m]
                count += 1
                if count == n:
                    for place in range(n // 2 - 1, -1, -1):
                        sift_down(heap, place)
            elif lower[row, m] > heap[0]:
                heap[0] = lower[row, m]
                sift_down(heap, np.int64(0))
        if count < n:
            continue
        for m in range(lower.shape[1]):
            allowed[row, m] &= upper[row, m] >= heap[0]


# -- for arrays -----------------------------------------------------------------------------------


def mean_levels(scores: Array, unit: Array) -> Array:
    """Return means over unit (K,) of the softmax of scores (B, M, K), to MEAN_SLACK. (B, M)."""
    B, M, _ = scores.shape
    out = np.empty((B, M), scores.dtype)
    _means(_flat(scores), M, unit.astype(scores.dtype), out.reshape(-1))
    return out


def criterion_bounds(scores: Array, criterion: Criterion) -> tuple[Array, Array]:
    """Return lower and upper bounds of the criterion for scores (B, M, K). (B, M) each."""
    B, M, _ = scores.shape
    lower, upper = np.empty((B, M)), np.empty((B, M))
    arrays = criterion.unit, criterion.log_weights
    unit, log_weights = (np.array(array, np.float64) for array in arrays)
    even = criterion._replace(unit=unit, log_weights=log_weights)
    memory = np.empty(4 * len(unit) * LANES)  # made here, as an address keeps no array alive
    _criterion_bounds(_flat(scores), M, even, memory, lower.reshape(-1), upper.reshape(-1))
    return lower, upper


def keep_candidates(lower: Array, upper: Array, n: int, allowed: Array) -> None:
    """Of the allowed (B, M), keep those that can be among the n best of their row, in place."""
    if n < lower.shape[1]:
        _keep_candidates(lower, upper, n, allowed)


def _flat(scores: Array) -> Array:
    return np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1)


@internal
def _maximum_of_row(row, M, lanes):
    """The largest of M numbers; lanes is memory for a vector."""
    top, even = broadcast(row, -np.inf), M - M % LANES
    for j in range(0, even, LANES):
        top = maximum(top, load(row, j))
    store(lanes, 0, top)
    highest = lanes[0]
    for t in range(1, LANES):
        highest = max(highest, lanes[t])
    for j in range(even, M):
        highest = max(highest, row[j])
    return highest


@internal
def _mass(row, M, highest, lanes):
    """Σ e^(score - highest)."""
    high, zero, least = broadcast(row, highest), broadcast(row, 0.0), broadcast(row, -87.0)
    mass, even = zero, M - M % LANES
    for j in range(0, even, LANES):
        gap = load(row, j) - high
        mass = mass + select_le(gap, least, zero, exp(gap))
    store(lanes, 0, broadcast(row, -np.inf))
    for j in range(even, M):
        lanes[j - even] = row[j] - highest
    gap = load(lanes, 0)
    return horizontal_sum(mass + select_le(gap, least, zero, exp(gap)))


@kernel
def _log_softmax(scores, B, M, memory):
    lanes = data_pointer(memory)
    for number in range(B):
        row = offset(data_pointer(scores), number * M)
        highest = _maximum_of_row(row, M, lanes)
        if highest == -np.inf:
            continue
        log_mass = np.log(_mass(row, M, highest, lanes))
        for j in range(M):
            row[j] = (row[j] - highest) - log_mass  # one by one: both may be large


@internal
def nth_largest_of_row(values, count, heap):
    """The least of the n largest of the first `count` values, at least n; heap (n,) is memory."""
    n = len(heap)
    for m in range(n):
        heap[m] = values[m]
    for place in range(n // 2 - 1, -1, -1):
        sift_down(heap, place)
    for m in range(n, count):
        if values[m] > heap[0]:
            heap[0] = values[m]
            sift_down(heap, np.int64(0))
    return heap[0]


@kernel
def _nth_largest(rows, n, out):
    heap = np.empty(n, rows.dtype)
    for row in range(len(rows)):
        out[row] = nth_largest_of_row(rows[row], rows.shape[1], heap)


@kernel
def _between(rows, low, high, row_of, columns):
    """How many there are; they are written as far as there is room."""
    count = 0
    for row in range(len(rows)):
        for m in range(rows.shape[1]):
            if low[row] <= rows[row, m] < high[row]:
                if count < len(row_of):
                    row_of[count], columns[count] = row, m
                count += 1
    return count


def log_softmax(scores: Array) -> Array:
    """Apply log-softmax over the last of two axes, in place; rows of -∞ alone stay so."""
    _log_softmax(scores.reshape(-1), *scores.shape, np.empty(LANES, scores.dtype))
    return scores


def nth_largest(rows: Array, n: int) -> Array:
    """Return the n-th largest of each of rows (B, M), the least where there are fewer. (B,)."""
    out = np.empty(len(rows), rows.dtype)
    _nth_largest(rows, min(n, rows.shape[1]), out)
    return out


def cells_between(rows: Array, low: Array, high: Array, *, expected: int) -> tuple[Array, Array]:
    """Return rows and columns of the cells of rows (B, M) within low ≤ x < high (B,), row by row.

    Memory is for `expected` cells at first.
    """
    row_of, columns = np.empty(expected, np.int64), np.empty(expected, np.int64)
    count = _between(rows, low, high, row_of, columns)
    if count > expected:
        return cells_between(rows, low, high, expected=count)
    return row_of[:count], columns[:count]
