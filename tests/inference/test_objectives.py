"""Lists by prediction and probability, against the whole catalog calculated plainly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.close import assert_close
from tests.inference.cases import ITEMS, FloatArray, history_of, make, make_kind
from tests.listed import best_of

from cfnade.calibration.calibration import Calibration
from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.inference.objectives import Objective
from cfnade.inference.predictor import Predictor
from cfnade.inference.scorer import softmax

TEN = Scale(tuple(float(value) for value in range(1, 11)))
CRITERIA: list[dict[str, Any]] = [
    {"rank_by": "prediction"},
    {"rank_by": "threshold", "threshold": 4},
    {"rank_by": "threshold", "threshold": 1.25},
    {"rank_by": "threshold"},
    {"rank_by": "prediction", "personalization": 0.0},
    {"rank_by": "prediction", "personalization": 2.5},
]


OBJECTIVES = [
    Objective("prediction", TEN, 8.0),
    Objective("threshold", TEN, 8.0),
    Objective("threshold", TEN, 1.25),
    Objective("prediction", TEN, 8.0, personalization=2.5),
]


def score(chances: FloatArray, average: float, values: FloatArray, how: dict[str, Any]) -> float:
    """What one calibrated distribution is ranked by, from the definition."""
    if how["rank_by"] == "prediction":
        return float(average + how.get("personalization", 1.0) * (chances @ values - average))
    wanted = how.get("threshold", 4.0)
    return float(sum(p for p, v in zip(chances, values, strict=True) if v >= wanted))


@pytest.mark.parametrize("how", CRITERIA)
@pytest.mark.parametrize("kind", ["user", "item", "both-seeds-sqrt"])
def test_lists_hold_the_best_of_all_items_by_what_was_asked(kind: str, how: dict[str, Any]) -> None:
    predictor = Predictor(make_kind(kind))
    data, values = predictor.fitted.context, predictor.scale.array()
    frame = predictor.recommend([0, 30], n=5, min_ratings=0, **how)
    for user in (0, 30):
        own = frame.filter(pl.col("user") == user)
        seen = history_of(data, user // 10)
        items = [raw for raw in data.item_ids.tolist() if raw not in seen]
        chances = predictor.predict_proba(user, items)
        usual = (predictor.baseline @ values)[predictor.items.indices(items)]
        each = zip(items, chances, usual.tolist(), strict=True)
        scores = {raw: score(p, average, values, how) for raw, p, average in each}
        expected = sorted(scores, key=lambda raw: (-round(scores[raw], 5), raw))[:5]
        assert own["item"].to_list() == expected
        np.testing.assert_allclose(own["score"], [scores[raw] for raw in expected], atol=1e-5)
        ranked = predictor.ranked(user, n=5, min_ratings=0, **how)
        assert_close(ranked.scores, own["score"].to_numpy())
        assert data.item_ids[ranked.items].tolist() == expected


def test_ranks_differ() -> None:
    predictor = Predictor(make("user"))
    everything: dict[str, Any] = {"n": ITEMS, "exclude_seen": False, "min_ratings": 0}
    lists = {tuple(predictor.recommend(0, **everything, **how)["item"]) for how in CRITERIA}
    assert len(lists) >= 4


@pytest.mark.parametrize("by", OBJECTIVES)
@pytest.mark.parametrize("calibration", [None, Calibration(1.6, (0.2, -0.1) * 5)])
@pytest.mark.parametrize("spread", [3.0, 3e-7])
def test_few_candidates_give_the_list_of_all(
    by: Objective, calibration: Calibration | None, spread: float
) -> None:
    """Also where items differ by less than what their bounds leave open."""
    rng = np.random.default_rng(4)
    if by.personalization != 1:
        by = replace(by, averages=rng.uniform(1, 10, 2000))
    scores = (rng.normal(size=10) + rng.normal(size=(2000, 10)) * spread).astype(np.float32)
    allowed = rng.random(2000) < 0.7
    whole = best_of(scores, allowed, 2000, by, calibration)  # everything is calculated exactly
    assert set(whole.items) == set(np.flatnonzero(allowed))
    for n in (1, 10, 300):
        found = best_of(scores, allowed, n, by, calibration)
        assert np.array_equal(found.items, whole.items[:n])
        np.testing.assert_allclose(found.scores, whole.scores[:n], rtol=1e-9)
        np.testing.assert_allclose(found.probabilities, whole.probabilities[:n], rtol=1e-8)


@pytest.mark.parametrize("how", CRITERIA[:4])  # averages of the data differ
def test_equal_scores_are_listed_by_id(how: dict[str, Any]) -> None:
    fitted = make("user")
    network: Any = fitted.members[0].components["user"].network
    with torch.no_grad():
        network.V.zero_()
        network.b.copy_(network.b[:1].expand(ITEMS, -1))
    counts = np.ones_like(fitted.training_counts["item"])
    flat = Predictor(replace(fitted, training_counts={"item": counts}))
    for n in (4, ITEMS - 1):
        frame = flat.recommend(history={99 + ITEMS: 3.0}, n=n, min_ratings=0, **how)
        assert frame["item"].to_list() == list(range(100, 100 + n))
        assert frame["score"].n_unique() == 1


@pytest.mark.parametrize("by", OBJECTIVES)
def test_equal_distributions_get_equal_bits_however_many(by: Objective) -> None:
    rng = np.random.default_rng(6)
    calibration = Calibration(1.6, tuple((rng.normal(size=10) * 0.3).tolist()))
    for count in (3, 7, 9, 13, 37):
        scores = np.tile(rng.normal(size=10).astype(np.float32), (count, 1))
        if by.personalization != 1:
            by = replace(by, averages=np.full(count, 6.5))
        for n in (2, count):
            found = best_of(scores, np.ones(count, bool), n, by, calibration)
            assert found.items.tolist() == list(range(n))


# -- thresholds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5], 4),
        (np.arange(1, 11) / 2, 4),
        (range(1, 11), 8),
        (range(101), 75),
        ([0, 1], 1),
    ],
)
def test_a_good_rating_is_in_the_upper_quarter(values: Any, expected: float) -> None:
    assert Scale(tuple(float(v) for v in values)).default_threshold == expected


# -- thin items ------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_thinly_rated_items_are_hidden_and_counted(side: str) -> None:
    predictor = Predictor(make(side))
    data = predictor.fitted.context
    counts = np.bincount(data.items, minlength=ITEMS)
    for least in (0, 1, 5, 7, 1000):
        for seen in (True, False):
            frame = predictor.recommend(0, n=ITEMS, exclude_seen=seen, min_ratings=least)
            known = set(history_of(data, 0)) if seen else set()
            possible = [i for i in range(ITEMS) if i + 100 not in known]
            listed = [i + 100 for i in possible if counts[i] >= least]
            assert sorted(frame["item"].to_list()) == listed
            ranked = predictor.ranked(0, n=ITEMS, exclude_seen=seen, min_ratings=least)
            assert ranked.n_hidden_items == len(possible) - len(listed)
            assert ranked.min_ratings == least
            assert set(frame["n_hidden_items"].to_list()) <= {ranked.n_hidden_items}
            assert np.array_equal(ranked.n_item_ratings, counts[ranked.items])


def test_without_a_number_the_models_own_counts() -> None:
    predictor = Predictor(make("user"))
    usual = predictor.default_min_ratings
    assert usual >= 1
    assert_close(predictor.recommend(0), predictor.recommend(0, min_ratings=usual))
    assert predictor.ranked(0).min_ratings == usual


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"rank_by": "best"},
            r"rank_by \(='best'\) must be one of interaction, prediction, threshold",
        ),
        ({"rank_by": ["prediction"]}, "must be one of"),
        (
            {"threshold": 4},
            r"threshold \(=4.0\) needs rank_by=\"threshold\" or rank_by=\"interaction",
        ),
        (
            {"rank_by": "threshold", "personalization": 2},
            r"personalization \(=2.0\) needs rank_by=",
        ),
        ({"rank_by": "threshold", "threshold": 0.5}, r"threshold \(=0.5\) must be above 0.5"),
        ({"rank_by": "threshold", "threshold": 5.5}, "at most 5, the highest"),
        ({"rank_by": "threshold", "threshold": float("nan")}, "must be a number"),
        ({"rank_by": "threshold", "threshold": "4"}, r"threshold \(='4'\) must be a number"),
        ({"personalization": 11}, r"personalization \(=11\) must be a number in 0..10"),
        ({"min_ratings": -1}, r"min_ratings \(=-1\) must be a whole number of at least 0"),
        ({"min_ratings": 1.5}, r"min_ratings \(=1.5\) must be a whole number"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(how: dict[str, Any], message: str) -> None:
    predictor = Predictor(make("user"))
    with pytest.raises(PredictionError, match=message):
        predictor.recommend(0, **how)
    with pytest.raises(PredictionError, match=message):
        predictor.ranked(0, **how)


def test_distributions_of_a_list_are_calibrated() -> None:
    predictor = Predictor(make("user"))
    ranked = predictor.ranked(0, n=4, rank_by="threshold")
    raw = predictor.items.table[ranked.items]
    np.testing.assert_allclose(ranked.probabilities, predictor.predict_proba(0, raw), atol=2e-6)
    np.testing.assert_allclose(ranked.predictions, predictor.predict(0, raw), atol=1e-5)
    assert softmax(np.zeros((1, 4))).tolist() == [[0.25] * 4]
