"""Distributions with a given mean: softmax(scores + θ·v), θ solved row by row.

Each row's bits depend on nothing but the row: equal distributions stay equal, however many there
are. In numpy a few rows took as long as a thousand.
"""

from __future__ import annotations

from math import exp, inf, log, nan
from typing import Any

import numpy as np

from cfnade.kernels.compiled import inner, kernel
from cfnade.kernels.memory import Array

_STEPS = 200  # at most; usually 4 to 8, and where Newton gains little the bracket is halved
_PRECISION = 1e-11  # of a mean's log-odds: relative to its distance from the nearer end


@inner
def _bound(scores: Any, unit: Any, like: Any) -> float:
    """θ lies in ±bound.

    If θ·v falls faster from any level to the next than scores - log(like) rises, the tilted
    distribution lies below `like`, and so does its mean; the other way round it lies above.
    """
    most, least, step = -inf, inf, inf
    for k in range(len(unit)):
        if like[k] > 0:
            change = scores[k] - log(like[k])
            most, least = max(most, change), min(least, change)
        if k > 0:
            step = min(step, unit[k] - unit[k - 1])
    return (most - least) / step


@inner
def _weigh(scores: Any, unit: Any, theta: float, out: Any) -> None:
    """out (K,) = softmax(scores + θ·v)."""
    top, mass = -inf, 0.0
    for k in range(len(unit)):
        top = max(top, scores[k] + theta * unit[k])
    for k in range(len(unit)):
        out[k] = exp(scores[k] + theta * unit[k] - top)
        mass += out[k]
    for k in range(len(unit)):
        out[k] /= mass


@inner
def _odds(chances: Any, unit: Any) -> Any:
    """The mean, what it lacks to 1, and their log-odds. Both parts are exact near 0."""
    mean, rest = 0.0, 0.0
    for k in range(len(unit)):
        mean += chances[k] * unit[k]
        rest += chances[k] * (1 - unit[k])
    if mean <= 0:
        return mean, rest, -inf
    return mean, rest, log(mean) - log(rest) if rest > 0 else inf


@inner
def _newton(chances: Any, unit: Any, mean: float, rest: float, gap: float) -> float:
    """Newton's step for θ: log-odds are nearly a straight line in it, the mean itself is not."""
    variance = 0.0
    for k in range(len(unit)):
        variance += chances[k] * (unit[k] - mean) ** 2
    return gap * mean * rest / variance if variance > 0 else nan


@kernel
def _tilt(scores: Any, unit: Any, like: Any, steps: int, out: Any) -> None:
    for row in range(len(scores)):
        _, _, goal = _odds(like[row], unit)
        bound = _bound(scores[row], unit, like[row])
        theta, low, high, before = 0.0, -bound, bound, inf
        for _ in range(steps):
            _weigh(scores[row], unit, theta, out[row])
            mean, rest, odds = _odds(out[row], unit)
            gap = odds - goal
            if not abs(gap) > _PRECISION:  # or both are at the same end: nothing is left to solve
                break
            if gap > 0:
                high = theta
            else:
                low = theta
            if high <= low:
                break
            ahead = theta - _newton(out[row], unit, mean, rest, gap)
            useful = low < ahead < high and abs(gap) < before / 2
            theta, before = ahead if useful else (low + high) / 2, abs(gap)


def tilt_to_mean(scores: Array, unit: Array, like: Array) -> Array:
    """The tilted softmax of scores (n, K) that has the mean of `like` (n, K). Returns (n, K).

    unit (K,) are the scale's values moved to 0..1. A level is impossible (score -inf) exactly where
    it is in `like`, so that a solution exists.
    """
    out = np.empty_like(scores)
    arrays = (np.require(array, np.float64, ["C", "W"]) for array in (scores, unit, like))
    _tilt(*arrays, _STEPS, out)
    return out
