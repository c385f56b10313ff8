"""Bounds of what all columns are ranked by, so that only a few need the exact calculation.

Sixteen columns at a time, in double precision. What is ranked by is a mean, or a chance or quantile
of the calibrated distribution p' ∝ p^(1/T)·w·exp(θ·v) (calibration.py), θ being found by Newton's
method on the mean's log-odds. Where that does not settle soon, the bounds say nothing (±∞).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from cfnade.kernels.layout import Array
from cfnade.kernels.simd import (
    LANES,
    address,
    fill,
    load,
    maximum,
    minimum,
    store,
    store_part,
    total,
    where_at_most,
)
from cfnade.kernels.simd_math import exp, log

MEAN, CHANCE, QUANTILE = 0, 1, 2
SLACK = 1e-6
"""Half the distance of the bounds, as a mean over 0..1 or as a chance: far above all rounding."""

_ROUNDS = 20
_CLOSE = 1e-9  # of log-odds, far below the slack
_NARROW = 1e-6  # a variance below which log-odds say too little about chances
_TINY = 1e-300


class Wanted(NamedTuple):
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


@njit(nogil=True)
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


@njit(nogil=True)
def _weigh(tile: Any, K: int, theta: Any) -> None:
    """Weights = exp(scores + θ·values), the highest 1."""
    top = load(tile, 0) + theta * load(tile, LANES * 2 * K)
    for k in range(1, K):
        top = maximum(top, load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k)))
    for k in range(K):
        score = load(tile, LANES * k) + theta * load(tile, LANES * (2 * K + k))
        store(tile, LANES * (K + k), exp(score - top))


@njit(nogil=True)
def _odds(high: Any, low: Any, one: Any) -> Any:
    return log(one / low) - log(one / high)


@njit(nogil=True)
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


@njit(nogil=True)
def _chance(tile: Any, K: int, first: int, mass: Any) -> Any:
    found = fill(tile, 0.0)
    for k in range(first, K):
        found = found + load(tile, LANES * (K + k))
    return found / mass


@njit(nogil=True)
def _quantile(tile: Any, K: int, edges: Any, share: float, mass: Any) -> Any:
    """Where the share of the mass is reached, each level's mass lying evenly between its edges."""
    zero, one = fill(tile, 0.0), fill(tile, 1.0)
    left, found = fill(tile, share) * mass, fill(tile, edges[0])
    for k in range(K):
        weight = load(tile, LANES * (K + k))
        part = maximum(zero, minimum(one, left / weight))
        found = found + part * fill(tile, edges[k + 1] - edges[k])
        left = left - weight
    return found


@njit(nogil=True)
def _fill_tile(tile: Any, scores: Any, begin: int, count: int) -> None:
    """Scores of the columns from begin on; a last tile that is not full repeats its last column."""
    for t in range(LANES):
        for k in range(scores.shape[1]):
            tile[LANES * k + t] = scores[begin + min(t, count - 1), k]


@njit(nogil=True, cache=True)
def _bounds(scores: Any, wanted: Any, tile: Any, lower: Any, upper: Any) -> None:
    M, K = scores.shape
    at, slack, sure = address(tile), fill(tile, SLACK), fill(tile, 0.5)
    for begin in range(0, M, LANES):
        count = min(LANES, M - begin)
        _fill_tile(tile, scores, begin, count)
        _weigh(at, K, fill(tile, 0.0))
        _, high, low, _ = _spread(at, K)
        below, above = high - slack, high + slack
        if wanted.kind != MEAN:
            mass, unsure = _tilt(at, K, wanted.sharpness, high, low)
            if wanted.kind == CHANCE:
                chance = _chance(at, K, wanted.first, mass)
                below, above = chance - slack, chance + slack
            else:
                below = _quantile(at, K, wanted.edges, wanted.share - SLACK, mass)
                above = _quantile(at, K, wanted.edges, wanted.share + SLACK, mass)
            below = where_at_most(unsure, sure, below, fill(tile, -np.inf))
            above = where_at_most(unsure, sure, above, fill(tile, np.inf))
        store_part(lower, begin, below, count)
        store_part(upper, begin, above, count)


def bounds(scores: Array, wanted: Wanted) -> tuple[Array, Array]:
    """Lower and upper bounds of what is wanted, for scores (M, K). Both (M,), float64."""
    M, K = scores.shape
    tile = np.empty((4, K, LANES))
    tile[2], tile[3] = wanted.unit[:, None], wanted.log_weights[:, None]
    lower, upper = np.empty(M), np.empty(M)
    _bounds(scores, wanted, tile.reshape(-1), lower, upper)
    return lower, upper
