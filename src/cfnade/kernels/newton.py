"""The most probable coefficients of features, given some ratings: Newton's method.

Level k of rating t scores base[t, k] + slopes[t, k]·z; z has a Gaussian prior around 0. The cost,
the ratings' negative log-likelihood and that of the prior, is strictly convex, so there is one
answer, whatever the method starts from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.kernels.compiled import inner, kernel
from cfnade.kernels.memory import Array

_ROUNDS = 50
_CLOSE = 1e-7
"""A step that promises less is the last: the error after it is about this, squared."""
_SHORTEST = 1e-6
_CHORD_ROUNDS = 12
_CHORD_CLOSE = 1e-10
"""As _CLOSE, but smaller: these steps converge linearly."""


@inner
def _cost(base: Any, slopes: Any, levels: Any, precision: Any, z: Any, chances: Any) -> Any:
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
        own, mass = chances[t, levels[t]], 0.0
        for k in range(K):
            chances[t, k] = np.exp(chances[t, k] - top)
            mass += chances[t, k]
        for k in range(K):
            chances[t, k] /= mass
        cost += np.log(mass) + top - own
    return cost


@inner
def _slope(
    slopes: Any, levels: Any, precision: Any, z: Any, chances: Any, gradient: Any, curvature: Any
) -> None:
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


@inner
def _newton_step(curvature: Any, gradient: Any, step: Any) -> Any:
    """step = curvature⁻¹ gradient, by Cholesky in place; returns gradient · step."""
    D = len(gradient)
    for d in range(D):
        for e in range(d + 1):
            rest = curvature[d, e]
            for i in range(e):
                rest -= curvature[d, i] * curvature[e, i]
            curvature[d, e] = np.sqrt(rest) if d == e else rest / curvature[e, e]
        step[d] = gradient[d]
        for e in range(d):
            step[d] -= curvature[d, e] * step[e]
        step[d] /= curvature[d, d]
    promise = 0.0
    for i in range(D):
        d = D - 1 - i
        for e in range(d + 1, D):
            step[d] -= curvature[e, d] * step[e]
        step[d] /= curvature[d, d]
        promise += gradient[d] * step[d]
    return promise


@kernel
def _descend(base: Any, slopes: Any, levels: Any, precision: Any, z: Any) -> None:
    """z, the start, becomes the least cost's place."""
    n, K, D = slopes.shape
    chances, curvature = np.empty((n, K)), np.empty((D, D))
    gradient, step, tried = np.empty(D), np.empty(D), np.empty(D)
    now = _cost(base, slopes, levels, precision, z, chances)
    for _ in range(_ROUNDS):
        _slope(slopes, levels, precision, z, chances, gradient, curvature)
        promise = _newton_step(curvature, gradient, step)
        length, cost = 1.0, np.inf
        while length > _SHORTEST:
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
        if promise < _CLOSE:
            break


def most_probable(
    base: Array, slopes: Array, levels: Array, variances: Array, start: Array | None = None
) -> Array:
    """The coefficients, for base (n, K), slopes (n, K, D) and the prior's variances. (D,)."""
    z = np.zeros(len(variances)) if start is None else start.astype(np.float64)
    exact = (np.ascontiguousarray(part, np.float64) for part in (base, slopes))
    _descend(*exact, levels.astype(np.int64), 1.0 / variances.astype(np.float64), z)
    return z


def most_probable_without_each(
    base: Array,
    slopes: Array,
    levels: Array,
    variances: Array,
    start: Array,
    left_out: IntArray,
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
    chances = _level_chances(base[:1], flat, z[:1])[0]  # (K, n)
    chances[:, left_out[0]] = 0.0
    mean = np.einsum("kn,knd->nd", chances, exact)
    curvature = flat.T @ (flat * chances.reshape(-1, 1)) - mean.T @ mean + np.diag(precision)
    inverse = np.linalg.inv(curvature)
    active, promised, unsolved = np.arange(B), np.full(B, np.inf), list[int]()
    for _ in range(_CHORD_ROUNDS):
        rest = _level_chances(base if len(active) == B else base[active], flat, z[active])
        rest[:, levels, np.arange(n)] -= 1.0
        rest[np.arange(len(active)), :, left_out[active]] = 0.0
        gradient = rest.reshape(len(active), -1) @ flat + z[active] * precision
        step = gradient @ inverse
        z[active] -= step
        promise = (gradient * step).sum(1)
        worse = ~(promise < promised[active])
        unsolved += active[worse].tolist()
        promised[active] = promise
        active = active[~worse & (promise > _CHORD_CLOSE)]
        if not len(active):
            break
    for number in [*unsolved, *active.tolist()]:
        if 0 <= promised[number] <= _CHORD_CLOSE:  # rounding is all that is left to gain
            continue
        kept = np.arange(n) != left_out[number]
        own = base[number].T[kept]
        z[number] = most_probable(own, slopes[kept], levels[kept], variances, start)
    return z


def _level_chances(base: Array, flat: Array, z: Array) -> Array:
    """Probabilities of the levels at coefficients z (B, D). Returns (B, K, n)."""
    scores = (z @ flat.T).reshape(base.shape)
    scores += base
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(1, keepdims=True)
    return scores
