"""Costs of sixteen targets at once and their gradients in the scores (Eq. 5, 17 and 18).

Scores lie level by level: scores[16·k + t]. Every log-sum-exp runs along the levels with its own
maximum, so the largest term of each prefix is 1 and nothing overflows or vanishes, however far the
scores lie apart. Work: 2K exponentials per tile; all of it stays in the first-level cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cfnade.kernels.buffers import Array, block_layout, scratch_buffer, tile_scratch
from cfnade.kernels.jit import inlined, internal, kernel
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    exp,
    horizontal_sum,
    load,
    log,
    maximum,
    select_le,
    store,
)
from cfnade.kernels.threads import run_parallel

LOG_INTERVAL = 8  # a product of this many sums of up to 255 terms stays finite


@inlined
def tile_cost(levels, ordinal, scratch):
    """Σ_t weights[t]·cost_t of the scratch's scores; scratch.gradient = its gradient in them.

    cost = (1 - ordinal)·regular + ordinal·Eq. 17. Lanes without a target carry weight 0 and finite
    scores.
    """
    scores, gradient, running = scratch.scores, scratch.gradient, scratch.level_sums
    zero, level, weight = broadcast(scores, 0.0), load(scratch.levels, 0), load(scratch.weights, 0)
    for k in range(levels):
        store(gradient, LANES * k, zero)
    cost = zero
    if ordinal < 1.0:
        factor = weight * broadcast(scores, 1.0 - ordinal)
        cost = cost + factor * _add_regular_cost(scores, levels, level, factor, gradient)
    if ordinal > 0.0:
        factor = weight * broadcast(scores, ordinal)
        for way in range(1, -2, -2):
            cost = cost + factor * _add_ordinal_cost(
                scores, levels, level, way, factor, gradient, running
            )
    return float(horizontal_sum(cost))


@internal
def _add_regular_cost(scores, levels, level, factor, gradient):
    """-log softmax at the true level; adds share · its gradient."""
    high = load(scores, 0)
    for k in range(1, levels):
        high = maximum(high, load(scores, LANES * k))
    zero, ones = broadcast(scores, 0.0), broadcast(scores, 1.0)
    mass, true_score = zero, zero
    for k in range(levels):
        score = load(scores, LANES * k)
        mass = mass + exp(score - high)
        k_vector = broadcast(scores, k)
        true_score = true_score + select_le(
            (level - k_vector) * (level - k_vector), zero, score, zero
        )
    for k in range(levels):
        k_vector = broadcast(scores, k)
        hit = select_le((level - k_vector) * (level - k_vector), zero, ones, zero)
        derivative = exp(load(scores, LANES * k) - high) / mass - hit
        store(gradient, LANES * k, load(gradient, LANES * k) + factor * derivative)
    return (high - true_score) + log(mass)


@internal
def _add_ordinal_cost(scores, levels, truth, way, factor, gradient, running):
    """One product of Eq. 17: way 1 over the levels up to the true one, way -1 from it on.

    Along the levels, mass_j = Σ exp(s - top) of those passed; new_j = e^{s_j}/mass_j and
    kept_j = mass_{j-1}/mass_j, in one scale. With after_j = 1 + kept_{j+1}·after_{j+1} the gradient
    is new_j·after_j - 1. Adds share · that; returns the negative log of the product.
    """
    zero, ones = broadcast(scores, 0.0), broadcast(scores, 1.0)
    first = 0 if way > 0 else levels - 1
    sign = broadcast(scores, way)
    level = truth * sign
    top, mass, product, cost = load(scores, LANES * first), ones, ones, zero
    store(running, 2 * LANES * first, ones)
    store(running, 2 * LANES * first + LANES, zero)
    for step in range(1, levels):
        k = first + way * step
        score = load(scores, LANES * k)
        gap = score - top
        small = exp(select_le(gap, zero, gap, zero - gap))
        old = select_le(gap, zero, mass, mass * small)
        new = select_le(gap, zero, small, ones)
        mass = old + new
        top = maximum(top, score)
        inverse = ones / mass
        store(running, 2 * LANES * k, new * inverse)
        store(running, 2 * LANES * k + LANES, old * inverse)
        k_vector = broadcast(scores, k) * sign
        cost = cost + select_le(k_vector, level, top - score, zero)
        product = product * select_le(k_vector, level, mass, ones)
        if step % LOG_INTERVAL == 0:
            cost = cost + log(product)
            product = ones
    old_share, after = zero, zero
    for step in range(levels):
        k = first + way * (levels - 1 - step)
        k_vector = broadcast(scores, k) * sign
        active = select_le(k_vector, level, ones, zero)
        after = active * (ones + old_share * after)
        derivative = load(running, 2 * LANES * k) * after - active
        old_share = load(running, 2 * LANES * k + LANES)
        store(gradient, LANES * k, load(gradient, LANES * k) + factor * derivative)
    return cost + log(product)


@kernel
def _score_cost(lo, hi, scores, levels, weights, ordinal, gradient, layout, memory):
    """Σ weight · cost of cells lo..hi from their scores (T·K), and its gradient in them."""
    K, cost, scratch = layout.levels, 0.0, tile_scratch(memory, layout)
    zero = broadcast(scratch.levels, 0.0)
    for p in range(lo, hi, LANES):
        count = min(LANES, hi - p)
        store(scratch.levels, 0, zero)
        store(scratch.weights, 0, zero)
        for k in range(K):
            store(scratch.scores, LANES * k, zero)
        for t in range(count):
            scratch.levels[t] = levels[p + t]
            scratch.weights[t] = weights[p + t]
            for k in range(K):
                scratch.scores[LANES * k + t] = scores[(p + t) * K + k]
        cost += tile_cost(K, ordinal, scratch)
        for t in range(count):
            for k in range(K):
                gradient[(p + t) * K + k] = scratch.gradient[LANES * k + t]
    return cost


class Cost(NamedTuple):
    """The cost of some targets, and its gradient in their scores."""

    total: float
    gradient: Array  # (T, K)


def cost_of_scores(
    scores: Array, levels: Array, weights: Array, *, ordinal_weight: float, threads: int
) -> Cost:
    """Return Σ weight · cost (Eq. 18 and 21) of scores (T, K), true levels and weights (T,)."""
    T, K = scores.shape
    gradient = np.empty_like(scores)
    layout = block_layout(K, 1)
    parts = scores.reshape(-1), levels, weights.astype(scores.dtype)
    fixed = (*parts, ordinal_weight, gradient.reshape(-1), layout)
    tiles = -(-T // LANES)
    cuts = pairwise([min(T, tiles * t // threads * LANES) for t in range(threads + 1)])
    costs = run_parallel(
        _score_cost, [(*cut, *fixed, scratch_buffer(scores.dtype, layout)) for cut in cuts]
    )
    return Cost(float(sum(costs)), gradient)
