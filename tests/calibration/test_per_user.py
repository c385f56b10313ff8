"""Per-user calibration equals its formula, written with loops and a root finder."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from tests.inference.cases import (
    FOR_PEOPLE,
    ITEMS,
    KINDS,
    NEW_USER,
    NOW,
    TIMELESS,
    USERS,
    Cells,
    estimator,
    history_of,
    known_cells,
    literal,
    make_kind,
    ratings,
)
from tests.listed import best_of
from tests.queries import NOTHING, joined, known, of_user, stored, user_of
from tests.support.close import assert_close

from cfnade.calibration.calibration import Calibration
from cfnade.calibration.per_user import Calibrator, LevelPreferences
from cfnade.checkpoint import load, save
from cfnade.components import row_states
from cfnade.data.scale import Scale
from cfnade.estimator import CFNADE
from cfnade.evaluation import rating_metrics as metrics
from cfnade.evaluation.evaluate import evaluate
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Entities, KnownRatings, Query
from cfnade.inference.ranking_options import Objective
from cfnade.inference.scorer import Scorer
from cfnade.inference.top_n import rank_by_ratings

FloatArray = npt.NDArray[np.float64]
WEIGHTS = (0.2, -0.1, 0.3, 0.0, -0.4, 0.1, 0.0, 0.2, -0.2, 0.1)
WITH_PREFERENCES = Calibration(1.3, WEIGHTS, user_weight=1.6)


def model_with_preferences(kind: str, **more: Any) -> FittedModel:
    return replace(make_kind(kind, **more), calibration=WITH_PREFERENCES)


# -- the formula, with loops -----------------------------------------------------------------------


def item_frequencies(fitted: FittedModel, item: int, everyone: list[float]) -> list[float]:
    """Five prior ratings and those that training (or else the context) counted."""
    if "item" in fitted.training_counts:
        counts = fitted.training_counts["item"][item].tolist()
    else:
        cells = known_cells(fitted.context)
        counts = [
            sum(i == item and k == level for (_, i), k in cells.items()) for level in range(10)
        ]
    return [(n + 5 * p) / (sum(counts) + 5) for n, p in zip(counts, everyone, strict=True)]


def expected_preference(fitted: FittedModel, rated: dict[int, int]) -> list[float]:
    """Preferences of a user who rated items at these levels, by definition."""
    values, levels = fitted.context.scale.values, range(10)
    counts = next(iter(fitted.training_counts.values())).sum(0).tolist()
    everyone = [max(n / sum(counts), 0.1 / 10) for n in counts]
    everyone = [p / sum(everyone) for p in everyone]
    excess = [0.0] * 10
    for item, level in rated.items():
        for k, p in enumerate(item_frequencies(fitted, item, everyone)):
            excess[k] += ((k == level) - p) / (len(rated) + 30)
    mean = sum(p * v for p, v in zip(everyone, values, strict=True))
    variance = sum(p * (v - mean) ** 2 for p, v in zip(everyone, values, strict=True))
    # e · (I - v ⊗ π(v - μ)/var) / π
    along = sum(e * v for e, v in zip(excess, values, strict=True))
    return [
        (excess[k] - along * everyone[k] * (values[k] - mean) / variance) / everyone[k]
        for k in levels
    ]


def honest(fitted: FittedModel, user: int, item: int, cells: Cells, raw: FloatArray) -> FloatArray:
    """The distribution of a pair, calibrated with the user's other ratings."""
    values = np.array(fitted.context.scale.values)
    rated = {i: level for (u, i), level in cells.items() if u == user and i != item}
    preference = np.array(expected_preference(fitted, rated))

    def tilted(theta: float) -> FloatArray:
        scores = np.log(raw) / 1.3 + np.array(WEIGHTS) + 1.6 * preference + theta * values
        weights = np.exp(scores - scores.max())
        return np.asarray(weights / weights.sum())

    return tilted(brentq(lambda theta: float((tilted(theta) - raw) @ values), -90, 90, xtol=1e-13))


@cache
def expected(kind: str) -> FloatArray:
    """Of all cells of users in the data. Returns (users, items, K)."""
    fitted = model_with_preferences(kind)
    cells = known_cells(fitted.context)
    table = [
        [honest(fitted, u, i, cells, literal(fitted, u, i)) for i in range(ITEMS)]
        for u in range(USERS)
    ]
    return np.array(table)


