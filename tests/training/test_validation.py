"""What part of a large validation set is looked at after an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.components import Axis
from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade.training import validation


def made_up(users: int = 400, items: int = 300, ratings: int = 20_000) -> Dataset:
    return synthetic(users, items, ratings, seed=0).ratings


def test_a_small_one_is_looked_at_whole() -> None:
    ratings = made_up()
    assert validation.scored_ratings(ratings, ("user",)) is ratings


@pytest.mark.parametrize("axes", [("user",), ("item",), ("user", "item")])
def test_of_a_large_one_whole_rows(axes: tuple[Axis, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = made_up()
    monkeypatch.setattr(validation, "MAX_RATINGS", 5_000)
    some = validation.scored_ratings(ratings, axes)
    assert 3_000 < len(some) < 7_500
    assert np.array_equal(some.users, validation.scored_ratings(ratings, axes).users)
    users, items = np.isin(ratings.users, some.users), np.isin(ratings.items, some.items)
    expected = users if axes == ("user",) else items if axes == ("item",) else users & items
    assert len(some) == expected.sum()  # every rating of the kept rows, none of another
