"""Posteriors of rows whose ratings lie on several ranks: sums first, which are added, then solved.

The sums of a row are L = D (D + 1) / 2 numbers of its precision and D of what it is solved for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import loose_kernel
from cfnade.kernels.posterior import (
    add_evidence,
    add_products,
    cholesky,
    second_moments,
    solve,
    spread_out,
    unknown_share,
)


@loose_kernel
def row_sums(rows: Any, evidence: Any, sums: Any) -> None:
    """sums (B, L + D) of what the own ratings of each row tell."""
    _, products, E, _, _ = evidence
    offsets, columns, levels = rows
    L = products.shape[1]
    for row in range(len(sums)):
        first, end = offsets[row], offsets[row + 1]
        add_products(first, end, columns, products, sums[row, :L])
        add_evidence(first, end, columns, levels, E, sums[row, L:])


@loose_kernel
def solve_sums(lo: int, hi: int, sums: Any, evidence: Any, out: Any) -> None:
    """Posteriors of rows lo..hi from the sums of all their ratings."""
    _, products, E, prior, importance = evidence
    D, L = len(prior), products.shape[1]
    inverse = np.zeros((D, D), E.dtype)
    for row in range(lo, hi):
        factor, mean = out.factors[row], out.means[row]
        spread_out(prior, sums[row, :L], factor)
        cholesky(factor)
        for i in range(D):
            mean[i] = sums[row, L + i]
        solve(factor, mean)
        out.unknown[row] = unknown_share(factor, importance, inverse)


@loose_kernel
def solve_rows(lo: int, hi: int, factors: Any, slopes: Any) -> None:
    """slopes of rows lo..hi become Λ⁻¹ times themselves."""
    for row in range(lo, hi):
        solve(factors[row], slopes[row])


# -- factor analysis: the expectation step of posterior.expect in three ---------------------------


@loose_kernel
def residual_sums(first: int, rows: Any, residuals: Any, given: Any, sums: Any) -> None:
    """sums (n, L + D) of rows from `first` on: Σ of loadings' products, Σ residual · loading."""
    a, lower = given
    offsets, columns = rows
    D, L = a.shape[1], lower.shape[1]
    for n in range(len(sums)):
        begin, end = offsets[first + n], offsets[first + n + 1]
        add_products(begin, end, columns, lower, sums[n, :L])
        for i in range(D):
            sums[n, L + i] = 0
        for p in range(begin, end):
            own = a[columns[p]]
            for i in range(D):
                sums[n, L + i] += residuals[p] * own[i]


@loose_kernel
def row_moments(lo: int, hi: int, sums: Any, prior: Any) -> None:
    """The sums of rows lo..hi become E[z zᵀ] (lower half) and E[z]."""
    D = len(prior)
    L = sums.shape[1] - D
    factor, inverse = np.zeros((D, D), sums.dtype), np.zeros((D, D), sums.dtype)
    for row in range(lo, hi):
        mean = sums[row, L:]
        spread_out(prior, sums[row, :L], factor)
        cholesky(factor)
        solve(factor, mean)
        second_moments(factor, mean, inverse, sums[row, :L])


@loose_kernel
def add_moments(first: int, rows: Any, residuals: Any, moments: Any, sums: Any) -> None:
    """Add Σ z zᵀ, Σ z r and Σ z of rows from `first` on to the sums of their columns."""
    squares, products, firsts = sums
    offsets, columns = rows
    D = products.shape[1]
    L = squares.shape[1]
    for n in range(len(moments)):
        for p in range(offsets[first + n], offsets[first + n + 1]):
            column, residual = columns[p], residuals[p]
            for i in range(D):
                products[column, i] += residual * moments[n, L + i]
                firsts[column, i] += moments[n, L + i]
            for place in range(L):
                squares[column, place] += moments[n, place]
