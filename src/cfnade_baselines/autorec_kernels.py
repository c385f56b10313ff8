"""AutoRec's compiled loops. Ratings come grouped by column; each kernel takes a range [lo, hi).

Threads take disjoint ranges of columns. Tables are then written by one thread only; sums over a
row's ratings go to a buffer per thread, and those are added up in a fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract", "nsz"}  # lets sums be vectorised; infinities stay infinities
_ONE, _TWO = np.float32(1), np.float32(2)
_EPSILON = np.float32(1e-8)


@njit(nogil=True, cache=True, fastmath=_FAST)
def add_inputs(lo: int, hi: int, starts: Any, rows: Any, inputs: Any, V: Any, sums: Any) -> None:
    """sums[row] = Σ input · V[column] over the row's ratings in these columns. Fills (B, H)."""
    sums[:] = 0
    for c in range(lo, hi):
        vector = V[c]
        for p in range(starts[c], starts[c + 1]):
            out, x = sums[rows[p]], inputs[p]
            for i in range(len(vector)):
                out[i] += x * vector[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def squash(lo: int, hi: int, sums: Any, mu: Any, h: Any) -> None:
    """h = σ(the threads' sums (T, B, H) + mu), rows lo to hi. Fills (B, H)."""
    for row in range(lo, hi):
        for i in range(len(mu)):
            z = mu[i]
            for t in range(len(sums)):
                z += sums[t, row, i]
            h[row, i] = _ONE / (_ONE + np.exp(-z))


@njit(nogil=True, cache=True, fastmath=_FAST)
def output_gradients(
    lo: int,
    hi: int,
    starts: Any,
    rows: Any,
    targets: Any,
    W: Any,
    b: Any,
    h: Any,
    d_W: Any,
    d_b: Any,
    d_h: Any,
) -> float:
    """Σ (b + W·h − target)² over these columns, with its gradients; d_h is this thread's own."""
    d_h[:] = 0
    cost = 0.0
    for c in range(lo, hi):
        weights, d_weights = W[c], d_W[c]
        d_weights[:] = 0
        slopes = np.float32(0)
        for p in range(starts[c], starts[c + 1]):
            state, d_state = h[rows[p]], d_h[rows[p]]
            error = b[c] - targets[p]
            for i in range(len(weights)):
                error += weights[i] * state[i]
            cost += error * error
            slope = _TWO * error
            slopes += slope
            for i in range(len(weights)):
                d_weights[i] += slope * state[i]
                d_state[i] += slope * weights[i]
        d_b[c] = slopes
    return cost


@njit(nogil=True, cache=True, fastmath=_FAST)
def unsquash(lo: int, hi: int, d_h: Any, h: Any, d_sums: Any) -> None:
    """From the threads' d_h (T, B, H) to the gradient of the sums, rows lo to hi. Fills (B, H)."""
    for row in range(lo, hi):
        for i in range(h.shape[1]):
            slope = np.float32(0)
            for t in range(len(d_h)):
                slope += d_h[t, row, i]
            d_sums[row, i] = slope * h[row, i] * (_ONE - h[row, i])


@njit(nogil=True, cache=True, fastmath=_FAST)
def input_gradients(
    lo: int, hi: int, starts: Any, rows: Any, inputs: Any, d_sums: Any, d_V: Any
) -> None:
    """d_V[column] = Σ input · d_sums[row] over the columns' ratings. Fills (M, H)."""
    for c in range(lo, hi):
        d_vector = d_V[c]
        d_vector[:] = 0
        for p in range(starts[c], starts[c + 1]):
            slope, x = d_sums[rows[p]], inputs[p]
            for i in range(len(d_vector)):
                d_vector[i] += x * slope[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def adam(
    lo: int, hi: int, w: Any, grad: Any, m: Any, v: Any, l2: Any, rate: Any, scales: Any
) -> None:
    """Adam (0.9, 0.999) on the gradient + l2·w; `scales` undo the moments' start at zero."""
    keep_m, keep_v = np.float32(0.9), np.float32(0.999)
    for i in range(lo, hi):
        slope = grad[i] + l2 * w[i]
        m[i] = keep_m * m[i] + (_ONE - keep_m) * slope
        v[i] = keep_v * v[i] + (_ONE - keep_v) * slope * slope
        w[i] -= rate * scales[0] * m[i] / (np.sqrt(scales[1] * v[i]) + _EPSILON)


@njit(nogil=True, cache=True, fastmath=_FAST)
def outputs(rows: Any, columns: Any, W: Any, b: Any, h: Any, out: Any) -> None:
    """b + W·h of the given cells. Fills (n,)."""
    for p in range(len(rows)):
        weights, state = W[columns[p]], h[rows[p]]
        y = b[columns[p]]
        for i in range(len(weights)):
            y += weights[i] * state[i]
        out[p] = y
