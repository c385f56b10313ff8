"""What part of a large validation set is looked at after an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.data.ratings import Ratings
from cfnade.data.synthetic import synthetic
from cfnade.training import validation


def _given(users: int = 400, items: int = 300, ratings: int = 20_000) -> Ratings:
    return synthetic(users, items, ratings, seed=0).ratings


def test_a_small_one_is_looked_at_whole() -> None:
    given = _given()
    assert validation.looked_at(given, "user") is given


@pytest.mark.parametrize("side", ["user", "item", "both"])
def test_of_a_large_one_whole_rows(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _given()
    monkeypatch.setattr(validation, "MOST", 5_000)
    some = validation.looked_at(given, side)  # type: ignore[arg-type]
    assert 3_000 < len(some) < 7_500
    assert np.array_equal(some.users, validation.looked_at(given, side).users)  # type: ignore[arg-type]
    users, items = np.isin(given.users, some.users), np.isin(given.items, some.items)
    expected = {"user": users, "item": items, "both": users & items}[side]
    assert len(some) == expected.sum()  # every rating of the kept rows, none of another
