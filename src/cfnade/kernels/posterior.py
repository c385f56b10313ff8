"""Gaussian posteriors of rows, one small Cholesky factor each, and their gradients.

A rating of column i at level k adds u_i uᵢᵀ + diag(q_i) to the precision of its row, and E_{i,k} to
what the precision is solved for (models/ridge.py has the equations). Kernels are serial
over a range of rows, so threads may take ranges of their own. The sums of a row are
L = D (D + 1) / 2 numbers of its precision and D of what it is solved for; processes that share the
columns add their sums before they solve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import fastmath_internal, fastmath_kernel


class Evidence(NamedTuple):
    """What each rating adds to its row. M columns, K levels, D dimensions, L = D (D + 1) / 2."""

    u: Array  # (M, D)
    products: Array  # (M, L) u uᵀ + diag q, the lower half row by row: adding it is one long loop
    E: Array  # (M, K, D)
    prior: Array  # (D,) the precision of a row without ratings
    importance: Array  # (D,)


class RaggedRows(NamedTuple):
    """Ratings row by row."""

    offsets: Array  # (B+1,) int64
    columns: Array  # (C,) int32
    levels: Array  # (C,) uint8


class Posteriors(NamedTuple):
    """Of B rows."""

    factors: Array  # (B, D, D) lower Cholesky factors of the precisions
    means: Array  # (B, D)
    unknown: Array  # (B,) ω


@fastmath_kernel
def lower_products(u, q, out):
    """out (M, L) = the lower halves of u uᵀ + diag q."""
    for column in range(len(u)):
        vector, line, place = u[column], out[column], 0
        for i in range(u.shape[1]):
            for j in range(i + 1):
                line[place] = vector[i] * vector[j]
                place += 1
            line[place - 1] += q[column, i]


@fastmath_internal
def add_products(first, end, columns, products, total):
    """total (L,) = Σ of the columns' products."""
    for place in range(len(total)):
        total[place] = 0
    for p in range(first, end):
        line = products[columns[p]]
        for place in range(len(total)):
            total[place] += line[place]


@fastmath_internal
def add_evidence(first, end, columns, levels, E, total):
    """total (D,) = Σ of the evidence of ratings first..end."""
    for i in range(len(total)):
        total[i] = 0
    for p in range(first, end):
        for i in range(len(total)):
            total[i] += E[columns[p], levels[p], i]


@fastmath_internal
def fill_precision(prior, total, precision):
    """The lower half of the precision, from the prior and the sum of products."""
    place = 0
    for i in range(len(prior)):
        for j in range(i + 1):
            precision[i, j] = total[place]
            place += 1
        precision[i, i] += prior[i]


@fastmath_internal
def cholesky(precision):
    """The lower half becomes its Cholesky factor."""
    D = len(precision)
    for i in range(D):
        for j in range(i):
            value = precision[i, j]
            for k in range(j):
                value -= precision[i, k] * precision[j, k]
            precision[i, j] = value / precision[j, j]
        value = precision[i, i]
        for k in range(i):
            value -= precision[i, k] * precision[i, k]
        precision[i, i] = np.sqrt(value)


@fastmath_internal
def solve(factor, x):
    """x becomes Λ⁻¹ x, for the factor of Λ."""
    D = len(x)
    for i in range(D):
        value = x[i]
        for k in range(i):
            value -= factor[i, k] * x[k]
        x[i] = value / factor[i, i]
    for i in range(D - 1, -1, -1):
        value = x[i] / factor[i, i]
        x[i] = value
        for k in range(i):
            x[k] -= factor[i, k] * value


@fastmath_internal
def invert_factor(factor, inverse):
    """inverse = the lower triangular inverse of the factor: Λ⁻¹ is inverseᵀ · inverse."""
    D = len(factor)
    for i in range(D):
        scale = 1 / factor[i, i]
        for j in range(i):
            inverse[i, j] = 0
        for k in range(i):
            weight = factor[i, k] * scale
            for j in range(k + 1):
                inverse[i, j] -= weight * inverse[k, j]
        inverse[i, i] = scale


@fastmath_internal
def posterior_variance(inverse, i):
    """Λ⁻¹'s diagonal at i."""
    variance = inverse[i, i] * inverse[i, i]
    for k in range(i + 1, len(inverse)):
        variance += inverse[k, i] * inverse[k, i]
    return variance


