"""Models go to other processes as they are. Checkpoints are something else: nothing there is
pickled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from tests.support.close import assert_close

from cfnade import CFNADE, Dataset, synthetic

SMALL: dict[str, Any] = {"hidden": (6,), "epochs": 2, "batch_rows": 8, "n_threads": 1}


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(30, 20, 300, seed=3).ratings


@pytest.mark.parametrize(
    "arguments",
    [
        {"side": "user", **SMALL},
        {"side": "both", **SMALL},
        {"side": "item", "learn_interactions": True, **SMALL},
    ],
    ids=["user", "both", "lists"],
)
def test_a_copy_answers_the_same(ratings: Dataset, arguments: dict[str, Any]) -> None:
    model = CFNADE(**arguments).fit(ratings)
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    expected = model.predict_proba(users, items)  # what it keeps from this must not matter
    listed = model.recommend([1, 2], min_ratings=0)
    for way in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert way.get_params() == model.get_params()
        assert way.history_ == model.history_
        assert_close(way.predict_proba(users, items), expected)
        assert_close(way.recommend([1, 2], min_ratings=0), listed)


def test_one_that_was_not_fitted_stays_so() -> None:
    made = pickle.loads(pickle.dumps(CFNADE(side="item", epochs=7)))
    assert (made.side, made.epochs) == ("item", 7)
    assert not hasattr(made, "fitted_")
