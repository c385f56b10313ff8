"""Lists by expected rating, chance and quantile, against the whole catalog calculated plainly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.close import assert_close
from tests.inference.cases import ITEMS, FloatArray, history_of, make, make_kind
from tests.listed import best_of

from cfnade.calibration.calibration import Calibration
from cfnade.data.scale import Scale, bin_scale
from cfnade.exceptions import PredictionError
from cfnade.inference.objectives import level_edges, quantiles, resolve_objective
from cfnade.inference.predictor import Predictor
from cfnade.inference.scorer import softmax

STARS = Scale((1.0, 2.0, 3.0, 4.0, 5.0))
CRITERIA: list[dict[str, Any]] = [
    {"rank": "expected"},
    {"rank": "at_least", "threshold": 4},
    {"rank": "at_least", "threshold": 1.25},
    {"rank": "at_least"},
    {"rank": "quantile", "quantile": 0.1},
    {"rank": "quantile", "quantile": 0.9},
    {"rank": "quantile"},
]


def score(chances: FloatArray, values: FloatArray, how: dict[str, Any]) -> float:
    """What one calibrated distribution is ranked by, from the definition."""
    if how["rank"] == "expected":
        return float(chances @ values)
    if how["rank"] == "at_least":
        wanted = how.get("threshold", 4.0)
        return float(sum(p for p, v in zip(chances, values, strict=True) if v >= wanted))
    step = values[1] - values[0]
    edges = np.append(values - step / 2, values[-1] + step / 2)
    reached = np.concatenate([[0.0], np.cumsum(chances)])
    return float(np.interp(how.get("quantile", 0.2), reached, edges))


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
        scores = {raw: score(p, values, how) for raw, p in zip(items, chances, strict=True)}
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


@pytest.mark.parametrize("how", CRITERIA[:1] + CRITERIA[1:2] + CRITERIA[4:6])
@pytest.mark.parametrize("calibration", [None, Calibration(1.6, (0.2, -0.1) * 5)])
@pytest.mark.parametrize("spread", [3.0, 3e-7])
def test_few_candidates_give_the_list_of_all(
    how: dict[str, Any], calibration: Calibration | None, spread: float
) -> None:
    """Also where items differ by less than what their bounds leave open."""
    rng = np.random.default_rng(4)
    scale = Scale(tuple(float(v) for v in range(1, 11)))
    scores = (rng.normal(size=10) + rng.normal(size=(2000, 10)) * spread).astype(np.float32)
    by = resolve_objective(how["rank"], how.get("threshold"), how.get("quantile"), scale)
    allowed = rng.random(2000) < 0.7
    whole = best_of(scores, allowed, 2000, by, calibration)  # everything is calculated exactly
    assert set(whole.items) == set(np.flatnonzero(allowed))
    for n in (1, 10, 300):
        found = best_of(scores, allowed, n, by, calibration)
        assert np.array_equal(found.items, whole.items[:n])
        np.testing.assert_allclose(found.scores, whole.scores[:n], rtol=1e-9)
        np.testing.assert_allclose(found.probabilities, whole.probabilities[:n], rtol=1e-8)


@pytest.mark.parametrize("how", CRITERIA)
def test_equal_scores_are_listed_by_id(how: dict[str, Any]) -> None:
    fitted = make("user")
    network: Any = fitted.members[0].components["user"].network
    with torch.no_grad():
        network.V.zero_()
        network.b.copy_(network.b[:1].expand(ITEMS, -1))
    counts = np.ones_like(fitted.trained_on["item"])
    flat = Predictor(replace(fitted, trained_on={"item": counts}))
    for n in (4, ITEMS - 1):
        frame = flat.recommend(history={99 + ITEMS: 3.0}, n=n, min_ratings=0, **how)
        assert frame["item"].to_list() == list(range(100, 100 + n))
        assert frame["score"].n_unique() == 1


@pytest.mark.parametrize("how", CRITERIA[:1] + CRITERIA[1:2] + CRITERIA[4:6])
def test_equal_distributions_get_equal_bits_however_many(how: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    scale = Scale(tuple(float(v) for v in range(1, 11)))
    by = resolve_objective(how["rank"], how.get("threshold"), how.get("quantile"), scale)
    calibration = Calibration(1.6, tuple((rng.normal(size=10) * 0.3).tolist()))
    for count in (3, 7, 9, 13, 37):
        scores = np.tile(rng.normal(size=10).astype(np.float32), (count, 1))
        for n in (2, count):
            found = best_of(scores, np.ones(count, bool), n, by, calibration)
            assert found.items.tolist() == list(range(n))


# -- quantiles -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 5), min_size=5, max_size=5).filter(any),
    st.floats(0.01, 0.98),
)
def test_a_quantile_leaves_its_share_below(weights: list[int], share: float) -> None:
    chances = np.array([weights]) / sum(weights)
    at = quantiles(chances, STARS, share)[0]
    edges = np.arange(6) + 0.5
    below = np.interp(at, edges, np.concatenate([[0], np.cumsum(chances[0])]))
    assert below == pytest.approx(share, abs=1e-9)
    assert quantiles(chances, STARS, share + 0.01)[0] >= at


def test_quantiles_of_plain_cases() -> None:
    certain, halves = [0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0.5]
    assert quantiles(np.array([certain]), STARS, 0.5) == pytest.approx([5.0])
    assert quantiles(np.array([halves]), STARS, 0.25) == pytest.approx([1.0])
    assert quantiles(np.array([halves]), STARS, 0.75) == pytest.approx([5.0])


def test_edges_of_even_uneven_and_bin_scales() -> None:
    assert level_edges(STARS).tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert level_edges(Scale((1.0, 2.0, 4.0))).tolist() == [0.5, 1.5, 3.0, 5.0]
    binned = bin_scale([0, 1, 10], 0, 10)  # values 0.5 and 5.5
    assert level_edges(binned).tolist() == [0.0, 1.0, 10.0]


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
            assert ranked.hidden == len(possible) - len(listed)
            assert ranked.min_ratings == least
            assert set(frame["hidden"].to_list()) <= {ranked.hidden}
            assert np.array_equal(ranked.known_of_items, counts[ranked.items])


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
        ({"rank": "best"}, r"rank \(='best'\) must be one of 'expected', 'at_least', 'quantile'"),
        ({"rank": ["expected"]}, "must be one of"),
        ({"threshold": 4}, r"threshold \(=4\) goes with rank='at_least' or 'picked', not with"),
        ({"rank": "at_least", "quantile": 0.2}, r"quantile \(=0.2\) goes with rank='quantile'"),
        ({"rank": "at_least", "threshold": 0.5}, r"threshold \(=0.5\) must lie above 0.5"),
        ({"rank": "at_least", "threshold": 5.5}, "at most 5, the highest"),
        ({"rank": "at_least", "threshold": float("nan")}, "must lie above"),
        ({"rank": "at_least", "threshold": "4"}, r"threshold \(='4'\) must be a number"),
        ({"rank": "quantile", "quantile": 0}, r"quantile \(=0\) must lie between 0 and 1"),
        ({"rank": "quantile", "quantile": 1.0}, "must lie between 0 and 1"),
        ({"rank": "quantile", "quantile": True}, "must be a number"),
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
    ranked = predictor.ranked(0, n=4, rank="quantile")
    raw = predictor.items.table[ranked.items]
    np.testing.assert_allclose(ranked.probabilities, predictor.predict_proba(0, raw), atol=2e-6)
    np.testing.assert_allclose(ranked.predictions, predictor.predict(0, raw), atol=1e-5)
    assert softmax(np.zeros((1, 4))).tolist() == [[0.25] * 4]
