"""Top-n lists: against all items scored one by one, and for many users as for each alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.inference.cases import (
    FOR_PEOPLE,
    ITEMS,
    TIMELESS,
    FloatArray,
    estimator,
    history_of,
    make,
    make_kind,
    top_n_of,
)
from tests.listed import best_of
from tests.support.close import assert_close

from cfnade.calibration.calibration import Calibration
from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference import top_n
from cfnade.inference.ranking_options import (
    MAX_HIDDEN,
    MAX_MIN_RATINGS,
    Objective,
    RankingOptions,
    default_min_ratings,
)
from cfnade.kernels.threads import torch_threads

TEN = Scale(tuple(float(value) for value in range(1, 11)))
OPTIONS: list[dict[str, Any]] = [
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


def score(
    probabilities: FloatArray, average: float, values: FloatArray, options: dict[str, Any]
) -> float:
    """What a calibrated distribution is ranked by, from the definition."""
    if options["rank_by"] == "prediction":
        weight = options.get("personalization", 1.0)
        return float(average + weight * (probabilities @ values - average))
    threshold = options.get("threshold", 4.0)
    return float(sum(p for p, v in zip(probabilities, values, strict=True) if v >= threshold))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["user", "item", "both-seeds-sqrt"])
def test_a_list_has_the_best_of_all_items(kind: str, options: dict[str, Any]) -> None:
    model = estimator(make_kind(kind))
    data, values = model.fitted_.context, model.scale_.array()
    averages = model.predictor_.baseline @ values
    frame = model.recommend([0, 30], n=5, min_ratings=0, **options)
    for user in (0, 30):
        rows = frame.filter(pl.col("user") == user)
        seen = history_of(data, user // 10)
        items = [raw for raw in data.item_ids.tolist() if raw not in seen]
        distributions = model.predict_proba(user, items)
        scores = {
            raw: score(p, averages[raw - 100], values, options)
            for raw, p in zip(items, distributions, strict=True)
        }
        expected = sorted(scores, key=lambda raw: (-round(scores[raw], 5), raw))[:5]
        assert rows["item"].to_list() == expected
        np.testing.assert_allclose(rows["score"], [scores[raw] for raw in expected], atol=1e-5)
        np.testing.assert_allclose(
            rows.select("^p_.*$").to_numpy(), model.predict_proba(user, expected), atol=2e-6
        )
        arrays = top_n_of(model, user, n=5, min_ratings=0, **options)
        assert_close(arrays.scores, rows["score"].to_numpy())
        assert data.item_ids[arrays.items].tolist() == expected


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("calibration", [None, Calibration(1.6, (0.2, -0.1) * 5)])
@pytest.mark.parametrize("spread", [3.0, 3e-7])
def test_candidates_give_the_list_of_all_items(
    objective: Objective, calibration: Calibration | None, spread: float
) -> None:
    """Also where items differ by less than the bounds do."""
    rng = np.random.default_rng(4)
    if objective.personalization != 1:
        objective = replace(objective, averages=rng.uniform(1, 10, 2000))
    scores = (rng.normal(size=10) + rng.normal(size=(2000, 10)) * spread).astype(np.float32)
    allowed = rng.random(2000) < 0.7
    everything = best_of(scores, allowed, 2000, objective, calibration)  # all exactly
    assert set(everything.items) == set(np.flatnonzero(allowed))
    for n in (1, 10, 300):
        best = best_of(scores, allowed, n, objective, calibration)
        assert np.array_equal(best.items, everything.items[:n])
        np.testing.assert_allclose(best.scores, everything.scores[:n], rtol=1e-9)
        np.testing.assert_allclose(best.probabilities, everything.probabilities[:n], rtol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equal_distributions_are_listed_by_id(objective: Objective) -> None:
    rng = np.random.default_rng(6)
    calibration = Calibration(1.6, tuple((rng.normal(size=10) * 0.3).tolist()))
    for count in (3, 7, 9, 13, 37):
        scores = np.tile(rng.normal(size=10).astype(np.float32), (count, 1))
        if objective.personalization != 1:
            objective = replace(objective, averages=np.full(count, 6.5))
        for n in (2, count):
            best = best_of(scores, np.ones(count, bool), n, objective, calibration)
            assert best.items.tolist() == list(range(n))


# -- many users ------------------------------------------------------------------------------------


def assert_same(many: pl.DataFrame, alone: list[pl.DataFrame]) -> None:
    """Up to rounding, which may only swap items with nearly equal scores."""
    one_by_one = pl.concat(alone)
    assert many.columns == one_by_one.columns
    for name in many.columns:
        if name in ("item", "title", "n_item_ratings"):
            continue
        if many[name].dtype == pl.Float64:
            np.testing.assert_allclose(many[name], one_by_one[name], atol=2e-5, err_msg=name)
        else:
            assert many[name].equals(one_by_one[name]), name
    differ = many["item"] != one_by_one["item"]
    assert differ.sum() <= 0.02 * len(many)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exclude_seen": False},
        {"min_ratings": 3},
        {"rank_by": "threshold"},
        {"rank_by": "prediction", "personalization": 3.0, "exclude_seen": False},
    ],
)
@pytest.mark.parametrize("kind", TIMELESS)
def test_many_users_get_the_lists_of_each(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known users, one without training, an unknown one: in few batches, many, one by one."""
    fitted = replace(make_kind(kind), calibration=Calibration(1.3, (), 0.7))
    shares = ((0.7, 0.2), (0.2, 0.3), (0.1, 0.5)) if len(fitted.members) == 3 else ()
    model = estimator(replace(fitted, member_weights=shares))
    users = [*fitted.context.user_ids.tolist(), 999_999, 0]
    alone = [model.recommend([user], n=4, **options) for user in users]
    for size, threads in ((1 << 21, 2), (1 << 9, 3), (1, 1)):
        monkeypatch.setattr(top_n, "MAX_SCORES", size)
        with torch_threads(threads):
            many = model.recommend(users, n=4, **options)
        assert_same(many, alone)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_many_histories_get_the_lists_of_each(kind: str) -> None:
    model = estimator(make_kind(kind))
    data = model.fitted_.context
    histories = {f"p{n}": history_of(data, n) for n in range(data.n_users)} | {"empty": {}}
    many = model.recommend(histories=histories, n=5)
    alone = [model.recommend(histories={name: h}, n=5) for name, h in histories.items()]
    assert_same(many, alone)


