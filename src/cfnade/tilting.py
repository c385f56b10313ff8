"""Distributions with a given mean: softmax(scores + θ·v), θ solved for each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_STEPS = 200  # at most; usually 4 to 8, and where Newton gains little the bracket is halved
_PRECISION = 1e-11  # of a mean's log-odds: relative to its distance from the nearer end


def tilt_to_mean(scores: FloatArray, unit: FloatArray, like: FloatArray) -> FloatArray:
    """The tilted softmax of scores (n, K) that has the mean of `like` (n, K). Returns (n, K).

    unit (K,) are the scale's values moved to 0..1. A level is impossible (score -inf) exactly where
    it is in `like`, so that a solution exists.
    """
    mean, rest = like @ unit, like @ (1 - unit)  # their sum is 1; each is exact near 0. (n,)
    theta, low, high = _bracket(scores, unit, like)
    before = np.full_like(theta, np.inf)
    out = np.empty_like(scores)
    todo = np.arange(len(scores))
    for _ in range(_STEPS):
        q = _softmax(scores[todo] + theta[todo, None] * unit)
        out[todo] = q
        gap, newton = _newton(q, unit, mean[todo], rest[todo])
        low[todo] = np.where(gap > 0, low[todo], theta[todo])
        high[todo] = np.where(gap > 0, theta[todo], high[todo])
        next_theta = theta[todo] - newton
        useful = (next_theta > low[todo]) & (next_theta < high[todo])
        useful &= np.abs(gap) < before[todo] / 2
        theta[todo] = np.where(useful, next_theta, (low[todo] + high[todo]) / 2)
        before[todo] = np.abs(gap)
        todo = todo[(np.abs(gap) > _PRECISION) & (high[todo] > low[todo])]
        if not len(todo):
            break
    return out


class _Bracket(NamedTuple):
    start: FloatArray  # (n,)
    low: FloatArray
    high: FloatArray


def _bracket(scores: FloatArray, unit: FloatArray, like: FloatArray) -> _Bracket:
    """Bounds of θ, with the start between them.

    If θ·v falls faster from any level to the next than scores - log(like) rises, the tilted
    distribution lies below `like`, and so does its mean; the other way round it lies above.
    """
    possible = like > 0
    logs = np.log(like, where=possible, out=np.zeros_like(like))
    change = np.where(possible, scores, 0.0) - logs  # (n, K)
    most = change.max(1, where=possible, initial=-np.inf)
    least = change.min(1, where=possible, initial=np.inf)
    bound = (most - least) / np.diff(unit).min()
    return _Bracket(np.zeros_like(bound), -bound, bound)


def _newton(
    q: FloatArray, unit: FloatArray, mean: FloatArray, rest: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """How far the mean's log-odds are from those wanted, and Newton's step. Both (n,).

    Log-odds are nearly a straight line in θ, the mean itself is not.
    """
    found, left = q @ unit, q @ (1 - unit)
    # A mean at the very end of the scale, or a level that is certain, leaves nothing to solve.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = np.nan_to_num(np.log(found) - np.log(left) - np.log(mean) + np.log(rest))
        variance = np.sum(q * np.square(unit - found[:, None]), axis=1)
        return gap, gap * found * left / variance


def _softmax(scores: FloatArray) -> FloatArray:
    weights: FloatArray = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights
