"""Small convex problems, one per row: tilted distributions and coefficients of features.

`tilt_to_mean` finds softmax(scores + θ·v) with a given mean. Each row's bits depend on nothing but
the row, so equal distributions stay equal, however many there are.

`most_probable` finds the coefficients z of features given some ratings: level k of rating t scores
base[t, k] + slopes[t, k]·z, and z has a Gaussian prior around 0. The cost, the negative
log-likelihood of the ratings and of the prior, is strictly convex: the minimum is unique.
"""

from __future__ import annotations

from math import exp, inf, log, nan

import numpy as np

from cfnade._typing import IntArray
from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import internal, kernel
from cfnade.kernels.posterior import cholesky, solve

_MAX_TILT_STEPS = 200  # usually 4 to 8; where Newton gains little, the bracket is halved
_MAX_TILT = 200.0  # of find_tilts, from one level to the next
_TILT_PRECISION = 1e-11  # of a mean's log-odds: relative to its distance from the nearer end


@internal
def _tilt_bound(scores, unit, like):
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


@internal
def _tilted_softmax(scores, unit, theta, out):
    """out (K,) = softmax(scores + θ·v)."""
    top, mass = -inf, 0.0
    for k in range(len(unit)):
        top = max(top, scores[k] + theta * unit[k])
    for k in range(len(unit)):
        out[k] = exp(scores[k] + theta * unit[k] - top)
        mass += out[k]
    for k in range(len(unit)):
        out[k] /= mass


@internal
def _mean_and_log_odds(chances, unit):
    """The mean, what it lacks to 1, and their log-odds. Both parts are exact near 0."""
    mean, complement = 0.0, 0.0
    for k in range(len(unit)):
        mean += chances[k] * unit[k]
        complement += chances[k] * (1 - unit[k])
    if mean <= 0:
        return mean, complement, -inf
    return mean, complement, log(mean) - log(complement) if complement > 0 else inf


@internal
def _log_odds_step(chances, unit, mean, complement, gap):
    """Newton's step for θ: log-odds are nearly a straight line in it, the mean itself is not."""
    variance = 0.0
    for k in range(len(unit)):
        variance += chances[k] * (unit[k] - mean) ** 2
    return gap * mean * complement / variance if variance > 0 else nan


@internal
def _solve_tilt(scores, unit, goal, bound, steps, out):
    """Return θ within ±bound for which out (K,) = softmax(scores + θ·v) has a mean with these
    log-odds: Newton's steps, or halvings of the bracket where these gain little."""
    theta, low, high, before = 0.0, -bound, bound, inf
    for _ in range(steps):
        _tilted_softmax(scores, unit, theta, out)
        mean, complement, odds = _mean_and_log_odds(out, unit)
        gap = odds - goal
        if not abs(gap) > _TILT_PRECISION:  # or both are at the same end: nothing is left to solve
            break
        if gap > 0:
            high = theta
        else:
            low = theta
        if high <= low:
            break
        ahead = theta - _log_odds_step(out, unit, mean, complement, gap)
        useful = low < ahead < high and abs(gap) < before / 2
        theta, before = ahead if useful else (low + high) / 2, abs(gap)
    return theta


@kernel
def _tilt_like(scores, unit, like, steps, out):
    for row in range(len(scores)):
        _, _, goal = _mean_and_log_odds(like[row], unit)
        bound = _tilt_bound(scores[row], unit, like[row])
        _solve_tilt(scores[row], unit, goal, bound, steps, out[row])


@kernel
def _find_tilts(scores, unit, means, steps, bound, out):
    probabilities = np.empty(len(unit))
    for row in range(len(scores)):
        goal = log(means[row]) - log(1 - means[row])
        out[row] = _solve_tilt(scores[row], unit, goal, bound, steps, probabilities)


def tilt_to_mean(scores: Array, unit: Array, like: Array) -> Array:
    """Return the tilted softmax of scores (n, K) that has the mean of `like` (n, K). (n, K).

    unit (K,) are the scale's values moved to 0..1. A level is impossible (score -inf) exactly where
    it is in `like`, so that a solution exists.
    """
    out = np.empty_like(scores)
    arrays = (np.require(array, np.float64, ["C", "W"]) for array in (scores, unit, like))
    _tilt_like(*arrays, _MAX_TILT_STEPS, out)
    return out


def find_tilts(scores: Array, means: Array) -> Array:
    """Return the θ for which softmax(scores + θ·k) has these means, for scores (n, K). (n,).

    Means (n,) lie between 0 and K - 1, and no level is impossible.
    """
    last, out = scores.shape[1] - 1, np.empty(len(scores))
    unit = np.arange(last + 1) / last
    _find_tilts(scores, unit, means / last, _MAX_TILT_STEPS, _MAX_TILT * last, out)
    return np.asarray(out / last)


_MAX_STEPS = 50
_TOLERANCE = 1e-7
"""A step that promises less is the last: the error after it is about this, squared."""
_MIN_STEP_LENGTH = 1e-6
_MAX_CHORD_STEPS = 12
_CHORD_TOLERANCE = 1e-10
"""As _CLOSE, but smaller: these steps converge linearly."""


@internal
def _cost(base, slopes, levels, precision, z, chances):
    """The cost at z; chances (n, K) become those of the levels there."""
    n, K, D = slopes.shape
    cost = 0.0
    for d in range(D):
        cost += 0.5 * precision[d] * z[d] * z[d]
    for t in range(n):
        top = -np.inf
        for k in range(K):
            score = base[t, k]
            for d in range(D):
                score += slopes[t, k, d] * z[d]
            chances[t, k] = score
            top = max(top, score)
        own_score, mass = chances[t, levels[t]], 0.0
        for k in range(K):
            chances[t, k] = np.exp(chances[t, k] - top)
            mass += chances[t, k]
        for k in range(K):
            chances[t, k] /= mass
        cost += np.log(mass) + top - own_score
    return cost


