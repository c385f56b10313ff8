"""Draws of vectors against the Gaussian that they are drawn from, by linear algebra."""

from __future__ import annotations

import numpy as np

from cfnade.kernels.factor_analysis import gibbs_step
from cfnade.kernels.posterior import lower_products


def test_draws_have_the_mean_and_the_covariance_of_the_posterior() -> None:
    rng = np.random.default_rng(0)
    M, D = 6, 3
    vectors = rng.normal(size=(M, D)).astype(np.float32)
    lower = np.empty((M, D * (D + 1) // 2), np.float32)
    lower_products(vectors, np.zeros_like(vectors), lower)
    precision, centre = np.array([1.0, 2.0, 0.5], np.float32), rng.normal(size=D).astype(np.float32)
    offsets, columns = np.array([0, 4, 4, 6]), np.array([0, 2, 3, 5, 1, 2], np.int32)
    residuals = rng.normal(size=6).astype(np.float32)
    inverses = [
        np.linalg.inv(np.diag(precision) + _squares(vectors, columns, offsets, row))
        for row in range(3)
    ]
    spread = [np.zeros((D, D)) for _ in range(3)]
    for direction in np.eye(D, dtype=np.float32):  # draws less their mean, in each direction
        noise = np.tile(direction, (3, 1))
        draws, means, variances = (np.empty((3, D), np.float32) for _ in range(3))
        errors = np.empty(3, np.float32)
        out = draws, means, variances, errors
        how = (offsets, columns), residuals, (vectors, lower), (precision, centre), noise, out
        gibbs_step(0, 2, *how)
        gibbs_step(2, 3, *how)
        for row, inverse in enumerate(inverses):
            own = slice(offsets[row], offsets[row + 1])
            known = vectors[columns[own]]
            expected = inverse @ (precision * centre + known.T @ residuals[own])
            np.testing.assert_allclose(means[row], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(variances[row], np.diag(inverse), rtol=1e-4)
            left = residuals[own] - known @ draws[row]
            np.testing.assert_allclose(errors[row], np.square(left).sum(), rtol=1e-4, atol=1e-6)
            away = (draws[row] - means[row]).astype(np.float64)
            spread[row] += np.outer(away, away)
    for found, inverse in zip(spread, inverses, strict=True):
        np.testing.assert_allclose(found, inverse, rtol=1e-3, atol=1e-5)


def _squares(vectors: np.ndarray, columns: np.ndarray, offsets: np.ndarray, row: int) -> np.ndarray:
    known = vectors[columns[offsets[row] : offsets[row + 1]]].astype(np.float64)
    return np.asarray(known.T @ known)