# -- whatever is asked -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_equal_the_formula(kind: str) -> None:
    fitted = model_with_preferences(kind)
    predictor, times = estimator(fitted), NOW if "time" in kind else None
    users, items = (part.ravel() for part in np.indices((USERS, ITEMS)))
    said = predictor.predict_proba(users * 10, items + 100, timestamp=times)
    np.testing.assert_allclose(said.reshape(USERS, ITEMS, -1), expected(kind), atol=2e-6)
    plain = estimator(replace(fitted, calibration=replace(WITH_PREFERENCES, user_weight=0.0)))
    assert np.abs(plain.predict_proba(users * 10, items + 100, timestamp=times) - said).max() > 0.01
    one = predictor.predictor_.predict_items(
        predictor.predictor_.resolve_user(30), np.arange(ITEMS), times
    )  # as a service asks
    np.testing.assert_allclose(one.probabilities, expected(kind)[3], atol=2e-6)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_histories_equal_the_formula(kind: str) -> None:
    fitted = model_with_preferences(kind)
    data, cells = fitted.context, known_cells(fitted.context)
    told = cells | {(-1, i): level for (u, i), level in cells.items() if u == 3}
    raw = [literal(fitted, -1, i, told) for i in range(ITEMS)]
    expected_values = [honest(fitted, -1, i, told, raw[i]) for i in range(ITEMS)]
    histories = {"me": history_of(data, 3)}
    said = estimator(fitted).predict_proba("me", data.item_ids, histories=histories)
    np.testing.assert_allclose(said, expected_values, atol=2e-6)
    both = estimator(fitted).predict_proba(["me", 50, "me"], [102, 102, 105], histories=histories)
    mixed = [said[2], expected(kind)[5, 2], said[5]]
    np.testing.assert_allclose(both, mixed, atol=2e-6)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("how", [{}, {"rank_by": "threshold", "threshold": 4.5}])
@pytest.mark.parametrize("kind", TIMELESS)
def test_lists_rank_by_the_calibrated_pairs(kind: str, how: dict[str, Any], seen: bool) -> None:
    predictor = estimator(model_with_preferences(kind))
    data, values = predictor.fitted_.context, predictor.scale_.array()
    for user in (0, 3):
        known = {i for u, i in known_cells(data) if u == user}
        chances, scores = expected(kind)[user], {}
        for item in set(range(ITEMS)) - (known if seen else set()):
            scores[item] = {
                "prediction": float(chances[item] @ values),
                "threshold": float(chances[item][values >= 4.5].sum()),
            }[how.get("rank_by", "prediction")]
        frame = predictor.recommend(user * 10, n=3, exclude_seen=seen, min_ratings=0, **how)
        first = sorted(scores, key=lambda item: (-round(scores[item], 5), item))[:3]
        assert (frame["item"] - 100).to_list() == first
        np.testing.assert_allclose(frame["score"], [scores[item] for item in first], atol=1e-5)
        np.testing.assert_allclose(frame.select("^p_.*$").to_numpy(), chances[first], atol=3e-6)


def test_an_item_that_is_best_without_its_own_rating_is_found() -> None:
    """A single rating in the middle is a preference for the middle, but not for its own item."""
    fitted = model_with_preferences("user")
    fitted = replace(fitted, calibration=Calibration(1.0, (), 5.0))
    rated = known([5], [5])
    scores = np.tile(np.linspace(0.0, 0.5, 10), (ITEMS, 1))
    scores[5] = np.linspace(0.0, 0.45, 10)  # it would be the last one if all leaned alike
    by = Objective("threshold", fitted.context.scale, 4.5)
    result = best_of(scores, np.ones(ITEMS, bool), 1, by, None, rated=rated, among=fitted)
    chances = np.exp(scores[5]) / np.exp(scores[5]).sum()
    assert result.items.tolist() == [5]
    assert result.scores == pytest.approx([chances[-2:].sum()], abs=1e-9)
    everything = best_of(scores, np.ones(ITEMS, bool), ITEMS, by, None, rated=rated, among=fitted)
    assert everything.items.tolist() == [5, *(i for i in range(ITEMS) if i != 5)]


def test_evaluation_scores_what_is_predicted() -> None:
    data = ratings()
    fitted = model_with_preferences("user", data=data.select(np.arange(45)))
    test = data.select(np.arange(45, 70))
    said = estimator(fitted).predict_proba(data.user_ids[test.users], data.item_ids[test.items])
    assert evaluate(fitted, test).nll == pytest.approx(metrics.nll(said, test.levels), abs=1e-5)


