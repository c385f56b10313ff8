"""Bounds of what all columns are ranked by, so that only a few need the exact calculation.

Sixteen columns at a time. What is ranked by is a mean, or a chance or quantile of the calibrated
distribution p' ∝ p^(1/T)·w·exp(θ·v) (calibration/), θ being found in double precision by Newton's
method on the mean's log-odds. Where that does not settle soon, the bounds say nothing (±∞).

Scores (B, M, K) are those of B rows; in memory levels come before columns, so that sixteen columns
of a level lie side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.compiled import glue, inner, kernel
from cfnade.kernels.exponentials import exp, log
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import (
    LANES,
    address,
    fill,
    load,
    load_part,
    maximum,
    minimum,
    store,
    store_part,
    total,
    where_at_most,
)

CHANCE, QUANTILE = 0, 1
MEAN_SLACK, SLACK = 1e-5, 1e-6
"""Half the distance of the bounds, of a mean over 0..1 in the precision of the scores, and of a
chance in double precision: far above all rounding."""

_ROUNDS = 20
_CLOSE = 1e-9  # of log-odds, far below the slack
_NARROW = 1e-6  # a variance below which log-odds say too little about chances
_TINY = 1e-300


class Criterion(NamedTuple):
    """What columns are ranked by."""

    kind: int  # CHANCE or QUANTILE
    unit: Array  # (K,) the scale's values, moved and stretched to 0..1
    sharpness: float  # 1/T
    log_weights: Array  # (B, K) of each row
    first: int  # CHANCE: of this level or a higher one
    share: float  # QUANTILE: 0..1
    edges: Array  # (K+1,) QUANTILE: where levels begin and end


# A tile holds, for 16 columns, four blocks of K vectors: scores and weights, and, the same in every
# lane, the scale's values and log_weights. Inner functions take its address (simd.py says why).


@inner
def _spread(tile: Any, K: int) -> Any:
    """Mass, mean, 1 - mean and mean square of the weights."""
    one, zero = fill(tile, 1.0), fill(tile, 0.0)
    mass, low, high, square = zero, zero, zero, zero
    for k in range(K):
        weight, u = load(tile, LANES * (K + k)), load(tile, LANES * (2 * K + k))
        mass = mass + weight
        high = high + weight * u
        low = low + weight * (one - u)
        square = square + weight * u * u
    high, low = high / mass, low / mass
    return mass, maximum(high, fill(tile, _TINY)), maximum(low, fill(tile, _TINY)), square / mass


@inner
def _weigh(tile: Any, K: int, theta: Any) -> None:
    """Weights = exp(scores + θ·values), the highest 1."""
    top = load(tile, 0) + theta * load(tile, LANES * 2 * K)
    for k in range(1, K):
        top = maximum(top, load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k)))
    for k in range(K):
        score = load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k))
        store(tile, LANES * (K + k), exp(score - top))


@glue
def _odds(high: Any, low: Any, one: Any) -> Any:
    return log(one / low) - log(one / high)


@glue
def _tilt(tile: Any, K: int, sharpness: float, high: Any, low: Any) -> Any:
    """Calibrate; returns the mass, and 0 where the mean is back in place, else 1."""
    zero, one = fill(tile, 0.0), fill(tile, 1.0)
    for k in range(K):
        score = load(tile, LANES * k) * fill(tile, sharpness)
        store(tile, LANES * k, score + load(tile, LANES * (3 * K + k)))
    goal = _odds(high, low, one)
    theta, mass, unsure = zero, one, one
    for _ in range(_ROUNDS):
        _weigh(tile, K, theta)
        mass, high, low, square = _spread(tile, K)
        gap = _odds(high, low, one) - goal
        variance = square - high * high
        far = maximum(gap, zero - gap)
        unsure = where_at_most(far, fill(tile, _CLOSE), zero, one)
        unsure = where_at_most(variance, fill(tile, _NARROW), one, unsure)
        if total(unsure) == 0.0:
            break
        theta = theta - gap * high * low / maximum(variance, fill(tile, _TINY))
    return mass, unsure


@glue
def _chance(tile: Any, K: int, first: int, mass: Any) -> Any:
    """The share of the mass at level `first` and above."""
    above = fill(tile, 0.0)
    for k in range(first, K):
        above = above + load(tile, LANES * (K + k))
    return above / mass


@inner
def _quantile(tile: Any, K: int, edges: Any, share: float, mass: Any) -> Any:
    """Where the share of the mass is reached, each level's mass lying evenly between its edges."""
    zero, one = fill(tile, 0.0), fill(tile, 1.0)
    left, place = fill(tile, share) * mass, fill(tile, edges[0])
    for k in range(K):
        weight = load(tile, LANES * (K + k))
        part = maximum(zero, minimum(one, left / weight))
        place = place + part * fill(tile, edges[k + 1] - edges[k])
        left = left - weight
    return place


