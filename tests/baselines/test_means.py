"""Shrunken means against sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade_baselines.factor_model import Means


@pytest.fixture
def ratings() -> Dataset:
    """Three users, three items, the last of each without ratings."""
    return Ratings(
        users=np.array([0, 0, 1], np.int32),
        items=np.array([0, 1, 0], np.int32),
        levels=np.array([4, 1, 2], np.uint8),  # 5, 2 and 3 stars
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(3),
        item_ids=np.arange(3),
    )


def fitted(ratings: Dataset, **options: Any) -> Means:
    return Means(**options).fit(ratings, ratings.select(np.arange(0)))


ALL = np.array([0, 1, 2, -1])


def test_both_offsets_are_shrunken_sums(ratings: Dataset) -> None:
    mean = 10 / 3
    items = np.array([(5 - mean + 3 - mean) / (2 + 1), (2 - mean) / (1 + 1), 0.0, 0.0])
    users = np.array(
        [(5 - mean - items[0] + 2 - mean - items[1]) / (2 + 3), (3 - mean - items[0]) / 4, 0.0, 0.0]
    )
    means = fitted(ratings, item_shrinkage=1, user_shrinkage=3)
    for item, offset in zip(ALL, items, strict=True):
        np.testing.assert_allclose(means.predict(ALL, np.full(4, item)), mean + users + offset)


def test_each_kind_of_mean_is_that_mean(ratings: Dataset) -> None:
    none: dict[str, Any] = {"item_shrinkage": 0, "user_shrinkage": 0}
    everywhere = np.repeat(ALL, 4), np.tile(ALL, 4)
    np.testing.assert_allclose(fitted(ratings, kind="global", **none).predict(*everywhere), 10 / 3)
    of_users = fitted(ratings, kind="user", **none).predict(ALL, np.zeros(4, int))
    np.testing.assert_allclose(of_users, [3.5, 3.0, 10 / 3, 10 / 3])
    of_items = fitted(ratings, kind="item", **none).predict(np.zeros(4, int), ALL)
    np.testing.assert_allclose(of_items, [4.0, 2.0, 10 / 3, 10 / 3])


def test_predictions_stay_on_the_scale(ratings: Dataset) -> None:
    high = fitted(ratings.select(np.array([0, 0, 0, 1])), item_shrinkage=0, user_shrinkage=0)
    assert high.predict(np.array([0]), np.array([0])) <= 5.0
