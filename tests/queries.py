"""Queries as tests ask them: of one user or item, stored or new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset
from cfnade.inference.query import Entities, KnownRatings, Query
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]

NOTHING: KnownRatings = (np.empty(0, np.int32), np.empty(0, np.uint8))


def known(columns: Any, levels: Any) -> KnownRatings:
    return np.asarray(columns, np.int32), np.asarray(levels, np.uint8)


def without(ratings: KnownRatings, column: int) -> KnownRatings:
    keep = ratings[0] != column
    return ratings[0][keep], ratings[1][keep]


def user_of(context: Dataset, ratings: KnownRatings = NOTHING, index: int = -1) -> Entities:
    """A user with these ratings: a new one, or a stored one with another history."""
    return Entities.of_histories([index], [ratings], context.n_items, len(context.scale))


def item_of(context: Dataset, ratings: KnownRatings = NOTHING, index: int = -1) -> Entities:
    return Entities.of_histories([index], [ratings], context.n_users, len(context.scale))


def stored(context: Dataset, index: int) -> Entities:
    return Entities.of_dataset(context, "user").take(np.array([index]))


def joined(users: Sequence[Entities]) -> Entities:
    return Entities.concat(list(users))


def of_user(scorer: Scorer, user: Entities, items: Any) -> FloatArray:
    """The distributions of some items for one user. (n, K)."""
    zeros = np.zeros(len(items), np.int64)
    query = Query.of_users(scorer.fitted.context, user, zeros, np.asarray(items), serial=True)
    return scorer.rating_probabilities(query)


def of_users(scorer: Scorer, users: Entities, user: IntArray, items: IntArray) -> FloatArray:
    return scorer.rating_probabilities(Query.of_users(scorer.fitted.context, users, user, items))


def of_item(scorer: Scorer, item: Entities, users: IntArray) -> FloatArray:
    """The distributions of some users for a new item. (n, K)."""
    every = Entities.of_dataset(scorer.fitted.context, "user")
    user, zeros = np.where(users < 0, len(every) - 1, users), np.zeros(len(users), np.int64)
    return scorer.rating_probabilities(
        Query(scorer.fitted.context, every, item, user, zeros, serial=True)
    )


def component_scores(component: Any, context: Dataset, users: Any, items: Any) -> npt.NDArray[Any]:
    """One component's scores of pairs of the data, (n, K)."""
    query = Query.of_pairs(context, np.asarray(users, np.int64), np.asarray(items, np.int64))
    pairs = query.pairs(component.axis or "user")
    scores: npt.NDArray[Any] = component.scorer(pairs.rows).score_pairs(pairs)
    return scores
