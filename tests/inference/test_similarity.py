"""More like this: how many times likelier an item is after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.implicit.cases import summed_scores
from tests.inference.cases import estimator, make
from tests.inference.implicit_cases import ITEMS, data, first_of, picked_model, rated_model

from cfnade import CFNADE, synthetic
from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic_interactions
from cfnade.exceptions import PredictionError
from cfnade.implicit.rows import InteractionRows
from cfnade.inference.similarity import item_vectors


def chances(fitted: Any, known: list[int]) -> Any:
    """For somebody known by these items. Returns (M,)."""
    columns, weights = np.array(known, np.int32), np.ones(len(known), np.float32)
    one = InteractionRows(np.array([0, len(known)]), columns, weights, ITEMS)
    total = summed_scores(fitted.interaction_model, one)[0]
    odds = np.exp(total - total.max())
    odds[known] = 0.0
    return odds / odds.sum()


@pytest.mark.parametrize("fitted", [rated_model(), picked_model(weighed=True)])
def test_similar_items_are_picked_more_by_who_picked_one(fitted: Any) -> None:
    model = estimator(fitted)
    for item in (0, 17):
        frame = model.similar_items(item + 1, n=8)
        given, alone = chances(fitted, [item]), chances(fitted, [])
        best = first_of(given / np.sqrt(alone), np.arange(ITEMS) != item, 8)
        assert (frame["item"] - 1).to_list() == best
        np.testing.assert_allclose(frame["similarity"], (given / alone)[best], rtol=1e-3)
        assert frame["rank"].to_list() == list(range(1, 9))
        counts = np.bincount(fitted.context.items, minlength=ITEMS)
        assert frame["n_item_ratings"].to_list() == counts[best].tolist()


def test_without_picks_similar_items_have_alike_vectors() -> None:
    fitted = make("user", data=data())
    frame = estimator(fitted).similar_items(5, n=ITEMS + 3)
    vectors = item_vectors(fitted)
    alike = vectors @ vectors[4]
    best = first_of(alike, np.arange(ITEMS) != 4, ITEMS)
    assert len(frame) == ITEMS - 1
    np.testing.assert_allclose(frame["similarity"], alike[best], atol=1e-6)


@pytest.mark.parametrize("kind", ["interactions", "ratings"])
def test_items_without_training_data_are_not_similar_to_any(kind: str) -> None:
    """Their lift is a ratio of two tiny probabilities, and their vectors are start values."""
    all_rows: Dataset
    if kind == "interactions":
        all_rows = synthetic_interactions(80, 20, 6, seed=4).interactions
        options: dict[str, Any] = {"time_budget": 0.01}
    else:
        all_rows = synthetic(80, 20, 600, seed=4).ratings
        options = {"side": "user", "hidden": (4,), "epochs": 1}
    train = all_rows.select(np.flatnonzero(all_rows.items != 3))
    model = CFNADE(n_threads=1, **options).fit(train)
    assert model.n_items_ == 20
    similar = model.similar_items(all_rows.item_ids[0], n=30)
    assert len(similar) == 18
    assert all_rows.item_ids[3] not in similar["item"].to_list()
    assert (similar["n_item_ratings"] > 0).all()


def test_what_is_not_there_is_refused() -> None:
    model = estimator(picked_model())
    with pytest.raises(PredictionError, match="999"):
        model.similar_items(999)
    with pytest.raises(PredictionError, match=r"n \(=0\)"):
        model.similar_items(1, n=0)
