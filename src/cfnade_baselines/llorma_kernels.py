"""LLORMA's compiled loops: serial code over rows [first, last), so that threads share the work.

Rows are users and columns items, or the other way round; kernels weigh both around an anchor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract", "nsz"}  # lets sums be vectorised; infinities stay infinities


@njit(nogil=True, cache=True, fastmath=_FAST)
def solve_rows(
    first: int,
    last: int,
    offsets: Any,
    columns: Any,
    targets: Any,
    shares: Any,
    row_kernel: Any,
    column_kernel: Any,
    other: Any,
    penalty: float,
    joint: bool,
    out: Any,
) -> None:
    """Ridge regressions of rows on the other side's factors.

    With s = row_kernel · column_kernel · share of a rating: minimise Σ s (t − uv)² (local) or
    Σ (t − s uv)² (joint), plus penalty · Σ s · |u|².
    """
    k = other.shape[1]
    longest = 0
    for row in range(first, last):
        longest = max(longest, offsets[row + 1] - offsets[row])
    X = np.empty((k, longest), np.float32)  # the factors of a row's columns, side by side
    weighted, weights, pulls = np.empty((3, longest), np.float32)
    A, y = np.empty((k, k)), np.empty(k)
    for row in range(first, last):
        start, n, total = offsets[row], offsets[row + 1] - offsets[row], 0.0
        for j in range(n):
            column = columns[start + j]
            s = row_kernel[row] * column_kernel[column] * shares[start + j]
            total += s
            weights[j] = s * s if joint else s
            pulls[j] = s * targets[start + j]
            for a in range(k):
                X[a, j] = other[column, a]
        if total <= 0.0:
            out[row] = 0.0
            continue
        for a in range(k):
            pull = np.float32(0.0)
            for j in range(n):
                weighted[j] = weights[j] * X[a, j]
                pull += pulls[j] * X[a, j]
            y[a] = pull
            for b in range(a + 1):
                product = np.float32(0.0)
                for j in range(n):
                    product += weighted[j] * X[b, j]
                A[a, b] = product
            A[a, a] += penalty * total
        _solve(A, y)
        for a in range(k):
            out[row, a] = y[a]


@njit(nogil=True, cache=True)
def _solve(A: Any, y: Any) -> None:
    """The solution of A x = y into y, by Cholesky; A's lower triangle is used up."""
    k = len(y)
    for a in range(k):
        for b in range(a + 1):
            rest = A[a, b]
            for c in range(b):
                rest -= A[a, c] * A[b, c]
            A[a, b] = np.sqrt(rest) if a == b else rest / A[b, b]
        rest = y[a]
        for c in range(a):
            rest -= A[a, c] * y[c]
        y[a] = rest / A[a, a]
    for a in range(k - 1, -1, -1):
        rest = y[a]
        for c in range(a + 1, k):
            rest -= A[c, a] * y[c]
        y[a] = rest / A[a, a]


@njit(nogil=True, cache=True, fastmath=_FAST)
def add_part(
    first: int,
    last: int,
    offsets: Any,
    columns: Any,
    shares: Any,
    row_kernel: Any,
    column_kernel: Any,
    U: Any,
    V: Any,
    sign: float,
    residuals: Any,
) -> None:
    """Put one anchor's part of the average back into the residuals, or (sign -1) take it out."""
    for row in range(first, last):
        for j in range(offsets[row], offsets[row + 1]):
            product = np.float32(0.0)
            for a in range(U.shape[1]):
                product += U[row, a] * V[columns[j], a]
            s = row_kernel[row] * column_kernel[columns[j]] * shares[j]
            residuals[j] += np.float32(sign) * s * product


@njit(nogil=True, cache=True, fastmath=_FAST)
def average(users: Any, items: Any, KU: Any, KV: Any, U: Any, V: Any, out: Any) -> None:
    """Averages of the anchors' products, and the weight they have. Fills out (2, n)."""
    for j in range(len(users)):
        u, i = users[j], items[j]
        total, weight = 0.0, 0.0
        for t in range(len(U)):
            w = KU[t, u] * KV[t, i]
            product = np.float32(0.0)
            for a in range(U.shape[2]):
                product += U[t, u, a] * V[t, i, a]
            total += w * product
            weight += w
        out[0, j] = total / weight if weight > 0.0 else 0.0
        out[1, j] = weight
