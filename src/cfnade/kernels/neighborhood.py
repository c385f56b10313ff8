"""Sparse neighborhoods: weights of known ratings, and their corrections of other columns.

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
    neighbors: Array  # (P,) int32, rising within a column
    covariances: Array  # (P,) float64
    variances: Array  # (M,) float64


@internal
def _row_matrix(columns, covariance, place, starts):
    """The covariances between the columns of a row: its sparse lines. place (M,) is -1 again."""
    size = 0
    for a in range(len(columns)):
        place[columns[a]] = a
        size += covariance.starts[columns[a] + 1] - covariance.starts[columns[a]]
    neighbors, values, count = np.empty(size, np.int64), np.empty(size), 0
    for a in range(len(columns)):
        starts[a] = count
        for q in range(covariance.starts[columns[a]], covariance.starts[columns[a] + 1]):
            if place[covariance.neighbors[q]] >= 0:
                neighbors[count], values[count] = (
                    place[covariance.neighbors[q]],
                    covariance.covariances[q],
                )
                count += 1
    starts[len(columns)] = count
    for a in range(len(columns)):
        place[columns[a]] = -1
    return neighbors, values


@internal
def _multiply(x, diagonal, starts, neighbors, values, out):
    """out = A x for a row's matrix A. Returns xᵀ A x."""
    total = 0.0
    for a in range(len(x)):
        row_sum = diagonal[a] * x[a]
        for q in range(starts[a], starts[a + 1]):
            row_sum += values[q] * x[neighbors[q]]
        out[a] = row_sum
        total += row_sum * x[a]
    return total


@internal
def _solve(diagonal, starts, neighbors, values, residual, out, precision):
    """out = A⁻¹ residual, which is overwritten. The diagonal is the preconditioner."""
    n = len(residual)
    direction, product, size = residual / diagonal, np.empty(n), 0.0
    for a in range(n):
        out[a] = 0.0
        size += residual[a] * direction[a]
    enough = precision * size
    for _ in range(n + _EXTRA_STEPS):
        if size <= enough:
            break
        step = size / _multiply(direction, diagonal, starts, neighbors, values, product)
        before, size = size, 0.0
        for a in range(n):
            out[a] += step * direction[a]
            residual[a] -= step * product[a]
            size += residual[a] * residual[a] / diagonal[a]
        for a in range(n):
            direction[a] = residual[a] / diagonal[a] + size / before * direction[a]


@kernel
def solve_weights(offsets, columns, residuals, covariance, out):
    """out (C,) = w of the ratings of ragged rows, given their residuals."""
    place = np.full(len(covariance.variances), -1, np.int64)
    for row in range(len(offsets) - 1):
        part = slice(offsets[row], offsets[row + 1])
        row_columns = columns[part]
        starts = np.empty(len(row_columns) + 1, np.int64)
        neighbors, values = _row_matrix(row_columns, covariance, place, starts)
        diagonal = np.empty(len(row_columns))
        for a in range(len(row_columns)):
            diagonal[a] = covariance.variances[row_columns[a]]
        _solve(diagonal, starts, neighbors, values, residuals[part].copy(), out[part], _PRECISION)


@kernel
def correct_without_each(g, columns, left_out, residuals, covariance, out):
    """out (T,) = c of a column for one row without each of T ratings, -1 for none of the columns.

    With A the row's matrix, g = A⁻¹ R_i and u = A⁻¹ 1_t, the row without rating t has
    c = (g - u g_t / u_t)·e, e (T, n) being the residuals then. So u, a downdate of
    A⁻¹, is needed as exactly as g_t is large; e_t does not matter.
    """
    place = np.full(len(covariance.variances), -1, np.int64)
    starts = np.empty(len(columns) + 1, np.int64)
    neighbors, values = _row_matrix(columns, covariance, place, starts)
    diagonal, right, u = (
        covariance.variances[columns],
        np.zeros(len(columns)),
        np.empty(len(columns)),
    )
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
            _solve(diagonal, starts, neighbors, values, right, u, precision)
            out[number] -= g[t] / u[t] * (np.sum(u * e) - u[t] * e[t])


@kernel
def correct_cells(cells, ragged, weights, covariance, out):
    """out (n,) = c of cells: their rows, rising, and columns."""
    rows, cell_columns = cells
    offsets, columns = ragged
    weight_of, last = np.zeros(len(covariance.variances)), -1
    for t in range(len(rows)):
        if rows[t] != last:
            if last >= 0:
                weight_of[columns[offsets[last] : offsets[last + 1]]] = 0.0
            last = rows[t]
            for p in range(offsets[last], offsets[last + 1]):
                weight_of[columns[p]] = weights[p]
        total = 0.0
        for q in range(covariance.starts[cell_columns[t]], covariance.starts[cell_columns[t] + 1]):
            total += covariance.covariances[q] * weight_of[covariance.neighbors[q]]
        out[t] = total


@kernel
def correct_row(columns, weights, covariance, out):
    """out (M,) = c of every column for one row."""
    out[:] = 0.0
    for p in range(len(columns)):
        for q in range(covariance.starts[columns[p]], covariance.starts[columns[p] + 1]):
            out[covariance.neighbors[q]] += covariance.covariances[q] * weights[p]


@kernel
def correct_column(column, ragged, weights, covariance, out):
    """out (N,) = c of one column for every row."""
    offsets, columns = ragged
    weight_of = np.zeros(len(covariance.variances))
    for q in range(covariance.starts[column], covariance.starts[column + 1]):
        weight_of[covariance.neighbors[q]] = covariance.covariances[q]
    for row in range(len(out)):
        total = 0.0
        for p in range(offsets[row], offsets[row + 1]):
            total += weight_of[columns[p]] * weights[p]
        out[row] = total