OF_NEW = Calibration(2.4, tuple(np.linspace(0.6, -0.3, 10).tolist()), 0.7)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_new_users_have_a_separate_calibration(kind: str) -> None:
    fitted = model_with_preferences(kind)
    apart, as_known = (replace(fitted, calibration_of_new=one) for one in (OF_NEW, None))
    history = history_of(fitted.context, 3)
    every = fitted.context.item_ids
    of_me: dict[str, Any] = {"histories": {"me": history}}
    raw = estimator(replace(fitted, calibration=None)).predict_proba("me", every, **of_me)
    row = stored(fitted.context, 3).ratings(0)
    preferences = preferences_of(fitted, row, np.arange(ITEMS))
    expected_values = OF_NEW.apply(raw, fitted.context.scale.array(), preferences)
    said = estimator(apart).predict_proba("me", every, **of_me)
    np.testing.assert_allclose(said, expected_values, atol=1e-9)
    assert np.abs(said - estimator(as_known).predict_proba("me", every, **of_me)).max() > 0.01
    one, other = (estimator(f).predict_proba(10, every) for f in (apart, as_known))
    assert_close(one, other)
    whole = estimator(apart).recommend(history=history, n=ITEMS, min_ratings=0, rank_by="threshold")
    first = estimator(apart).recommend(history=history, n=2, min_ratings=0, rank_by="threshold")
    assert first["item"].to_list() == whole["item"].to_list()[:2]
    assert whole["score"].is_sorted(descending=True)
    np.testing.assert_allclose(
        whole.select("^p_.*$").to_numpy(),
        expected_values[whole["item"].to_numpy() - 100],
        atol=3e-6,
    )


def test_trained_and_new_users_are_listed_together() -> None:
    """Their temperatures differ, and each gets the list of a request of its own."""
    fitted = replace(model_with_preferences("user"), calibration_of_new=OF_NEW)
    context = fitted.context
    scorer, by = Scorer(fitted), Objective("threshold", context.scale, 4.0)
    people = joined(
        [
            stored(context, 0),
            user_of(context, stored(context, 3).ratings(0)),
            user_of(context),
        ]
    )
    every = np.arange(ITEMS)

    def listed(some: Entities) -> list[list[int]]:
        lists = scorer.item_scores(some, every, leave_one_out=True)
        mask = np.ones((len(some), ITEMS), bool)
        result = rank_by_ratings(lists, context, mask, 4, by, Calibrator(fitted))
        return [result.items[result.user == number].tolist() for number in range(len(some))]

    assert listed(people) == [listed(people.take(np.array([n])))[0] for n in range(3)]


@pytest.mark.parametrize("kind", [*FOR_PEOPLE, "both-time"])
def test_unknown_users_get_uncalibrated_item_frequencies(kind: str) -> None:
    """The baseline: how others rated the item, with two prior ratings."""
    fitted = replace(model_with_preferences(kind), calibration_of_new=OF_NEW)
    data, times = fitted.context, NOW if "time" in kind else None
    everyone = np.bincount(data.levels, minlength=10) + 1.0
    for item in range(ITEMS):
        counts = np.bincount(data.levels[data.items == item], minlength=10)
        expected_values = (counts + 2 * everyone / everyone.sum()) / (counts.sum() + 2)
        said = estimator(fitted).predict_proba([10 * NEW_USER], [item + 100], timestamp=times)
        np.testing.assert_allclose(said[0], expected_values, atol=1e-6)
        if times is None:
            new = estimator(fitted).predict_proba("me", [item + 100], histories={"me": {}})
            np.testing.assert_allclose(new[0], expected_values, atol=1e-6)


def test_a_users_only_rating_is_left_out_of_its_prediction() -> None:
    data = ratings()
    mine = data.users == 3
    data = data.select(~mine | (np.cumsum(mine) == 1))
    item, level = (int(part[data.users == 3][0]) for part in (data.items, data.levels))
    others = data.levels[(data.items == item) & (data.users != 3)]
    everyone = np.bincount(data.levels, minlength=10) + 1.0
    expected_values = np.bincount(others, minlength=10) + 2 * everyone / everyone.sum()
    scorer = Scorer(make_kind("user", data=data))
    for few in (
        of_user(scorer, stored(data, 3), [item]),
        scorer.probabilities([3], [item]),
    ):
        np.testing.assert_allclose(few[0], expected_values / expected_values.sum(), atol=1e-6)
    assert (
        expected_values[level]
        < np.bincount(data.levels[data.items == item], minlength=10)[level] + 0.9
    )


# -- what it keeps, and where it rests -------------------------------------------------------------


def preferences_of(fitted: FittedModel, rated: KnownRatings, items: Any) -> FloatArray:
    """Of a new user with these ratings."""
    user, zeros = user_of(fitted.context, rated), np.zeros(len(items), np.int64)
    return LevelPreferences(fitted).for_query(Query.of_users(fitted.context, user, zeros, items))


def every_cell() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray]:
    users, items = (part.ravel() for part in np.indices((USERS + 1, ITEMS + 1)))
    return users - 1, items - 1, np.random.default_rng(0).dirichlet(np.full(10, 0.5), len(users))


