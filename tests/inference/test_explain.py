"""An explanation is the prediction again without a rating, by the plain torch model."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.inference.cases import (
    FOR_PEOPLE,
    NEW_ITEM,
    UNTRAINED_ITEM,
    UNTRAINED_USER,
    estimator,
    history_of,
    known_cells,
    literal,
    make,
    make_kind,
)
from tests.inference.implicit_cases import ITEMS, chances_of, picked_model, rated_model

from cfnade.exceptions import PredictionError
from cfnade.inference import explain as explain_module
from cfnade.inference import fold_in
from cfnade.utils.cancellation import ComputationCancelledError, cancelled_by


@pytest.mark.parametrize("kind", FOR_PEOPLE)
@pytest.mark.parametrize(
    ("user", "item"), [(3, 2), (3, UNTRAINED_ITEM), (UNTRAINED_USER, 5), (-1, 2)]
)
@pytest.mark.parametrize("few", [0, 16])
def test_explaining_is_leaving_out_each_rating(
    kind: str, user: int, item: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of known people and of somebody new (-1), who rated what user 1 did."""
    monkeypatch.setattr(fold_in, "FEW_RATINGS", few)
    fitted = make_kind(kind)
    data, values, cells = fitted.context, fitted.context.scale.array(), known_cells(fitted.context)
    rated = history_of(data, 1 if user < 0 else user)
    if user < 0:
        cells |= {(-1, i): level for (u, i), level in cells.items() if u == 1}
    base = literal(fitted, user, item, cells) @ values
    others = [i for u, i in cells if u == user and i != item]
    without = {}
    for other in others:
        fewer = {cell: level for cell, level in cells.items() if cell != (user, other)}
        without[other + 100] = float(literal(fitted, user, item, fewer) @ values)
    who: dict[str, Any] = {"history": rated} if user < 0 else {"user": user * 10}
    frame = estimator(fitted).explain(item=item + 100, **who)
    assert frame.height == len(others) > 3
    for row in frame.iter_rows(named=True):
        assert row["prediction"] == pytest.approx(base, abs=1e-5)
        assert row["prediction_without"] == pytest.approx(without[row["item"]], abs=1e-5)
        assert row["difference"] == pytest.approx(base - without[row["item"]], abs=2e-5)
        assert row["rating"] == rated[row["item"]]
        assert row["title"] == f"Film {row['item'] - 100}"
    strength = frame["difference"].abs().to_list()
    assert strength == sorted(strength, reverse=True)


@pytest.mark.parametrize("kind", ["item", "item-deep-unshared", "item-seeds"])
@pytest.mark.parametrize("user", [3, UNTRAINED_USER])
def test_item_based_explanations_are_by_level_and_name_nobody(kind: str, user: int) -> None:
    fitted = make_kind(kind)
    values, cells = fitted.context.scale.array(), known_cells(fitted.context)
    item = next(i for u, i in cells if u == user)  # rated by the user: left out as well
    base = literal(fitted, user, item) @ values
    others = {u: level for (u, i), level in cells.items() if i == item and u != user}
    frame = estimator(fitted).explain(user=user * 10, item=item + 100)
    assert not {"user", "item"} & set(frame.columns)
    assert frame["count"].sum() == len(others)
    for row in frame.iter_rows(named=True):
        level = values.tolist().index(row["rating"])
        group = {(u, item) for u, given in others.items() if given == level}
        assert row["count"] == len(group)
        rest = {cell: k for cell, k in cells.items() if cell not in group}
        without = literal(fitted, user, item, rest) @ values
        assert row["prediction"] == pytest.approx(base, abs=1e-5)
        assert row["prediction_without"] == pytest.approx(without, abs=1e-5)
        assert row["difference"] == pytest.approx(base - without, abs=2e-5)