@internal
def _derivatives(slopes, levels, precision, z, chances, gradient, curvature):
    """First and second derivatives of the cost."""
    n, K, D = slopes.shape
    mean = np.empty(D)
    curvature[:] = 0.0
    for d in range(D):
        gradient[d] = precision[d] * z[d]
        curvature[d, d] = precision[d]
    for t in range(n):
        mean[:] = 0.0
        for k in range(K):
            for d in range(D):
                mean[d] += chances[t, k] * slopes[t, k, d]
        for d in range(D):
            gradient[d] += mean[d] - slopes[t, levels[t], d]
        for k in range(K):
            for d in range(D):
                part = chances[t, k] * (slopes[t, k, d] - mean[d])
                for e in range(D):
                    curvature[d, e] += part * slopes[t, k, e]


@kernel
def _minimize(base, slopes, levels, precision, z):
    """Move z from the start to the minimum of the cost."""
    n, K, D = slopes.shape
    chances, curvature = np.empty((n, K)), np.empty((D, D))
    gradient, step, tried = np.empty(D), np.empty(D), np.empty(D)
    now = _cost(base, slopes, levels, precision, z, chances)
    for _ in range(_MAX_STEPS):
        _derivatives(slopes, levels, precision, z, chances, gradient, curvature)
        cholesky(curvature)
        promise = 0.0
        for d in range(D):
            step[d] = gradient[d]
        solve(curvature, step)
        for d in range(D):
            promise += gradient[d] * step[d]
        length, cost = 1.0, np.inf
        while length > _MIN_STEP_LENGTH:
            for d in range(D):
                tried[d] = z[d] - length * step[d]
            cost = _cost(base, slopes, levels, precision, tried, chances)
            if cost <= now:
                break
            length *= 0.5
        if not cost <= now:  # rounding is all that is left to gain
            break
        for d in range(D):  # one by one: Numba would compile an error's whole text for arrays
            z[d] = tried[d]
        now = cost
        if promise < _TOLERANCE:
            break


def most_probable(
    base: Array, slopes: Array, levels: Array, variances: Array, start: Array | None = None
) -> Array:
    """Return the coefficients (D,), for base (n, K), slopes (n, K, D) and the prior's variances."""
    z = np.zeros(len(variances)) if start is None else start.astype(np.float64)
    exact = (np.ascontiguousarray(part, np.float64) for part in (base, slopes))
    _minimize(*exact, levels.astype(np.int64), 1.0 / variances.astype(np.float64), z)
    return z


def most_probable_without_each(
    base: Array, slopes: Array, levels: Array, variances: Array, start: Array, left_out: IntArray
) -> Array:
    """Solve many problems that share their features, each without one of the n ratings.

    The curvature hardly depends on one rating, so all problems take steps with the inverse at the
    start (the chord method): two matrix products per round. Where that does not converge quickly,
    Newton's method finds the same minimum.

    Args:
        base: Scores of each problem (B, K, n), levels before ratings.
        slopes: Features (n, K, D).
        levels: Levels of the ratings (n,).
        variances: Variances of the prior (D,).
        start: Coefficients (D,) that are close to every solution.
        left_out: The rating that each problem lacks (B,); its scores do not matter.

    Returns:
        The coefficients of each problem (B, D).
    """
    B, K, n = base.shape
    precision = 1.0 / variances.astype(np.float64)
    exact = slopes.astype(np.float64).swapaxes(0, 1)  # (K, n, D)
    flat = np.ascontiguousarray(exact).reshape(K * n, -1)
    z = np.tile(start.astype(np.float64), (B, 1))
    chances = _level_probabilities(base[:1], flat, z[:1])[0]  # (K, n)
    chances[:, left_out[0]] = 0.0
    mean = np.einsum("kn,knd->nd", chances, exact)
    curvature = flat.T @ (flat * chances.reshape(-1, 1)) - mean.T @ mean + np.diag(precision)
    inverse = np.linalg.inv(curvature)
    active, promised, unsolved = np.arange(B), np.full(B, np.inf), list[int]()
    for _ in range(_MAX_CHORD_STEPS):
        residuals = _level_probabilities(
            base if len(active) == B else base[active], flat, z[active]
        )
        residuals[:, levels, np.arange(n)] -= 1.0
        residuals[np.arange(len(active)), :, left_out[active]] = 0.0
        gradient = residuals.reshape(len(active), -1) @ flat + z[active] * precision
        step = gradient @ inverse
        z[active] -= step
        promise = (gradient * step).sum(1)
        worse = ~(promise < promised[active])
        unsolved += active[worse].tolist()
        promised[active] = promise
        active = active[~worse & (promise > _CHORD_TOLERANCE)]
        if not len(active):
            break
    for number in [*unsolved, *active.tolist()]:
        if 0 <= promised[number] <= _CHORD_TOLERANCE:  # rounding is all that is left to gain
            continue
        mask = np.arange(n) != left_out[number]
        scores = base[number].T[mask]
        z[number] = most_probable(scores, slopes[mask], levels[mask], variances, start)
    return z


def _level_probabilities(base: Array, flat: Array, z: Array) -> Array:
    """Probabilities of the levels at coefficients z (B, D). Returns (B, K, n)."""
    scores = (z @ flat.T).reshape(base.shape)
    scores += base
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(1, keepdims=True)
    return scores