@pytest.mark.parametrize("kind", KINDS)
def test_every_mean_is_kept(kind: str) -> None:
    fitted, (users, items, chances) = model_with_preferences(kind), every_cell()
    values, calibrator = fitted.context.scale.array(), Calibrator(fitted)
    said = calibrator.apply(chances, Query.of_pairs(fitted.context, users, items))
    np.testing.assert_allclose(said @ values, chances @ values, rtol=0, atol=1e-9)
    without = replace(WITH_PREFERENCES, user_weight=0.0).apply(chances, values)
    assert np.abs(said - without).max() > 0.01


def test_unknown_users_have_no_preferences() -> None:
    fitted, (users, items, _) = model_with_preferences("user"), every_cell()
    blank = np.isin(users, [-1, NEW_USER])
    preferences = LevelPreferences(fitted)
    found = preferences.for_query(Query.of_pairs(fitted.context, users, items))
    assert not found[blank].any()
    assert np.abs(found[~blank]).max(1).min() > 0
    assert not preferences_of(fitted, NOTHING, np.arange(ITEMS)).any()
    plain = estimator(replace(fitted, calibration=replace(WITH_PREFERENCES, user_weight=0.0)))
    none: dict[str, Any] = {"histories": {"me": {}}}
    said = estimator(fitted).predict_proba("me", [101, 102], **none)
    assert_close(said, plain.predict_proba("me", [101, 102], **none))
    # A lone rating is not known where it is asked for.
    rated = known([5], [9])
    lone = preferences_of(fitted, rated, np.array([5, 6, -1]))
    assert not lone[0].any()
    assert lone[1].any()
    assert np.array_equal(lone[1], lone[2])


@pytest.mark.parametrize("kind", ["user", "item", "both"])
def test_a_rating_affects_only_predictions_of_other_items(kind: str) -> None:
    fitted, (users, items, chances) = model_with_preferences(kind), every_cell()
    data = fitted.context
    place = int(np.flatnonzero(data.users == 3)[2])
    levels = data.levels.copy()
    levels[place] = (levels[place] + 4) % 10
    changed = replace(fitted, context=data.replace(levels=levels))
    before, after = (
        Calibrator(f).apply(chances, Query.of_pairs(f.context, users, items))
        for f in (fitted, changed)
    )
    own = (users == 3) & (items == data.items[place])
    assert own.sum() == 1
    np.testing.assert_allclose(after[own], before[own], rtol=0, atol=1e-12)
    others = (users == 3) & ~own
    assert (np.abs(after - before)[others].max(1) > 1e-4).all()


def test_chunks_give_the_same_preferences(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, (users, items, _) = model_with_preferences("both"), every_cell()
    order = np.random.default_rng(5).permutation(len(users))
    query = Query.of_pairs(fitted.context, users, items)
    whole = LevelPreferences(fitted).for_query(query)
    monkeypatch.setattr(row_states, "PIECE", 12)
    pieces = LevelPreferences(fitted).for_query(query.take(order))
    np.testing.assert_allclose(pieces, whole[order], rtol=0, atol=1e-12)
    assert LevelPreferences(fitted).for_query(query.take(order[:0])).shape == (0, 10)


def test_one_rating_at_a_new_level_has_a_bounded_effect() -> None:
    fitted = model_with_preferences("user")
    counts = fitted.training_counts["item"].copy()
    counts[:, 0] = 0
    scale = Scale(tuple(float(v) for v in range(10)))
    fitted = replace(
        fitted,
        training_counts={"item": counts},
        context=fitted.context.select(np.arange(0)).replace(scale=scale),
    )
    rated = known([5], [0])
    preference = preferences_of(fitted, rated, np.array([-1]))[0]
    assert 1.0 < preference[0] == preference.max() < 5.0


# -- saved -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "both", "item-seeds"])
def test_predictions_survive_saving(kind: str, tmp_path: Path) -> None:
    fitted = replace(model_with_preferences(kind), calibration_of_new=OF_NEW)
    save(fitted, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.calibration == WITH_PREFERENCES
    assert again.calibration_of_new == OF_NEW
    users, items = np.repeat(np.arange(0, 90, 10), ITEMS), np.tile(np.arange(100, 114), 9)
    one, other = (estimator(f).predict_proba(users, items) for f in (fitted, again))
    assert_close(one, other)


def test_a_model_without_context_uses_the_preferences_of_histories(tmp_path: Path) -> None:
    fitted = model_with_preferences("user")
    save(fitted, tmp_path / "shared", with_context=False)
    histories = {"me": history_of(fitted.context, 3)}
    # Item 7 has no weights: what is known of it is in the context alone.
    asked = [raw for raw in fitted.context.item_ids.tolist() if raw != 107]
    said = estimator(fitted).predict_proba("me", asked, histories=histories)
    shared = CFNADE.load(tmp_path / "shared").predict_proba("me", asked, histories=histories)
    np.testing.assert_allclose(shared, said, rtol=0, atol=1e-12)
