"""The RBM's compiled loops. Ratings come grouped by column; each kernel takes a range [lo, hi).

Threads take disjoint ranges of columns, as in autorec_kernels.py.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_FAST = {"reassoc", "contract", "nsz"}  # lets sums be vectorised; infinities stay infinities


@njit(nogil=True, cache=True, fastmath=_FAST)
def add_weights(lo: int, hi: int, starts: Any, rows: Any, levels: Any, W: Any, sums: Any) -> None:
    """sums[row] = Σ W[column, level] over the row's ratings in these columns. Fills (B, F)."""
    sums[:] = 0
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            vector, out = W[c, levels[p]], sums[rows[p]]
            for i in range(len(vector)):
                out[i] += vector[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def add_mean_weights(
    lo: int, hi: int, starts: Any, rows: Any, chances: Any, W: Any, sums: Any
) -> None:
    """The same where a rating is the chances (n, K) of its levels. Fills (B, F)."""
    sums[:] = 0
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            out = sums[rows[p]]
            for k in range(W.shape[1]):
                vector, chance = W[c, k], chances[p, k]
                for i in range(len(vector)):
                    out[i] += chance * vector[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def level_scores(
    lo: int, hi: int, starts: Any, rows: Any, W: Any, b: Any, h: Any, out: Any
) -> None:
    """b[column] + W[column] · h[row] of every rated cell. Fills (n, K)."""
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            state = h[rows[p]]
            for k in range(W.shape[1]):
                vector, score = W[c, k], b[c, k]
                for i in range(len(vector)):
                    score += vector[i] * state[i]
                out[p, k] = score


@njit(nogil=True, cache=True, fastmath=_FAST)
def slopes(
    lo: int,
    hi: int,
    starts: Any,
    rows: Any,
    levels: Any,
    chances: Any,
    h: Any,
    h_mean: Any,
    d_W: Any,
    d_b: Any,
) -> None:
    """Σ chance · h_mean − [level] · h over the columns' ratings, and the same without h.

    Fills the columns of (M, K, F) and (M, K).
    """
    for c in range(lo, hi):
        d_W[c] = 0
        d_b[c] = 0
        for p in range(starts[c], starts[c + 1]):
            total, state, mean = d_W[c, levels[p]], h[rows[p]], h_mean[rows[p]]
            d_b[c, levels[p]] -= 1
            for i in range(len(state)):
                total[i] -= state[i]
            for k in range(d_W.shape[1]):
                total, chance = d_W[c, k], chances[p, k]
                d_b[c, k] += chance
                for i in range(len(mean)):
                    total[i] += chance * mean[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def momentum_step(
    lo: int,
    hi: int,
    w: Any,
    grad: Any,
    speed: Any,
    share: Any,
    decay: Any,
    momentum: Any,
    rate: Any,
) -> None:
    """A step along share · grad + decay · w and, in `speed`, what is left of those before."""
    for i in range(lo, hi):
        speed[i] = momentum * speed[i] + share * grad[i] + decay * w[i]
        w[i] -= rate * speed[i]
