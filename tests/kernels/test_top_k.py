"""Chances from scores and the likeliest of each row, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.kernels.top_k import cells_between, log_softmax, nth_largest


@pytest.mark.parametrize("M", [1, 3, 15, 16, 17, 32, 100])
def test_chances_are_those_of_a_softmax(M: int) -> None:
    rng = np.random.default_rng(M)
    scores = (20 * rng.standard_normal((6, M))).astype(np.float32)
    scores[1] -= 5000
    scores[2, ::2] = -np.inf
    scores[3] = -np.inf
    scores[4] = 7.0
    exact = scores.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = exact.max(1, keepdims=True)
        logs = exact - top - np.log(np.exp(exact - top).sum(1, keepdims=True))
    logs[np.isneginf(exact)] = -np.inf  # of nothing but -∞ nothing has a chance
    found = log_softmax(scores)
    assert found is scores
    np.testing.assert_allclose(found, logs, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 40, 90])
def test_the_nth_largest_is_that_of_a_sort(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.integers(0, 12, (5, 40)).astype(np.float32)
    rows[1] = -np.inf
    rows[2, :30] = -np.inf
    want = np.sort(rows, axis=1)[:, ::-1][:, min(n, 40) - 1]
    np.testing.assert_array_equal(nth_largest(rows, n), want)


@pytest.mark.parametrize("expected", [0, 3, 1000])
def test_cells_between_are_all_of_them_row_by_row(expected: int) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 12, (5, 40)).astype(np.float32)
    low, high = np.array([3, 0, 11, 5, 12], np.float32), np.array([7, 99, 12, 5, 13], np.float32)
    found = cells_between(rows, low, high, expected=expected)
    want = np.nonzero((rows >= low[:, None]) & (rows < high[:, None]))
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
