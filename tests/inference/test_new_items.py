"""Items that the model has never met, by what known users said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.inference.cases import (
    FOR_PEOPLE,
    TIMELESS,
    USERS,
    estimator,
    history_of,
    known_cells,
    literal,
    make,
    make_kind,
)
from tests.support.close import assert_close

from cfnade.exceptions import PredictionError

GIVEN = {20: 4.5, 40: 1.0, 60: 3.0}  # user 4, id 40, was not trained on
LEVELS = {(2, -1): 8, (4, -1): 1, (6, -1): 5}


@pytest.mark.parametrize("kind", TIMELESS)
def test_a_new_item_is_read_without_the_user_who_is_asked(kind: str) -> None:
    fitted = make_kind(kind)
    model, cells = estimator(fitted), known_cells(fitted.context) | LEVELS
    users = fitted.context.user_ids
    said = model.predict(users, "new", new_items={"new": GIVEN})
    values = fitted.context.scale.array()
    expected = [literal(fitted, user, -1, cells) @ values for user in range(USERS)]
    np.testing.assert_allclose(said, expected, atol=2e-4)
    pairs = model.predict(users, "new", new_items={"new": list(GIVEN.items())})
    assert_close(pairs, said)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_new_people_and_new_items_go_together(kind: str) -> None:
    fitted = make_kind(kind)
    model, data = estimator(fitted), fitted.context
    history = history_of(data, 3)
    new = {("me", i): r for i, r in history.items()}
    users, items = ["me", 10, "me", 20, 777], [101, "new", "new", 102, "new"]
    given: dict[str, Any] = {"histories": {"me": history}, "new_items": {"new": GIVEN}}
    given["unknown"] = "mean"
    frame = model.predict_frame(users, items, **given)
    assert frame["item"].to_list() == ["101", "new", "new", "102", "new"]
    assert frame["title"].to_list()[1] is None
    assert frame["n_item_ratings"].to_list()[1:3] == [3, 3]
    assert frame["n_user_ratings"].to_list()[2] == len(new)
    for place, (user, item) in enumerate(zip(users, items, strict=True)):
        alone = model.predict(user, item, **given)
        np.testing.assert_allclose(frame["prediction"][place], alone[0], atol=1e-6)
    cells = known_cells(data) | LEVELS
    stars = data.scale.array()
    places = {raw: place for place, raw in enumerate(data.item_ids.tolist())}
    levels, _ = data.scale.levels_of(np.array(list(history.values())))
    cells |= {(-1, places[i]): int(k) for i, k in zip(history, levels, strict=True)}
    np.testing.assert_allclose(
        frame["prediction"][2], literal(fitted, -1, -1, cells) @ stars, atol=2e-4
    )
    # Without the new item nothing else changes.
    rest = model.predict(users[3], items[3])
    np.testing.assert_allclose(frame["prediction"][3], rest[0], atol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({101: GIVEN}, "101 is an item that the model knows"),
        ({"Film 3": GIVEN}, "'Film 3' is an item that the model knows"),
        ({"new": {}}, "there are no ratings of 'new'; give at least one"),
        ({"new": {10: 4, 777: 2}}, "user 777, who rated 'new', is unknown to the model"),
        ({"new": {10: 4.2}}, r"rating 4\.2 of new item 'new' by user 10 is off the model's scale"),
        ({"new": {10: "good"}}, "rating 'good' of new item 'new' by user 10 is not a finite"),
        ({"new": [(10, 4), (10, 5)]}, "user 10 rated 'new' more than once"),
        ({"new": 4.0}, "the ratings of new item 'new' are a mapping from user ids"),
        ([("new", GIVEN)], "new_items is a mapping from new items"),
        ({"new": {"u1": 4}}, "user id 'u1' is a str; the user ids of this model are integers"),
    ],
)
def test_new_items_that_cannot_be_read_are_refused(given: Any, message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        estimator(make("both")).predict(10, "new", new_items=given)


def test_models_that_take_no_new_items_say_so() -> None:
    with pytest.raises(PredictionError, match="depend on time, and new items have none"):
        estimator(make("both", time=True)).predict(
            10, "new", new_items={"new": GIVEN}, timestamp=50
        )
    fitted = make("user")
    empty = replace(fitted, context=fitted.context.select(np.arange(0)), has_context=False)
    with pytest.raises(PredictionError, match="saved without the ratings"):
        estimator(empty).predict(10, "new", new_items={"new": GIVEN})
