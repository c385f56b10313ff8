"""One function reads the histories of Python, the command line and the service."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.inference.cases import make

from cfnade.exceptions import PredictionError
from cfnade.inference.histories import HistoryError, parse_history
from cfnade.inference.predictor import Predictor

MODEL = Predictor(make("user"))


def parse(history: Any, **options: Any) -> Any:
    return parse_history(history, MODEL.catalog, MODEL.scale, **options)


@pytest.mark.parametrize(
    ("history", "index", "field", "message"),
    [
        ([(101, 4), (102, 3.25)], 1, "rating", "rating 3.25 of item 102 is off the model's scale"),
        ([(101, 4), (102, "5")], 1, "rating", "is not a finite number"),
        ([(101, float("nan"))], 0, "rating", "is not a finite number"),
        *(
            ([(101, rating)], 0, "rating", "is not a finite number")
            for rating in (float("inf"), 10**400, "5", True, None)
        ),
        ([(777, 4), (777, 3)], 1, "item", "item 777 is rated more than once"),
        ([(101, 4), (102, 3), (101, 4)], 2, "item", "item 101 is rated more than once"),
        ([(101, 4), ("no film at all", 3)], 1, "item", "neither an item id nor part of a title"),
        ([(101, 4), (1.5, 3)], 1, "item", "item id 1.5 is a float"),
    ],
)
def test_an_error_has_the_position_and_the_part_of_its_entry(
    history: Any, index: int, field: str, message: str
) -> None:
    for given in (history, dict(history)) if len(dict(history)) == len(history) else (history,):
        with pytest.raises(HistoryError, match=message) as caught:
            parse(given)
        assert (caught.value.index, caught.value.field) == (index, field)


@pytest.mark.parametrize("history", [5, "film 3", {101}, [(101, 4, 3)]])
def test_another_form_is_refused_as_a_whole(history: Any) -> None:
    with pytest.raises(PredictionError, match="a history is a mapping from item ids") as caught:
        parse(history)
    assert not isinstance(caught.value, HistoryError)


def test_unknown_items_are_left_out_with_their_positions(caplog: pytest.LogCaptureFixture) -> None:
    parsed = parse({101: 4, 999: 3, 103: 5, 998: 1})
    assert parsed.unknown == (1, 3)
    assert MODEL.items.table[parsed.items].tolist() == [101, 103]
    assert MODEL.scale.array()[parsed.levels].tolist() == [4, 5]
    assert "2 of 4 items in a history are unknown" in caplog.text
    assert parse(parsed) is parsed


def test_another_rule_may_find_the_items(caplog: pytest.LogCaptureFixture) -> None:
    parsed = parse([("x", 4), ("y", 3)], find_items=lambda _: np.array([7, -1]))
    assert (parsed.items.tolist(), parsed.unknown) == ([7], (1,))
    assert not caplog.text
