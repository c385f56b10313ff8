"""An explanation is the prediction again without a rating, by the plain torch model."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.inference.cases import (
    FOR_PEOPLE,
    NEW_ITEM,
    UNTRAINED_ITEM,
    UNTRAINED_USER,
    history_of,
    known_cells,
    literal,
    make,
    make_kind,
)
from tests.inference.implicit_cases import rated_model

from cfnade.exceptions import PredictionError
from cfnade.inference import fold_in
from cfnade.inference.predictor import Predictor
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
    monkeypatch.setattr(fold_in, "FEW", few)
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
    frame = Predictor(fitted).explain(item=item + 100, **who)
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
    frame = Predictor(fitted).explain(user=user * 10, item=item + 100)
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
    predictor = Predictor(make("user"))
    frame = predictor.explain(user=0, item=100 + NEW_ITEM)
    assert frame["difference"].to_numpy().any()
    prediction = predictor.predict(0, 100 + NEW_ITEM)[0]
    assert frame["prediction"][0] == pytest.approx(prediction, rel=1e-12)


def test_someone_with_one_rating_and_someone_with_none() -> None:
    predictor = Predictor(make("user", context_scale="sqrt"))
    nothing = predictor.predict("x", 105, histories={"x": {}})[0]
    frame = predictor.explain(history={101: 5}, item=105)
    assert frame["prediction_without"].to_list() == [pytest.approx(nothing, abs=1e-6)]
    assert predictor.explain(history={}, item=105).height == 0
    assert predictor.explain(history={105: 5}, item=105).height == 0


def test_unknown_ids_are_refused() -> None:
    predictor = Predictor(make("user"))
    with pytest.raises(PredictionError, match="item 999 is unknown"):
        predictor.explain(user=0, item=999)
    with pytest.raises(PredictionError, match=r"user 999 is unknown.*give history="):
        predictor.explain(user=999, item=101)
    with pytest.raises(PredictionError, match=r"^give users, or history="):
        predictor.explain(item=101)


@pytest.mark.parametrize("target", ["rating", "interaction"])
@pytest.mark.parametrize("who", [{"user": 4}, {"history": {1: 5, 2: 3, 9: 1}}])
def test_an_explanation_can_be_cancelled_between_pieces_of_work(
    target: Any, who: dict[str, Any]
) -> None:
    predictor, event = Predictor(rated_model("both")), threading.Event()
    with cancelled_by(event):
        whole = predictor.explain(item=30, target=target, **who)
    assert whole.equals(predictor.explain(item=30, target=target, **who))
    event.set()
    with pytest.raises(ComputationCancelledError), cancelled_by(event):
        predictor.explain(item=30, target=target, **who)