def test_ratings_move_an_item_that_training_never_saw_as_they_move_the_mean_one() -> None:
    model = estimator(make("user"))
    frame = model.explain(user=0, item=100 + NEW_ITEM)
    assert frame["difference"].to_numpy().any()
    prediction = model.predict(0, 100 + NEW_ITEM)[0]
    assert frame["prediction"][0] == pytest.approx(prediction, rel=1e-12)


def test_someone_with_one_rating_and_someone_with_none() -> None:
    model = estimator(make("user", context_scale="sqrt"))
    nothing = model.predict("x", 105, histories={"x": {}})[0]
    frame = model.explain(history={101: 5}, item=105)
    assert frame["prediction_without"].to_list() == [pytest.approx(nothing, abs=1e-6)]
    assert model.explain(history={}, item=105).height == 0
    assert model.explain(history={105: 5}, item=105).height == 0


def test_unknown_ids_are_refused() -> None:
    model = estimator(make("user"))
    with pytest.raises(PredictionError, match="item 999 is unknown"):
        model.explain(user=0, item=999)
    with pytest.raises(PredictionError, match=r"user 999 is unknown.*give history="):
        model.explain(user=999, item=101)
    with pytest.raises(PredictionError, match=r"^give users, or history="):
        model.explain(item=101)


@pytest.mark.parametrize("target", ["rating", "interaction"])
@pytest.mark.parametrize("who", [{"user": 4}, {"history": {1: 5, 2: 3, 9: 1}}])
def test_an_explanation_can_be_cancelled_between_pieces_of_work(
    target: Any, who: dict[str, Any]
) -> None:
    model, event = estimator(rated_model("both")), threading.Event()
    with cancelled_by(event):
        whole = model.explain(item=30, target=target, **who)
    assert whole.equals(model.explain(item=30, target=target, **who))
    event.set()
    with pytest.raises(ComputationCancelledError), cancelled_by(event):
        model.explain(item=30, target=target, **who)


def weighted_model() -> Any:
    return picked_model(weighed=True)


@pytest.mark.parametrize("at_once", [256, 3, 1])
@pytest.mark.parametrize("which", ["rated", "picked", "weighed"])
def test_explaining_an_interaction_is_leaving_out_each_other_one(
    which: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_module, "_MAX_SCORES", at_once * ITEMS)
    fitted = {"rated": rated_model, "picked": picked_model}.get(which, weighted_model)()
    model, user, ratings = estimator(fitted), 4, fitted.context
    own = ratings.items[ratings.users == user]
    unseen = np.setdiff1d(np.arange(ITEMS), own)
    for item in (int(own[0]), int(unseen[0])):
        frame = model.explain(user=user + 1, item=item + 1, target="interaction")
        known = ratings.select((ratings.users != user) | (ratings.items != item))
        whole = chances_of(replace(fitted, context=known), user, left_out=True)[item]
        if ratings.weights is not None:  # the mean of all weights stays that of the data
            known = ratings
        assert sorted(frame["item"].to_list()) == sorted(1 + i for i in own.tolist() if i != item)
        if which != "weighed":
            np.testing.assert_allclose(frame["interaction_probability"], whole, rtol=1e-4)
            for other, without in frame.select("item", "prediction_without").iter_rows():
                rest = known.select((known.users != user) | (known.items != other - 1))
                again = chances_of(replace(fitted, context=rest), user, left_out=True)[item]
                assert without == pytest.approx(again, rel=1e-4)
        elif item not in own:
            chance = model.recommend([user + 1], n=ITEMS)
            listed = chance.filter(chance["item"] == item + 1)["interaction_probability"][0]
            np.testing.assert_allclose(frame["interaction_probability"], listed, rtol=1e-4)
        np.testing.assert_allclose(
            frame["lift"], frame["interaction_probability"] / frame["prediction_without"], rtol=1e-6
        )
        assert frame["lift"].is_sorted(descending=True)
        assert ("rating" in frame.columns) == (which == "rated")
