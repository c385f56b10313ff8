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
def add_states(
    lo: int, hi: int, starts: Any, rows: Any, levels: Any, h: Any, sign: Any, out: Any
) -> None:
    """out[column, level] += sign · h[row] over the columns' ratings. Adds to (M, K, F)."""
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            total, state = out[c, levels[p]], h[rows[p]]
            for i in range(len(state)):
                total[i] += sign * state[i]
