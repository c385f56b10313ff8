"""Bounds of what all columns are ranked by, so that only a few need the exact calculation.

Sixteen columns at a time, in double precision. What is ranked by is a mean, or a chance or quantile
of the calibrated distribution p' ∝ p^(1/T)·w·exp(θ·v) (calibration.py), θ being found by Newton's
method on the mean's log-odds. Where that does not settle soon, the bounds say nothing (±∞).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.compiled import glue, inner, kernel
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.simd import (
    LANES,
    address,
    exp,
    fill,
    load,
    log,
    maximum,
    minimum,
    store,
    store_part,
    total,
    where_at_most,
)

MEAN, CHANCE, QUANTILE = 0, 1, 2
SLACK = 1e-6
"""Half the distance of the bounds, as a mean over 0..1 or as a chance: far above all rounding."""

_ROUNDS = 20
_CLOSE = 1e-9  # of log-odds, far below the slack
_NARROW = 1e-6  # a variance below which log-odds say too little about chances
_TINY = 1e-300


class Criterion(NamedTuple):
    """What columns are ranked by."""

    kind: int  # MEAN, CHANCE or QUANTILE
    unit: Array  # (K,) the scale's values, moved and stretched to 0..1
    sharpness: float  # 1/T
    log_weights: Array  # (K,)
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
def _fill_tile(tile: Any, K: int, scores: Any, begin: int, count: int) -> None:
    """Scores of the columns from begin on; a last tile that is not full repeats its last column."""
    for t in range(LANES):
        for k in range(K):
            tile[LANES * k + t] = scores[(begin + min(t, count - 1)) * K + k]


@glue
def _mean(tile: Any, K: int) -> Any:
    """The mean of the softmax of the tile's scores."""
    top, mass, mean = load(tile, 0), fill(tile, 0.0), fill(tile, 0.0)
    for k in range(1, K):
        top = maximum(top, load(tile, LANES * k))
    for k in range(K):
        weight = exp(load(tile, LANES * k) - top)
        mass = mass + weight
        mean = mean + weight * load(tile, LANES * (2 * K + k))
    return mean / mass


@kernel
def _mean_bounds(scores: Any, K: int, tile: Any, lower: Any, upper: Any) -> None:
    M, tile, scores = len(lower), address(tile), address(scores)
    slack = fill(tile, SLACK)
    for begin in range(0, M, LANES):
        count = min(LANES, M - begin)
        _fill_tile(tile, K, scores, begin, count)
        mean = _mean(tile, K)
        store_part(lower, begin, mean - slack, count)
        store_part(upper, begin, mean + slack, count)


@kernel
def _calibrated_bounds(
    scores: Any, K: int, criterion: Any, tile: Any, lower: Any, upper: Any
) -> None:
    M, tile, scores, edges = len(lower), address(tile), address(scores), address(criterion.edges)
    slack, sure = fill(tile, SLACK), fill(tile, 0.5)
    for begin in range(0, M, LANES):
        count = min(LANES, M - begin)
        _fill_tile(tile, K, scores, begin, count)
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
        store_part(lower, begin, below, count)
        store_part(upper, begin, above, count)


def bounds(scores: Array, criterion: Criterion) -> tuple[Array, Array]:
    """Lower and upper bounds of what columns are ranked by, for scores (M, K). (M,), float64."""
    M, K = scores.shape
    tile = np.empty((4, K, LANES))
    tile[2], tile[3] = criterion.unit[:, None], criterion.log_weights[:, None]
    lower, upper = np.empty(M), np.empty(M)
    flat, out = frozen(np.ascontiguousarray(scores).reshape(-1)), (tile.reshape(-1), lower, upper)
    if criterion.kind == MEAN:
        _mean_bounds(flat, K, *out)
    else:
        arrays = criterion.unit, criterion.log_weights, criterion.edges
        unit, log_weights, edges = (np.array(array, np.float64) for array in arrays)
        whole = criterion._replace(unit=unit, log_weights=log_weights, edges=edges)
        _calibrated_bounds(flat, K, whole, *out)
    return lower, upper