def with_equal_items(fitted: FittedModel) -> FittedModel:
    """Every third item has the weights of the first."""
    with torch.no_grad():
        for member in fitted.members:
            network: Any = member.components["user"].network
            network.V[::3], network.b[::3] = network.V[:1].clone(), network.b[:1].clone()
    counts = np.ones_like(fitted.training_counts["item"])
    return replace(fitted, training_counts={"item": counts})


@pytest.mark.parametrize("hidden", [6, 20, 100])
@pytest.mark.parametrize("options", [{}, {"rank_by": "threshold"}])
def test_equal_items_are_listed_by_id_for_many_users(hidden: int, options: dict[str, Any]) -> None:
    model = estimator(with_equal_items(make("user", hidden=(hidden,))))
    users = model.predictor_.users.table.tolist()[:-1]  # the last one has no ratings
    frame = model.recommend(users, n=ITEMS, min_ratings=0, **options)
    for _, rows in frame.filter((pl.col("item") - 100) % 3 == 0).group_by("user"):
        assert rows["item"].is_sorted()
        assert rows["score"].n_unique() == 1


def test_lists_may_be_empty_or_hold_all_items() -> None:
    model = estimator(make("user"))
    assert model.recommend([]).height == 0
    assert model.recommend([]).columns == model.recommend([0]).columns
    empty = model.recommend(history=dict.fromkeys(range(100, 100 + ITEMS), 4.0))
    assert empty.height == 0
    assert empty["item"].dtype == pl.Int64
    all_items = model.recommend(0, n=10**9, exclude_seen=False, min_ratings=0)
    assert sorted(all_items["item"]) == list(range(100, 100 + ITEMS))


