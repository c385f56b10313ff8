"""Models that know what people pick, with random weights, and brute force over all items."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from tests.implicit.cases import some_model, summed_scores
from tests.inference.cases import FloatArray, make

from cfnade.calibration.calibration import Calibration
from cfnade.data.dataset import Dataset, make_dataset
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit.rows import InteractionRows

USERS, ITEMS = 12, 60
GENRES = ("Drama", "Comedy|Drama", "", "(no genres listed)", "Comedy", "Film-Noir|Drama")


@cache
def data(*, implicit: bool = False, weighed: bool = False) -> Dataset:
    """User 0 knows nothing, user 11 everything; ids begin at 1."""
    rng = np.random.default_rng(5)
    known = rng.random((USERS, ITEMS)) < 0.3
    known[0], known[-1] = False, True
    users, items = (index.astype(np.int32) for index in np.nonzero(known))
    n = len(users)
    levels = np.zeros(n, np.uint8) if implicit else rng.integers(0, 5, n).astype(np.uint8)
    return make_dataset(
        users=users,
        items=items,
        levels=levels,
        scale=INTERACTIONS if implicit else Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(1, USERS + 1),
        item_ids=np.arange(1, ITEMS + 1),
        genres=np.array([GENRES[i % len(GENRES)] for i in range(ITEMS)], object),
        weights=rng.uniform(0.2, 4, n).astype(np.float32) if weighed else None,
    )


def rated_model(side: str = "user", **fields: Any) -> FittedModel:
    """Of ratings, with a choice beside."""
    ratings = data()
    fitted = make(side, data=ratings, **fields)
    model = some_model(InteractionRows.from_ratings(ratings))
    return replace(fitted, interaction_model=model, calibration=Calibration(1.3, (), 0.7))


def picked_model(*, weighed: bool = False) -> FittedModel:
    """Of interactions alone."""
    ratings = data(implicit=True, weighed=weighed)
    counts = count_training_ratings(("user",), ratings)
    model = some_model(InteractionRows.from_ratings(ratings))
    return FittedModel((), "picks", ratings, counts, interaction_model=model)


def chances_of(fitted: FittedModel, user: int, *, left_out: bool) -> FloatArray:
    """P(picked next) of every item for one user of the data, in double precision. Returns (M,)."""
    model = fitted.interaction_model
    assert model is not None
    mine = InteractionRows.from_ratings(fitted.context).select(np.array([user]))
    scores = summed_scores(model, mine)[0]
    odds = np.exp(scores - scores.max())
    if left_out:
        odds[mine.columns] = 0.0
    return np.asarray(odds / max(odds.sum(), 1e-300))


def first_of(scores: FloatArray, allowed: Any, n: int) -> list[int]:
    """The n best allowed items; of equal ones the lower index."""
    order = sorted(np.flatnonzero(allowed), key=lambda i: (-scores[i], i))
    return [int(i) for i in order[:n]]
