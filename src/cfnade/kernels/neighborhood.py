"""Sparse neighbourhoods: what known ratings weigh, and what that says of other columns.

components/neighborhood.py has the equations. A row's matrix has a few entries a column, so its
system is solved by conjugate gradients, to the last digits: it is part of one positive definite
matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import internal, kernel

_PRECISION = 1e-24  # of the squared residual, relative to the first
_EXTRA_STEPS = 50  # than a row has ratings: exact arithmetic would need no more than these
_NEGLIGIBLE = 1e-8  # entries of A⁻¹ R_i, relative to the largest
_RELATIVE_ERROR = 3e-9  # of downdates, relative to the same


class ResidualCovariance(NamedTuple):
    """Covariances column by column, and variances. M columns, P pairs."""

    starts: Array  # (M+1,) int64
    others: Array  # (P,) int32, rising within a column
    covariances: Array  # (P,) float64
    variances: Array  # (M,) float64


@internal
def _row_matrix(columns, near, place, starts):
    """The covariances between the columns of a row: its sparse lines. place (M,) is -1 again."""
    size = 0
    for a in range(len(columns)):
        place[columns[a]] = a
        size += near.starts[columns[a] + 1] - near.starts[columns[a]]
    others, values, count = np.empty(size, np.int64), np.empty(size), 0
    for a in range(len(columns)):
        starts[a] = count
        for q in range(near.starts[columns[a]], near.starts[columns[a] + 1]):
            if place[near.others[q]] >= 0:
                others[count], values[count] = place[near.others[q]], near.covariances[q]
                count += 1
    starts[len(columns)] = count
    for a in range(len(columns)):
        place[columns[a]] = -1
    return others, values


@internal
def _multiply(x, diagonal, starts, others, values, out):
    """out = A x for a row's matrix A. Returns xᵀ A x."""
    total = 0.0
    for a in range(len(x)):
        line = diagonal[a] * x[a]
        for q in range(starts[a], starts[a + 1]):
            line += values[q] * x[others[q]]
        out[a] = line
        total += line * x[a]
    return total


@internal
def _solve(diagonal, starts, others, values, left, out, precision):
    """out = A⁻¹ left; `left` is used up. The diagonal is what steps are scaled by."""
    n = len(left)
    way, product, size = left / diagonal, np.empty(n), 0.0
    for a in range(n):
        out[a] = 0.0
        size += left[a] * way[a]
    enough = precision * size
    for _ in range(n + _EXTRA_STEPS):
        if size <= enough:
            break
        step = size / _multiply(way, diagonal, starts, others, values, product)
        before, size = size, 0.0
        for a in range(n):
            out[a] += step * way[a]
            left[a] -= step * product[a]
            size += left[a] * left[a] / diagonal[a]
        for a in range(n):
            way[a] = left[a] / diagonal[a] + size / before * way[a]


@kernel
def solve_weights(offsets, columns, residuals, near, out):
    """out (C,) = w of the ratings of ragged rows, given what is left of each."""
    place = np.full(len(near.variances), -1, np.int64)
    for row in range(len(offsets) - 1):
        part = slice(offsets[row], offsets[row + 1])
        own = columns[part]
        starts = np.empty(len(own) + 1, np.int64)
        others, values = _row_matrix(own, near, place, starts)
        diagonal = np.empty(len(own))
        for a in range(len(own)):
            diagonal[a] = near.variances[own[a]]
        _solve(diagonal, starts, others, values, residuals[part].copy(), out[part], _PRECISION)


@kernel
def correct_without_each(g, columns, left_out, residuals, near, out):
    """out (T,) = c of a column for one row without each of T ratings, -1 for none of the columns.

    With A the row's matrix, g = A⁻¹ R_i and u = A⁻¹ 1_t, the row without rating t has
    c = (g - u g_t / u_t)·e, e (T, n) being what is left of each rating then. So u, a downdate of
    A⁻¹, is needed as exactly as g_t is large; e_t does not matter.
    """
    place = np.full(len(near.variances), -1, np.int64)
    starts = np.empty(len(columns) + 1, np.int64)
    others, values = _row_matrix(columns, near, place, starts)
    diagonal, right, u = near.variances[columns], np.zeros(len(columns)), np.empty(len(columns))
    largest = np.abs(g).max()
    for number in range(len(left_out)):
        t, e = left_out[number], residuals[number]
        out[number] = np.sum(g * e)
        if t >= 0:
            out[number] -= g[t] * e[t]
        if t >= 0 and abs(g[t]) > _NEGLIGIBLE * largest:
            right[:] = 0.0
            right[t] = 1.0
            precision = max(_PRECISION, (_RELATIVE_ERROR * largest / g[t]) ** 2)
            _solve(diagonal, starts, others, values, right, u, precision)
            out[number] -= g[t] / u[t] * (np.sum(u * e) - u[t] * e[t])


@kernel
def correct_cells(cells, ragged, weights, near, out):
    """out (n,) = c of cells: their rows, rising, and columns."""
    rows, asked = cells
    offsets, columns = ragged
    known, last = np.zeros(len(near.variances)), -1
    for t in range(len(rows)):
        if rows[t] != last:
            if last >= 0:
                known[columns[offsets[last] : offsets[last + 1]]] = 0.0
            last = rows[t]
            for p in range(offsets[last], offsets[last + 1]):
                known[columns[p]] = weights[p]
        total = 0.0
        for q in range(near.starts[asked[t]], near.starts[asked[t] + 1]):
            total += near.covariances[q] * known[near.others[q]]
        out[t] = total


@kernel
def correct_row(columns, weights, near, out):
    """out (M,) = c of every column for one row."""
    out[:] = 0.0
    for p in range(len(columns)):
        for q in range(near.starts[columns[p]], near.starts[columns[p] + 1]):
            out[near.others[q]] += near.covariances[q] * weights[p]


@kernel
def correct_column(column, ragged, weights, near, out):
    """out (N,) = c of one column for every row."""
    offsets, columns = ragged
    known = np.zeros(len(near.variances))
    for q in range(near.starts[column], near.starts[column + 1]):
        known[near.others[q]] = near.covariances[q]
    for row in range(len(out)):
        total = 0.0
        for p in range(offsets[row], offsets[row + 1]):
            total += known[columns[p]] * weights[p]
        out[row] = total
