"""Calibration keeps means, recovers known parameters, and never lowers the likelihood."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, brentq, minimize

from cfnade.calibration import calibration
from cfnade.calibration.calibration import LEVEL_PENALTY, PENALTY, Calibration, fit_calibration
from cfnade.evaluation.rating_metrics import calibration_error, nll
from cfnade.exceptions import PredictionError
from cfnade.kernels import newton

FloatArray = npt.NDArray[np.float64]
STARS = [1.0, 2.0, 3.0, 4.0, 5.0]
UNEVEN = [-2.0, 0.5, 0.75, 3.0, 10.0]


def distributions(n: int, levels: int = 5, seed: int = 0, spread: float = 1.0) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.full(levels, spread), n)


def sample_levels(p: FloatArray, seed: int = 1) -> npt.NDArray[np.int64]:
    points = np.random.default_rng(seed).random((len(p), 1))
    levels: npt.NDArray[np.int64] = (points > np.cumsum(p, axis=1)[:, :-1]).sum(1)
    return levels


@st.composite
def problems(draw: st.DrawFn) -> tuple[FloatArray, FloatArray, Calibration]:
    """Distributions from flat to all but certain, any rising scale, any calibration."""
    K = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    p = rng.dirichlet(np.full(K, draw(st.sampled_from([0.01, 0.1, 1.0, 10.0]))), 20)
    values = np.cumsum(rng.uniform(0.01, 2.0, K)) - 3.0
    weights = rng.normal(0, draw(st.sampled_from([0.0, 0.5, 3.0])), K)
    temperature = draw(st.floats(0.05, 20.0))
    return p, values, Calibration(temperature, tuple(weights.tolist()))


@settings(max_examples=80)
@given(problems())
def test_the_mean_is_kept_and_probabilities_stay_probabilities(
    problem: tuple[FloatArray, FloatArray, Calibration],
) -> None:
    p, values, result = problem
    q = result.apply(p, values)
    assert (q >= 0).all()
    assert q.sum(1) == pytest.approx(np.ones(len(p)), abs=1e-12)
    before, after = p @ values, q @ values
    assert np.abs(after - before).max() < 1e-9 * (values[-1] - values[0])
    clear = np.diff(np.sort(before)) > 1e-7
    assert (np.diff(after[np.argsort(before)])[clear] > 0).all()
    assert ((q > 0) <= (p > 0)).all()


def test_it_equals_the_formula_solved_by_a_root_finder() -> None:
    p, values, weights = distributions(30), np.array(UNEVEN), np.array([0.3, -1, 0.5, 0, 1])
    q = Calibration(1.7, tuple(weights.tolist())).apply(p, UNEVEN)
    for row, result in zip(p, q, strict=True):

        def tilted(theta: float, row: FloatArray = row) -> FloatArray:
            mass: FloatArray = row ** (1 / 1.7) * np.exp(weights + theta * values)
            mass /= mass.sum()
            return mass

        def off(theta: float, row: FloatArray = row) -> float:
            return float((tilted(theta, row) - row) @ values)

        assert result == pytest.approx(tilted(brentq(off, -20, 20, xtol=1e-14)), abs=1e-10)


def test_the_identity_changes_nothing() -> None:
    p = distributions(100)
    same = Calibration().apply(p, STARS)
    assert same == pytest.approx(p / p.sum(1, keepdims=True), abs=1e-12)
    at_rest = Calibration(1.0, (0.7,) * 5).apply(p, STARS)  # equal weights favour no level
    assert at_rest == pytest.approx(p, abs=1e-10)
    slope = Calibration(1.0, (-2.0, -1.0, 0.0, 1.0, 2.0)).apply(p, STARS)  # undone by the tilt
    assert slope == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.3, 1.8, 7.0])
def test_the_inverse_temperature_restores_distributions(temperature: float) -> None:
    # (p^(1/T) · e^θv)^T · e^θ'v is p times a tilt, and only no tilt keeps the mean.
    p = distributions(200)
    there = Calibration(temperature).apply(p, UNEVEN)
    assert np.abs(there - p).max() > 0.05
    assert Calibration(1 / temperature).apply(there, UNEVEN) == pytest.approx(p, abs=1e-9)


def test_higher_temperatures_flatten_distributions() -> None:
    p, stars = distributions(100), np.array(STARS)
    peaks = np.exp(-np.square(stars - np.linspace(1, 5, 100)[:, None]))
    peaks /= peaks.sum(1, keepdims=True)
    hotter = [Calibration(T) for T in (0.5, 1.0, 2.0, 4.0)]
    entropies = [-np.sum(q * np.log(q), axis=1) for q in (c.apply(p, STARS) for c in hotter)]
    spreads = [q @ stars**2 - (q @ stars) ** 2 for q in (c.apply(peaks, STARS) for c in hotter)]
    assert (np.diff(entropies, axis=0) > 0).all()
    assert (np.diff(spreads, axis=0) > 0).all()


def test_two_levels_are_fixed_by_their_mean() -> None:
    p = distributions(50, 2)
    levels = np.zeros(50, np.int64)
    assert Calibration(5.0, (1.0, -3.0)).apply(p, [0, 1]) == pytest.approx(p, abs=1e-10)
    result = fit_calibration(p, levels, [0, 1])
    assert result.apply(p, [0, 1]) == pytest.approx(p, abs=1e-10)
    assert result.temperature == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [0.05, 2.0, 20.0])
def test_certain_and_almost_certain_distributions_stay_finite(temperature: float) -> None:
    tiny = 1e-300
    p = np.array(
        [
            *np.eye(5),
            [1 - 4e-16, 1e-16, 1e-16, 1e-16, 1e-16],
            [tiny, tiny, 1.0, tiny, tiny],
            [tiny, tiny, tiny, tiny, 1.0],
            [0.0, 1.0, tiny, 0.0, 0.0],
            [0.0, 0.5, 0.0, 0.5, 0.0],
            [0.5, 0.0, 0.0, 0.0, 0.5],
        ]
    )
    q = Calibration(temperature, (1.0, 0.0, -2.0, 0.0, 1.0)).apply(p, STARS)
    assert np.array_equal(q[:5], np.eye(5))
    assert q[9:] == pytest.approx(p[9:], abs=1e-12)  # two possible levels: the mean decides
    assert np.isfinite(q).all()
    assert q @ STARS == pytest.approx(p @ STARS, rel=1e-12)
    assert (q[p == 0] == 0).all()


def test_empty_and_single_precision_input() -> None:
    assert Calibration(2.0).apply(np.empty((0, 5)), STARS).shape == (0, 5)
    p = distributions(100).astype(np.float32)
    q = Calibration(2.0).apply(p, STARS)
    assert q.sum(1) == pytest.approx(np.ones(100), abs=1e-14)
    assert q @ STARS == pytest.approx(p @ np.array(STARS, np.float32), abs=1e-5)


def test_both_ends_of_the_scale_are_equally_exact() -> None:
    p = np.array([[1 - 3e-15, 1e-15, 1e-15, 1e-15], [1.0, 1e-30, 1e-25, 1e-40]])
    q = Calibration(1.6, (0.5, 0.0, 1.0, -1.0)).apply(p, [0, 1, 2, 3])
    mirrored = Calibration(1.6, (-1.0, 1.0, 0.0, 0.5)).apply(p[:, ::-1], [0, 1, 2, 3])
    assert mirrored[:, ::-1] == pytest.approx(q, rel=1e-9, abs=0)
    assert q[:, 1:] @ [1, 2, 3] == pytest.approx(p[:, 1:] @ [1, 2, 3], rel=1e-9, abs=0)


@pytest.mark.parametrize("seed", [1, 9])
def test_hard_cells_are_solved_in_few_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spiky distributions, sharpened tenfold, with wild weights: Newton alone creeps (51, 84 steps).
    monkeypatch.setattr(newton, "_MAX_TILT_STEPS", 35)
    rng = np.random.default_rng(seed)
    p, unit = rng.dirichlet(np.full(50, 0.01), 200), np.linspace(0, 1, 50)
    q = Calibration(0.1, tuple(rng.normal(0, 15, 50).tolist())).apply(p, unit)
    assert q @ unit == pytest.approx(p @ unit, abs=1e-10)


# -- fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [STARS, UNEVEN])
def test_a_known_sharpening_is_undone(values: list[float]) -> None:
    truth = distributions(60_000, spread=2.0)
    levels = sample_levels(truth)
    # q = p^(1/T)·w·tilt is undone by temperature 1/T and weights w^(-T).
    sharpened = Calibration(0.5, (0.4, -0.2, 0.0, -0.2, 0.4)).apply(truth, values)
    result = fit_calibration(sharpened, levels, values)
    assert result.temperature == pytest.approx(2.0, rel=0.03)
    recovered = result.apply(sharpened, values)
    assert nll(sharpened, levels) > nll(truth, levels) + 0.05
    assert nll(recovered, levels) == pytest.approx(nll(truth, levels), abs=3e-4)
    assert (
        calibration_error(recovered, levels) < 0.006 < 0.03 < calibration_error(sharpened, levels)
    )


def test_the_truth_needs_no_calibration() -> None:
    truth = distributions(20_000)
    result = fit_calibration(truth, sample_levels(truth), STARS)
    assert result.temperature == pytest.approx(1.0, abs=0.02)
    assert result.apply(truth, STARS) == pytest.approx(truth, abs=0.02)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 60))
def test_the_fit_never_lowers_the_likelihood_of_its_data(seed: int, K: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    p, levels = distributions(n, K, seed, spread=rng.choice([0.1, 1.0])), rng.integers(0, K, n)
    values = np.cumsum(rng.uniform(0.1, 1, K))
    after = nll(fit_calibration(p, levels, values).apply(p, values), levels)
    assert after <= nll(p, levels) + 1e-12  # apply() also puts right sums that missed 1


def test_the_fit_equals_that_of_a_general_minimizer() -> None:
    truth = distributions(2_000, spread=2.0)
    levels = sample_levels(truth)
    p = Calibration(0.6).apply(truth, STARS)
    n = len(p)

    def cost(x: FloatArray) -> float:
        q = Calibration(1 / x[0], tuple(x[1:].tolist())).apply(p, STARS)
        return nll(q, levels) + float(PENALTY * (x[0] - 1) ** 2 + LEVEL_PENALTY * x[1:] @ x[1:]) / (
            2 * n
        )

    best = minimize(cost, [0.7, 0, 0, 0, 0, 0], method="BFGS", options={"gtol": 1e-7})
    result = fit_calibration(p, levels, STARS)
    at = np.array([1 / result.temperature, *result.log_weights])
    assert cost(at) == pytest.approx(best.fun, abs=1e-7)
    assert approx_fprime(at, cost, 1e-6) == pytest.approx(np.zeros(6), abs=1e-4)


@pytest.mark.parametrize("personal", [False, True])
def test_gradient_and_information_are_those_of_the_likelihood(personal: bool) -> None:
    p, preferences = distributions(12), preference(12) if personal else None
    at = np.array([0.6, *[0.8] * personal, 0.3, -0.2, 0.0, 0.5, -0.1])
    levels, unit = sample_levels(p), (np.array(UNEVEN) + 2) / 12

    def log_q(x: FloatArray) -> FloatArray:
        c = float(x[1]) if personal else 0.0
        result = Calibration(1 / x[0], tuple(x[-5:].tolist()), c)
        return np.log(result.apply(p, unit, preferences))

    def cost(x: FloatArray) -> float:
        return float(-log_q(x)[np.arange(12), levels].mean())

    slope = calibration._derivatives(p, np.exp(log_q(at)), levels, unit, preferences)
    assert slope.gradient == pytest.approx(approx_fprime(at, cost, 1e-6), abs=1e-5)
    # Fisher's information: the expected product of the derivatives of log q.
    steps = np.eye(len(at)) * 1e-5
    moved = np.stack([(log_q(at + h) - log_q(at - h)) / 2e-5 for h in steps])  # (J, n, K)
    expected = np.einsum("nk,ink,jnk->ij", np.exp(log_q(at)), moved, moved) / 12
    assert slope.information == pytest.approx(expected, abs=1e-6)


def test_few_ratings_change_little() -> None:
    p = distributions(3)
    result = fit_calibration(p, [4, 4, 4], STARS)
    assert 0.3 < result.temperature < 3
    assert max(abs(weight) for weight in result.log_weights) < 3


def test_a_rating_of_probability_zero_does_not_stop_the_fit() -> None:
    truth = distributions(5_000, spread=2.0)
    levels, sharp = sample_levels(truth), Calibration(0.5).apply(truth, STARS)
    p = np.concatenate([sharp, [[1.0, 0, 0, 0, 0]]])
    result = fit_calibration(p, np.append(levels, 4), STARS)
    assert result == fit_calibration(sharp, levels, STARS)
    assert result.temperature > 1.5
    assert fit_calibration([[1.0, 0.0]], [1], [0, 1]) == Calibration()


def test_many_ratings_are_fitted_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = distributions(20_000, spread=2.0)
    levels, sharp = sample_levels(truth), Calibration(0.5).apply(truth, STARS)
    whole = fit_calibration(sharp, levels, STARS)
    monkeypatch.setattr(calibration, "MAX_FIT_RATINGS", 7_000)
    part = fit_calibration(sharp, levels, STARS)
    assert part == fit_calibration(sharp, levels, STARS) != whole  # the same part every time
    assert part.temperature == pytest.approx(whole.temperature, rel=0.1)


def test_a_misleading_sample_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    p = np.tile([0.1, 0.2, 0.4, 0.2, 0.1], (100, 1))
    levels = np.array([0, *[2] * 99])  # the first one alone asks for wider distributions
    monkeypatch.setattr(calibration, "MAX_FIT_RATINGS", 1)
    assert fit_calibration(p[:1], levels[:1], STARS) != Calibration()
    assert fit_calibration(p, levels, STARS) == Calibration()


# -- personal -----------------------------------------------------------------------------------


def preference(n: int, seed: int = 7) -> FloatArray:
    """Random preferences, a user per row."""
    return np.random.default_rng(seed).normal(0.0, 0.7, (n, 5))


@pytest.mark.parametrize("values", [STARS, UNEVEN])
def test_the_weight_of_preferences_is_recovered(values: list[float]) -> None:
    told, leans = distributions(60_000, spread=2.0), preference(60_000)
    truth = Calibration(1.0, (), 0.6).apply(told, values, leans)
    levels = sample_levels(truth)
    result = fit_calibration(told, levels, values, leans)
    assert result.user_weight == pytest.approx(0.6, abs=0.03)
    assert result.temperature == pytest.approx(1.0, abs=0.03)
    after = nll(result.apply(told, values, leans), levels)
    assert after == pytest.approx(nll(truth, levels), abs=3e-4)
    assert after < nll(fit_calibration(told, levels, values).apply(told, values), levels) - 0.01


def test_misleading_preferences_get_no_weight() -> None:
    told, leans = distributions(5_000, spread=2.0), preference(5_000)
    levels = sample_levels(Calibration(0.7, (), 0.6).apply(told, STARS, leans))
    result = fit_calibration(told, levels, STARS, -leans)
    assert result == fit_calibration(told, levels, STARS)
    assert result.user_weight == 0.0
    assert result.temperature != 1.0


def test_a_preference_of_all_users_is_a_level_weight() -> None:
    p, one = distributions(50), preference(1)[0]
    personal = Calibration(1.4, (0.1, 0.0, 0.3, -0.2, 0.0), 0.8)
    together = personal.apply(p, UNEVEN, np.tile(one, (50, 1)))
    assert personal.with_preference(one).apply(p, UNEVEN) == pytest.approx(together, abs=1e-12)
    bare = Calibration(1.4, (), 0.8)
    together = bare.apply(p, UNEVEN, np.tile(one, (50, 1)))
    assert bare.with_preference(one).apply(p, UNEVEN) == pytest.approx(together, abs=1e-12)


def test_preferences_along_the_values_have_no_effect() -> None:
    p, leans = distributions(50), preference(50)
    moved = leans + np.linspace(-1, 1, 50)[:, None] * np.array(UNEVEN) + 3.0
    result = Calibration(1.4, (), 0.8)
    again = result.apply(p, UNEVEN, moved)
    assert again == pytest.approx(result.apply(p, UNEVEN, leans), abs=1e-8)


def test_zero_preferences_give_the_calibration_without_them() -> None:
    p = distributions(50)
    personal, ordinary = Calibration(1.4, (0.1,) * 5, 0.8), Calibration(1.4, (0.1,) * 5)
    expected = pytest.approx(ordinary.apply(p, STARS), abs=1e-12)
    assert personal.apply(p, STARS) == expected
    assert personal.apply(p, STARS, np.zeros((50, 5))) == expected
    assert ordinary.apply(p, STARS, preference(50)) == expected
    assert Calibration(1.0, (), 0.8).apply(p, STARS, preference(50)) != pytest.approx(p, abs=0.01)


# -- as numbers ---------------------------------------------------------------------------------


def test_json_round_trip() -> None:
    result = Calibration(1.9, (0.1, -0.2, 1 / 3), 0.6)
    assert Calibration.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert Calibration.from_dict(Calibration().to_dict()) == Calibration()


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"temperature": 2.0},
        {"temperature": 2.0, "log_weights": []},
        {"temperature": None, "log_weights": [], "user_weight": 0.0},
    ],
)
def test_incomplete_dicts_are_errors(saved: dict[str, object]) -> None:
    with pytest.raises(PredictionError, match="must hold numbers named temperature and user_wei"):
        Calibration.from_dict(saved)


def test_invalid_parameters_are_errors() -> None:
    with pytest.raises(PredictionError, match=r"temperature \(=0.0\) must lie in 0.05..20"):
        Calibration(0.0)
    with pytest.raises(PredictionError, match="temperature"):
        Calibration(math.nan)
    with pytest.raises(PredictionError, match=r"log_weights .* must be finite"):
        Calibration(1.0, (math.inf,))
    for personal in (-0.1, 11.0, math.nan):
        with pytest.raises(
            PredictionError, match=rf"user_weight \(={personal}\) must lie in 0..10"
        ):
            Calibration(1.0, (), personal)
    wrong = np.full((2, 5), math.nan)
    for preferences in (preference(3), wrong, preference(2)[:, :4]):
        with pytest.raises(PredictionError, match=r"give finite ones of shape \(2, 5\)"):
            Calibration(1.0, (), 0.5).apply(distributions(2), STARS, preferences)
    with pytest.raises(PredictionError, match="for 3 levels, the probabilities have 5"):
        Calibration(1.0, (0.0, 1.0, 0.0)).apply(distributions(2), STARS)
    with pytest.raises(PredictionError, match="5 increasing numbers"):
        Calibration(2.0).apply(distributions(2), [5, 4, 3, 2, 1])


def test_nll_equals_that_of_the_calibrated_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_COPIED", 7)
    p, preferences = distributions(50), np.random.default_rng(2).normal(0, 0.3, (50, 5))
    result = Calibration(1.7, (0.1, 0.0, -0.2, 0.3, 0.0), 0.8)
    for own in (None, preferences):
        assert result.nll(p, sample_levels(p), STARS, own) == nll(
            result.apply(p, STARS, own), sample_levels(p)
        )


def test_fitting_copies_a_table_of_distributions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("MAX_FIT_RATINGS", 1 << 10), ("_CHUNK", 1 << 10), ("_COPIED", 1 << 11)):
        monkeypatch.setattr(calibration, name, size)
    p = distributions(40_000)
    levels, preferences = sample_levels(p**2 / (p**2).sum(1, keepdims=True)), np.zeros_like(p)
    fit_calibration(
        p[:9], levels[:9], STARS, preferences[:9]
    )  # kernels are loaded before anything is measured
    tracemalloc.start()
    try:
        fit_calibration(p, levels, STARS, preferences)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 3 * p.nbytes  # one normalised, and numbers of 8 bytes a line
