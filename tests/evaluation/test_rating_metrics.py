"""Metrics against closed forms, loops over ratings, and draws from known distributions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.evaluation import rating_metrics as metrics
from cfnade.evaluation.rating_metrics import (
    calibration_error,
    mae,
    medians,
    nll,
    quantiles,
    rmse,
    rps,
)
from cfnade.exceptions import PredictionError

FloatArray = npt.NDArray[np.float64]
STARS = [1.0, 2.0, 3.0, 4.0, 5.0]
UNEVEN = [0.5, 1.0, 3.0, 3.25, 5.0]


def distributions(n: int, levels: int = 5, seed: int = 0, spread: float = 1.0) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.full(levels, spread), n)


def sample_levels(p: FloatArray, seed: int = 1) -> npt.NDArray[np.int64]:
    """A level sample_levels from each row."""
    points = np.random.default_rng(seed).random((len(p), 1))
    levels: npt.NDArray[np.int64] = (points > np.cumsum(p, axis=1)[:, :-1]).sum(1)
    return levels


def test_rmse_and_mae_of_known_errors() -> None:
    assert rmse([1, 2, 3], [1, 4, 6]) == pytest.approx(math.sqrt(13 / 3))
    assert mae([1, 2, 3], [1, 4, 6]) == pytest.approx(5 / 3)


def test_a_distribution_s_median_and_mean_are_its_best_predictions() -> None:
    p, values = distributions(50), np.array(UNEVEN)
    candidates = np.linspace(0, 6, 6001)
    expected = p @ np.abs(values[:, None] - candidates)  # (n, candidates)
    of_median = np.sum(p * np.abs(values - medians(p, values)[:, None]), axis=1)
    assert of_median == pytest.approx(expected.min(1), abs=1e-12)
    squared = p @ np.square(values[:, None] - candidates)
    assert candidates[squared.argmin(1)] == pytest.approx(p @ values, abs=1e-3)


def test_a_median_is_the_first_value_with_cumulative_probability_one_half() -> None:
    p = np.concatenate([distributions(200), np.eye(5), [[0.25, 0.25, 0.0, 0.25, 0.25]]])
    halves = [next(k for k in range(5) if sum(row[: k + 1]) >= 0.5) for row in p.tolist()]
    assert medians(p, STARS).tolist() == [STARS[k] for k in halves]


def test_nll_of_known_predictions() -> None:
    p = [[0.25, 0.75], [0.5, 0.5]]
    assert nll(p, [0, 1]) == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert nll(np.full((3, 7), 1 / 7), [0, 3, 6]) == pytest.approx(math.log(7))
    assert nll([[1.0, 0.0]], [1]) == math.inf


def test_nll_of_samples_approaches_the_entropy() -> None:
    p = distributions(100_000)
    entropy = float(-np.mean(np.sum(p * np.log(p), axis=1)))
    assert nll(p, sample_levels(p)) == pytest.approx(entropy, abs=0.01)


@pytest.mark.parametrize("values", [STARS, UNEVEN])
def test_rps_is_the_energy_form_of_the_continuous_ranked_probability_score(
    values: list[float],
) -> None:
    p = distributions(20)
    levels = sample_levels(p)
    total = 0.0
    for row, level in zip(p, levels, strict=True):
        pairs = list(product(range(5), repeat=2))
        apart = sum(row[i] * row[j] * abs(values[i] - values[j]) for i, j in pairs)
        total += sum(row[i] * abs(values[i] - values[level]) for i in range(5)) - apart / 2
    assert rps(p, levels, values) == pytest.approx(total / 20)


def test_rps_of_a_certain_prediction_is_its_absolute_error() -> None:
    certain = np.eye(5)[[0, 3, 4]]
    assert rps(certain, [2, 3, 0], UNEVEN) == pytest.approx(
        mae(np.array(UNEVEN)[[2, 3, 0]], np.array(UNEVEN)[[0, 3, 4]])
    )
    assert rps(certain, [2, 3, 0]) == pytest.approx((2 + 0 + 4) / 3)


@pytest.mark.parametrize("score", [nll, rps])
def test_proper_scores_are_best_for_the_truth(score: object) -> None:
    assert callable(score)
    p = distributions(50_000)
    levels = sample_levels(p)
    for power in (0.5, 0.8, 1.25, 2.0):
        other = p**power
        assert score(p, levels) < score(other / other.sum(1, keepdims=True), levels)


# -- calibration error --------------------------------------------------------------------------


def loop_calibration_error(p: FloatArray, levels: npt.NDArray[np.int64], bins: int) -> float:
    """The definition for distinct predictions, by loops."""
    n, K = p.shape
    total = 0.0
    for k in range(K):
        order = sorted(range(n), key=lambda i: p[i, k])
        for b in range(bins):
            members = order[n * b // bins : n * (b + 1) // bins]
            if members:
                predicted = sum(p[i, k] for i in members) / len(members)
                happened = sum(levels[i] == k for i in members) / len(members)
                total += len(members) / n * abs(predicted - happened) / K
    return total


@pytest.mark.parametrize(("n", "bins"), [(200, 15), (37, 5), (8, 20)])
def test_calibration_error_equals_its_definition(n: int, bins: int) -> None:
    p = distributions(n)
    levels = sample_levels(p)
    result = calibration_error(p, levels, bins=bins)
    assert result == pytest.approx(loop_calibration_error(p, levels, bins))


def test_calibration_error_of_the_truth_shrinks_with_data() -> None:
    errors = []
    for n in (2_000, 200_000):
        p = distributions(n)
        errors.append(calibration_error(p, sample_levels(p)))
    # A bin's share misses by about √(2/π · p(1-p) / (n/15)); p(1-p) is 0.13 on average at most.
    assert errors[0] < math.sqrt(2 / math.pi * 0.14 * 15 / 2_000) * 1.2
    assert errors[1] < math.sqrt(2 / math.pi * 0.14 * 15 / 200_000) * 1.2


def test_calibration_error_of_a_constructed_miscalibration() -> None:
    # Said: 0.9 or 0.6 for level 0. Happens: 7 in 10 each time. Off by 0.2 and 0.1, at both levels.
    p = np.repeat([[0.9, 0.1], [0.6, 0.4]], 100, axis=0)
    levels = np.tile(np.repeat([0, 1], [70, 30]), 2)
    assert calibration_error(p, levels, bins=2) == pytest.approx(0.15)
    # In one bin the two mistakes partly cancel: 0.75 was predicted on average.
    assert calibration_error(p, levels, bins=1) == pytest.approx(0.05)


def test_equal_predictions_share_a_bin_in_any_order() -> None:
    # Cut by position, sorted truths would look miscalibrated; nothing is.
    p, levels = np.tile([0.5, 0.5], (1000, 1)), np.repeat([0, 1], 500)
    assert calibration_error(p, levels) == pytest.approx(0.0)


@given(st.integers(0, 1000))
def test_calibration_error_does_not_depend_on_the_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.round(distributions(60, 3, seed), 1)
    p[:, 2] = 1 - p[:, 0] - p[:, 1]
    p = np.abs(p)
    levels, order = rng.integers(0, 3, 60), rng.permutation(60)
    assert calibration_error(p, levels) == pytest.approx(calibration_error(p[order], levels[order]))


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmse([1, 2], [1]), r"shape \(2,\) and predictions \(1,\)"),
        (lambda: mae([], []), "not empty"),
        (lambda: nll([[0.5, 0.6]], [0]), r"probabilities\[0\] \(=\[0.5, 0.6\]\).*sum to 1"),
        (lambda: nll([[0.5, 0.5], [math.nan, 1]], [0, 0]), r"probabilities\[1\]"),
        (lambda: nll([0.5, 0.5], [0]), r"shape \(2,\).*ratings, levels"),
        (lambda: nll([[0.5, 0.5]], [2]), r"levels contain 2.*0\.\.1"),
        (lambda: nll([[0.5, 0.5]], [-1]), "levels contain -1"),
        (lambda: nll([[0.5, 0.5]], [0.0]), "1 whole numbers"),
        (lambda: rps([[0.5, 0.5]], [0], [2, 1]), "2 increasing numbers"),
        (lambda: calibration_error([[0.5, 0.5]], [0], bins=0), r"bins \(=0\)"),
    ],
)
def test_unusable_arguments_are_errors(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(PredictionError, match=message):
        call()


def test_an_invalid_row_is_named_by_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_CHUNK", 2)
    p = distributions(6)
    p[4] *= 1.1
    with pytest.raises(PredictionError, match=r"probabilities\[4\] .*sum to 1"):
        nll(p, [0] * 6)


def test_quantiles_are_those_of_many_draws() -> None:
    rng = np.random.default_rng(0)
    chances, values = rng.dirichlet(np.ones(5), 20), np.arange(1.0, 6.0)
    draws = np.stack([rng.choice(values, 40_001, p=row) for row in chances])
    shares = np.array([0.1, 0.5, 0.9])
    for share, found in zip(shares, quantiles(chances, values, shares), strict=True):
        sorted_draws = np.sort(draws, 1)[:, int(share * 40_000)]
        near = np.abs(chances.cumsum(1) - share).min(1) < 0.01  # too close to call by drawing
        assert (found[~near] == sorted_draws[~near]).all()
        assert (~near).sum() > 10


def test_an_exactly_reached_quantile_is_the_lower_value() -> None:
    halves, values = np.array([[0.5, 0.5]]), np.array([1.0, 2.0])
    assert quantiles(halves, values, np.array([0.5, 1.0])).tolist() == [[1.0], [2.0]]