# -- min_ratings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_rarely_rated_items_are_hidden_and_counted(side: str) -> None:
    model = estimator(make(side))
    data = model.fitted_.context
    counts = np.bincount(data.items, minlength=ITEMS)
    for least in (0, 1, 5, 7, 1000):
        for exclude_seen in (True, False):
            options = {"n": ITEMS, "exclude_seen": exclude_seen, "min_ratings": least}
            top = top_n_of(model, 0, **options)
            seen = set(history_of(data, 0)) if exclude_seen else set()
            possible = [i for i in range(ITEMS) if i + 100 not in seen]
            assert sorted(top.items) == [i for i in possible if counts[i] >= least]
            assert top.n_hidden_items.tolist() == [len(possible) - len(top.items)]
            assert top.min_ratings == least
            assert np.array_equal(top.n_item_ratings, counts[top.items])
            frame = model.recommend(0, **options)  # type: ignore[arg-type]
            assert set(frame["n_hidden_items"].to_list()) <= set(top.n_hidden_items.tolist())


def test_the_default_of_min_ratings_depends_on_the_data() -> None:
    model = estimator(make("user"))
    default = model.predictor_.default_min_ratings
    assert default >= 1
    assert_close(model.recommend(0), model.recommend(0, min_ratings=default))
    assert top_n_of(model, 0).min_ratings == default


@given(st.lists(st.integers(0, 60), min_size=1, max_size=80))
def test_the_default_hides_few_ratings(counts: list[int]) -> None:
    array = np.array(counts)
    least = default_min_ratings(array)
    assert 1 <= least <= MAX_MIN_RATINGS
    assert array[array < least].sum() <= MAX_HIDDEN * array.sum() or least == 1
    if least < MAX_MIN_RATINGS:  # one more would hide too many
        assert array[array < least + 1].sum() > MAX_HIDDEN * array.sum()


@pytest.mark.parametrize(
    ("counts", "least"),
    [
        ([0, 0, 0], MAX_MIN_RATINGS),
        ([1, 1, 1, 1], 1),
        ([5, 400, 1000, 0], MAX_MIN_RATINGS),
        ([2, 3, 7, 8], 7),  # 5 of 20 ratings, not 12
    ],
)
def test_examples_of_the_default(counts: list[int], least: int) -> None:
    assert default_min_ratings(np.array(counts)) == least


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"rank_by": "best"}, "rank_by"),
        ({"rank_by": ["prediction"]}, "rank_by"),
        ({"threshold": 4}, "threshold"),
        ({"rank_by": "threshold", "personalization": 2}, "personalization"),
        ({"rank_by": "threshold", "threshold": 0.5}, "threshold"),
        ({"rank_by": "threshold", "threshold": 5.5}, "threshold"),
        ({"rank_by": "threshold", "threshold": float("nan")}, "threshold"),
        ({"rank_by": "threshold", "threshold": "4"}, "threshold"),
        ({"personalization": 11}, "personalization"),
        ({"min_ratings": -1}, "min_ratings"),
        ({"min_ratings": 1.5}, "min_ratings"),
        *(({"n": n}, "n") for n in (0, -1, 1.5, True, "3", None)),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(PredictionError) as caught:
        estimator(make("user")).recommend(0, **options)
    assert caught.value.field == field
    assert caught.value.value == options[field] or options[field] != options[field]


def test_options_by_name_are_refused_with_what_was_meant() -> None:
    with pytest.raises(PredictionError, match=r"unknown ranking option 'balanc'.*'balance'"):
        RankingOptions.from_dict({"balanc": 0.5})
