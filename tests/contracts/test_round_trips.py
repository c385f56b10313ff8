"""A copy of a fitted model, pickled, deep-copied or saved, answers as the model does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.close import assert_close

from cfnade import CFNADE, Dataset, synthetic

SMALL: dict[str, Any] = {"hidden": (6,), "epochs": 2, "batch_rows": 8, "n_threads": 1}
KINDS: dict[str, dict[str, Any]] = {
    "user": {"side": "user"},
    "both": {"side": "both"},
    "interactions": {"side": "item", "learn_interactions": True},
}


def save_and_load(model: CFNADE, folder: Path) -> CFNADE:
    model.save(folder / "model")
    return CFNADE.load(folder / "model")


COPIES: dict[str, Callable[[CFNADE, Path], CFNADE]] = {
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "folder": save_and_load,
}


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(30, 20, 300, seed=3).ratings


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, ratings: Dataset) -> CFNADE:
    return CFNADE(**KINDS[request.param], **SMALL).fit(ratings)


@pytest.mark.parametrize("way", COPIES)
def test_copies_answer_as_the_model(
    model: CFNADE, ratings: Dataset, way: str, tmp_path: Path
) -> None:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    probabilities = model.predict_proba(users, items)  # fills caches, which copies must not need
    top_items = model.recommend([1, 2], min_ratings=0)
    other = COPIES[way](model, tmp_path)
    assert other.get_params() == model.get_params()
    assert other.history_ == model.history_
    assert_close(other.predict_proba(users, items), probabilities)
    assert_close(other.recommend([1, 2], min_ratings=0), top_items)


def test_copies_of_unfitted_models_are_unfitted() -> None:
    other = pickle.loads(pickle.dumps(CFNADE(side="item", epochs=7)))
    assert (other.side, other.epochs) == ("item", 7)
    assert not hasattr(other, "fitted_")
