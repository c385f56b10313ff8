"""Bounds and candidates against the exact criterion, log-softmax and the n-th largest by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cfnade.calibration.calibration import Calibration
from cfnade.kernels.top_k import (
    MEAN_SLACK,
    Criterion,
    cells_between,
    criterion_bounds,
    keep_candidates,
    log_softmax,
    mean_levels,
    nth_largest,
)

FloatArray = npt.NDArray[np.float64]
KINDS = ("mean", "probability")


def bounds_of(kind: str, scores: npt.NDArray[Any], criterion: Criterion) -> tuple[Any, Any]:
    """Of one row (M, K), asked among two others."""
    rows = np.stack([scores[::-1], scores, np.zeros_like(scores)])
    if kind == "mean":
        means = mean_levels(rows, criterion.unit)[1]
        return means - MEAN_SLACK, means + MEAN_SLACK
    lower, upper = criterion_bounds(rows, criterion)
    return lower[1], upper[1]


def softmax(scores: npt.NDArray[Any]) -> FloatArray:
    weights = np.exp(scores.astype(float) - scores.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def exact(
    kind: str, chances: FloatArray, calibration: Calibration, criterion: Criterion
) -> FloatArray:
    if kind == "mean":
        return np.asarray(chances @ criterion.unit)
    honest = calibration.apply(chances, criterion.unit)
    return np.asarray(honest[:, criterion.first :].sum(1))


@pytest.mark.parametrize("spread", [0.1, 2.0, 12.0, 60.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("K", [2, 5, 10, 40])
def test_bounds_hold(K: int, kind: str, spread: float) -> None:
    rng = np.random.default_rng(K)
    scores = (rng.normal(size=(333, K)) * spread).astype(np.float32)
    calibration = Calibration(1.7, tuple((rng.normal(size=K) * 0.4).tolist()))
    for first in (1, K - 1, max(1, K // 2)):
        criterion = Criterion(
            np.linspace(0.0, 1.0, K),
            1 / calibration.temperature,
            np.array([[0.0] * K, calibration.log_weights, [0.0] * K]),
            first,
        )
        lower, upper = bounds_of(kind, scores, criterion)
        truth = exact(kind, softmax(scores), calibration, criterion)
        assert (lower <= truth).all()
        assert (truth <= upper).all()
        if spread <= 2.0:
            assert (upper - lower).max() < 1e-2
            assert (lower < upper).all()


def test_bounds_hold_for_certain_and_impossible_levels() -> None:
    scores = np.array(
        [[0, -np.inf, -np.inf], [-np.inf, 0, 0], [300, -300, 0], [-3e38, 0, -3e38], [0, 0, 0]],
        np.float32,
    )
    calibration = Calibration(2.0, (0.3, 0.0, -0.3))
    for kind in KINDS:
        weights = np.array([calibration.log_weights] * 3)
        criterion = Criterion(np.array([0.0, 0.5, 1.0]), 0.5, weights, 2)
        lower, upper = bounds_of(kind, scores, criterion)
        truth = exact(kind, softmax(scores), calibration, criterion)
        assert (lower <= truth).all()
        assert (truth <= upper).all()
        assert not np.isnan(lower).any()
        assert not np.isnan(upper).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 10, 39, 40, 1000])
def test_those_that_can_be_among_the_best_stay(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    lower = rng.integers(0, 12, (5, 40)).astype(dtype)  # with ties
    upper = lower + rng.integers(0, 3, (5, 40)).astype(dtype)
    lower[0, :9], upper[0, :9] = -np.inf, np.inf
    allowed = rng.random((5, 40)) < 0.7
    allowed[4] = False
    kept = allowed.copy()
    keep_candidates(lower, upper, n, kept)
    for row in range(5):
        mine = np.flatnonzero(allowed[row])
        # Out are those below whom n others surely are.
        surely = (lower[row, mine][None] > upper[row, mine][:, None]).sum(1)
        assert np.flatnonzero(kept[row]).tolist() == mine[surely < n].tolist()


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