@glue
def _fill_tile(tile: Any, K: int, scores: Any, begin: int, M: int, count: int) -> None:
    """Scores of the columns from begin on; a last tile that is not full repeats its last column."""
    for k in range(K):
        for t in range(LANES):
            tile[LANES * k + t] = scores[begin + k * M + min(t, count - 1)]


@inner
def _mean(scores: Any, begin: int, M: int, K: int, unit: Any, count: int) -> Any:
    """The means of the softmax of `count` columns' scores."""
    top, mass, mean = load_part(scores, begin, count), fill(scores, 0.0), fill(scores, 0.0)
    for k in range(1, K):
        top = maximum(top, load_part(scores, begin + k * M, count))
    for k in range(K):
        weight = exp(load_part(scores, begin + k * M, count) - top)
        mass = mass + weight
        mean = mean + weight * fill(scores, unit[k])
    return mean / mass


@kernel
def _means(scores: Any, M: int, unit: Any, out: Any) -> None:
    B, K, scores, unit = len(out) // M, len(unit), address(scores), address(unit)
    for row in range(B):
        for begin in range(0, M, LANES):
            count = min(LANES, M - begin)
            mean = _mean(scores, row * K * M + begin, M, K, unit, count)
            store_part(out, row * M + begin, mean, count)


@kernel
def _calibrated_bounds(
    scores: Any, M: int, criterion: Any, memory: Any, lower: Any, upper: Any
) -> None:
    K, scores, edges = len(criterion.unit), address(scores), address(criterion.edges)
    B, tile = len(lower) // M, address(memory)
    slack, sure = fill(tile, SLACK), fill(tile, 0.5)
    for k in range(K):
        store(tile, LANES * (2 * K + k), fill(tile, criterion.unit[k]))
    for row in range(B):
        for k in range(K):
            store(tile, LANES * (3 * K + k), fill(tile, criterion.log_weights[row, k]))
        for begin in range(0, M, LANES):
            count = min(LANES, M - begin)
            _fill_tile(tile, K, scores, row * K * M + begin, M, count)
            _weigh(tile, K, fill(tile, 0.0))
            _, high, low, _ = _spread(tile, K)
            mass, unsure = _tilt(tile, K, criterion.sharpness, high, low)
            if criterion.kind == CHANCE:
                chance = _chance(tile, K, criterion.first, mass)
                below, above = chance - slack, chance + slack
            else:
                below = _quantile(tile, K, edges, criterion.share - SLACK, mass)
                above = _quantile(tile, K, edges, criterion.share + SLACK, mass)
            below = where_at_most(unsure, sure, below, fill(tile, -np.inf))
            above = where_at_most(unsure, sure, above, fill(tile, np.inf))
            store_part(lower, row * M + begin, below, count)
            store_part(upper, row * M + begin, above, count)


# -- the best few of a row ------------------------------------------------------------------------


@inner
def sink(heap: Any, place: int) -> None:
    """Put what is at a place of the heap, whose least is first, below all that is less."""
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
def _keep_possible(lower: Any, upper: Any, n: int, allowed: Any) -> None:
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
                        sink(heap, place)
            elif lower[row, m] > heap[0]:
                heap[0] = lower[row, m]
                sink(heap, np.int64(0))
        if count < n:
            continue
        for m in range(lower.shape[1]):
            allowed[row, m] &= upper[row, m] >= heap[0]


# -- for arrays -----------------------------------------------------------------------------------


def mean_levels(scores: Array, unit: Array) -> Array:
    """Means over unit (K,) of the softmax of scores (B, M, K), to MEAN_SLACK. Returns (B, M)."""
    B, M, _ = scores.shape
    out = np.empty((B, M), scores.dtype)
    _means(_flat(scores), M, unit.astype(scores.dtype), out.reshape(-1))
    return out


def bounds(scores: Array, criterion: Criterion) -> tuple[Array, Array]:
    """Lower and upper bounds of what columns are ranked by, for scores (B, M, K). (B, M) each."""
    B, M, _ = scores.shape
    lower, upper = np.empty((B, M)), np.empty((B, M))
    arrays = criterion.unit, criterion.log_weights, criterion.edges
    unit, log_weights, edges = (np.array(array, np.float64) for array in arrays)
    whole = criterion._replace(unit=unit, log_weights=log_weights, edges=edges)
    memory = np.empty(4 * len(unit) * LANES)  # made here, as an address keeps no array alive
    _calibrated_bounds(_flat(scores), M, whole, memory, lower.reshape(-1), upper.reshape(-1))
    return lower, upper


def keep_possible(lower: Array, upper: Array, n: int, allowed: Array) -> None:
    """Of the allowed (B, M), keep those that can be among the n best of their row."""
    if n < lower.shape[1]:
        _keep_possible(lower, upper, n, allowed)


def _flat(scores: Array) -> Array:
    return np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1)
