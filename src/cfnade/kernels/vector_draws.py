"""One step of a Gibbs sampler: a draw of every row's vector, given what its columns are like."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import loose_kernel
from cfnade.kernels.posterior import (
    _invert,
    _variance,
    add_products,
    cholesky,
    solve,
    spread_out,
)


@loose_kernel
def draw_vectors(
    lo: int, hi: int, rows: Any, residuals: Any, given: Any, prior: Any, noise: Any, out: Any
) -> None:
    """Draw the vectors of rows lo..hi from their posteriors, in units of the ratings' noise.

    residuals (n,) are ratings less what is not the row's; given are the columns' vectors (M, D) and
    their products' lower halves; prior the precision and the mean of a vector; noise (N, D) are
    standard normal numbers. Fills draws, means, variances (N, D) and squared errors (N,).
    """
    (vectors, lower), (precision, centre) = given, prior
    offsets, columns = rows
    draws, means, variances, errors = out
    D = vectors.shape[1]
    factor, inverse = np.zeros((D, D), vectors.dtype), np.zeros((D, D), vectors.dtype)
    products = np.zeros(lower.shape[1], vectors.dtype)
    for row in range(lo, hi):
        first, end = offsets[row], offsets[row + 1]
        mean, draw = means[row], draws[row]
        add_products(first, end, columns, lower, products)
        spread_out(precision, products, factor)
        cholesky(factor)
        for i in range(D):
            mean[i] = precision[i] * centre[i]
        for p in range(first, end):
            own = vectors[columns[p]]
            for i in range(D):
                mean[i] += residuals[p] * own[i]
        solve(factor, mean)
        _invert(factor, inverse)
        for i in range(D):
            variances[row, i] = _variance(inverse, i)
            draw[i] = mean[i]
            for k in range(i, D):  # the factor's transposed inverse has the posterior's spread
                draw[i] += inverse[k, i] * noise[row, k]
        total = errors[row] * 0
        for p in range(first, end):
            left, own = residuals[p], vectors[columns[p]]
            for i in range(D):
                left -= own[i] * draw[i]
            total += left * left
        errors[row] = total