@fastmath_internal
def unknown_share(factor, importance, inverse):
    """ω: the weighted mean of the posterior variances, 1 for a row without ratings."""
    invert_factor(factor, inverse)
    share, total = importance[0] * 0, importance[0] * 0
    for i in range(len(factor)):
        share += importance[i] * posterior_variance(inverse, i)
        total += importance[i]
    return share / total


@fastmath_kernel
def leave_one_out(rows, cells, evidence, means, unknown):
    """Mean and ω of cells' rows without the cell: row number, column and level of each.

    Fastest if cells of a row follow each other: the sums of its ratings are kept between them.
    """
    _, products, E, prior, importance = evidence
    offsets, columns, levels = rows
    cell_rows, cell_columns, cell_levels = cells
    D, last = len(prior), -1
    inverse, factor = np.zeros((D, D), E.dtype), np.zeros((D, D), E.dtype)
    all_products = np.zeros(products.shape[1], E.dtype)
    other_products = np.zeros(products.shape[1], E.dtype)
    evidence_sum = np.zeros(D, E.dtype)
    for t in range(len(cell_rows)):
        row, column = cell_rows[t], cell_columns[t]
        first, end = offsets[row], offsets[row + 1]
        if row != last:
            add_products(first, end, columns, products, all_products)
            add_evidence(first, end, columns, levels, E, evidence_sum)
            last = row
        # What is left of a lone rating is nothing, not a rounding error.
        has_others, mean, vector = min(1, end - first - 1), means[t], E[column, cell_levels[t]]
        for place in range(len(other_products)):
            other_products[place] = has_others * (all_products[place] - products[column, place])
        for i in range(D):
            mean[i] = has_others * (evidence_sum[i] - vector[i])
        fill_precision(prior, other_products, factor)
        cholesky(factor)
        solve(factor, mean)
        unknown[t] = unknown_share(factor, importance, inverse)


@fastmath_kernel
def posterior_gradients(rows, evidence, posteriors, d_means, grads):
    """Add gradients of u (the precision's part), E and the prior, given those of the means.

    With x = Λ⁻¹ ∂m, which replaces d_means (B, D): ∂E = x, ∂u = -x (u·m) - m (u·x), ∂β = -x m.
    """
    u, offsets, columns, levels = evidence.u, rows.offsets, rows.columns, rows.levels
    d_u, d_E, d_prior = grads
    D = u.shape[1]
    for row in range(len(d_means)):
        mean, x = posteriors.means[row], d_means[row]
        solve(posteriors.factors[row], x)
        for i in range(D):
            d_prior[i] -= x[i] * mean[i]
        for p in range(offsets[row], offsets[row + 1]):
            vector, grad, d_evidence = u[columns[p]], d_u[columns[p]], d_E[columns[p], levels[p]]
            along_mean, along_x = vector[0] * mean[0], vector[0] * x[0]
            for i in range(1, D):
                along_mean += vector[i] * mean[i]
                along_x += vector[i] * x[i]
            for i in range(D):
                grad[i] -= x[i] * along_mean + mean[i] * along_x
                d_evidence[i] += x[i]


@fastmath_kernel
def row_sums(lo, hi, rows, evidence, sums):
    """sums (B, L + D) = products and evidence of the ratings of rows lo..hi, added up."""
    _, products, E, _, _ = evidence
    offsets, columns, levels = rows
    L = products.shape[1]
    for row in range(lo, hi):
        first, end = offsets[row], offsets[row + 1]
        add_products(first, end, columns, products, sums[row, :L])
        add_evidence(first, end, columns, levels, E, sums[row, L:])


@fastmath_kernel
def solve_sums(lo, hi, sums, evidence, out):
    """Posteriors of rows lo..hi from the sums of all their ratings."""
    _, products, E, prior, importance = evidence
    D, L = len(prior), products.shape[1]
    inverse = np.zeros((D, D), E.dtype)
    for row in range(lo, hi):
        factor, mean = out.factors[row], out.means[row]
        fill_precision(prior, sums[row, :L], factor)
        cholesky(factor)
        for i in range(D):
            mean[i] = sums[row, L + i]
        solve(factor, mean)
        out.unknown[row] = unknown_share(factor, importance, inverse)


@fastmath_kernel
def solve_rows(lo, hi, factors, d_means):
    """Multiply the gradients of rows lo..hi by Λ⁻¹, in place."""
    for row in range(lo, hi):
        solve(factors[row], d_means[row])
