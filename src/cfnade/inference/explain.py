"""Explanations: how each known rating changes a prediction.

Each rating is left out in turn and the prediction made again, exactly.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Entities, Query
from cfnade.inference.results import item_columns
from cfnade.inference.scorer import Scorer, expected_ratings
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.validation import check_choice

Target = Literal["rating", "interaction"]

_MAX_SCORES = 1 << 22  # scores of all items that are computed at a time


def explain(scorer: Scorer, user: Entities, item: int, target: Target | None) -> pl.DataFrame:
    """Return the effect of each known rating or interaction, strongest first.

    For an item-based model, effects are those of the item's ratings by level.
    """
    if explains_interaction(scorer.fitted, target):
        return explain_interaction(scorer, user, item)
    if scorer.fitted.takes_histories:
        return explain_rating(scorer, user, item)
    return explain_rating_by_level(scorer, user, item)


def explains_interaction(model: FittedModel, target: Any) -> bool:
    """Return whether the probability of an interaction is explained, rather than the rating."""
    if target is None:
        return not model.predicts_ratings
    check_choice("target", target, get_args(Target), error=PredictionError)
    model.require("interactions" if target == "interaction" else "ratings")
    return bool(target == "interaction")


def explain_rating(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """Return the effect of each of the user's ratings on the predicted rating of an item."""
    context = scorer.fitted.context
    values = context.scale.array()
    query = leave_each_out(context, user, item)
    means = expected_ratings(scorer.rating_probabilities(query), values)
    without, prediction = means[:-1], float(means[-1])
    columns, levels = query.users.ratings(0)
    order = np.lexsort((columns, -np.abs(prediction - without)))
    items, without = columns[order].astype(np.int64), without[order]
    return pl.DataFrame(
        {
            **item_columns(context, items),
            "rating": values[levels[order]],
            "prediction": np.full(len(items), prediction),
            "prediction_without": without,
            "difference": prediction - without,
        }
    )


def leave_each_out(context: Dataset, user: Entities, item: int) -> Query:
    """Return a query for an item without each of the user's ratings, and at the end with all."""
    user = user.without(item)
    n = len(user.rows.columns)
    zeros = np.zeros(n + 1, np.int64)
    left_out = np.append(np.arange(n), -1) if n else None
    items = np.full(n + 1, item)
    return Query.of_users(context, user, zeros, items, left_out=left_out, serial=True)


def explain_interaction(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """Return the effect of each interaction on the probability that an item is the next one."""
    context, model = scorer.fitted.context, scorer.fitted.interaction_model
    assert model is not None
    columns, levels = user.without(item).ratings(0)
    rows = scorer.interactions_of(user)
    rows = rows.where(rows.columns != item)
    log_probability = model.log_probabilities(rows)[0, item].astype(np.float64)
    without = np.empty(len(rows.columns))
    step = max(1, _MAX_SCORES // model.n_items)
    for first in range(0, len(without), step):
        check_cancelled()
        places = np.arange(first, min(first + step, len(without)))
        without[places] = model.log_probabilities_without(rows, places)[:, item]
    order = np.lexsort((columns, without - log_probability))  # the largest lift first
    items = columns[order].astype(np.int64)
    frame = {
        **item_columns(context, items),
        "rating": context.scale.array()[levels[order]],
        "interaction_probability": np.full(len(items), np.exp(log_probability)),
        "prediction_without": np.exp(without[order]),
        "lift": np.exp(log_probability - without[order]),
    }
    if context.implicit:
        del frame["rating"]
    return pl.DataFrame(frame)


def explain_rating_by_level(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """Return the effect of the item's ratings by other users, summed by level.

    The sums do not reveal the rating of any user.
    """
    context = scorer.fitted.context
    values, K = context.scale.array(), len(context.scale)
    stored = Entities.of_dataset(context, "item").take(np.array([item]))
    raters, levels = stored.without(int(user.index[0])).ratings(0)
    histories = [(raters[levels != k], levels[levels != k]) for k in range(K)]
    histories.append((raters, levels))
    items = Entities.of_histories([item] * (K + 1), histories, context.n_users, K)
    zeros = np.zeros(K + 1, np.int64)
    query = Query(context, user, items, zeros, np.arange(K + 1), serial=True)
    means = expected_ratings(scorer.rating_probabilities(query), values)
    frame = pl.DataFrame(
        {
            "rating": values,
            "count": np.bincount(levels, minlength=K),
            "prediction": np.full(K, means[-1]),
            "prediction_without": means[:-1],
            "difference": means[-1] - means[:-1],
        }
    )
    frame = frame.filter(pl.col("count") > 0)
    return frame.sort(pl.col("difference").abs(), descending=True, maintain_order=True)
