"""How each known rating moved a prediction: leave it out and predict again, exactly; as frames."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.objectives import means_of
from cfnade.inference.query import Entities, Query
from cfnade.inference.results import item_columns
from cfnade.inference.scorer import Scorer
from cfnade.inference.top_n import known_interactions
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.validation import check_choice

_SCORES = 1 << 22  # of all items, without some interactions, that are made together


Target = Literal["rating", "interaction"]


def explanation(scorer: Scorer, user: Entities, item: int, target: Target | None) -> pl.DataFrame:
    """By whatever the model reads: a line for each."""
    if explains_interaction(scorer.fitted, target):
        return by_pick(scorer, user, item)
    return (by_item if scorer.fitted.takes_histories else by_level)(scorer, user, item)


def explains_interaction(model: FittedModel, target: Any) -> bool:
    """Return whether the probability of an interaction is explained, rather than the rating."""
    if target is None:
        return not model.predicts_ratings
    check_choice("target", target, get_args(Target), error=PredictionError)
    model.require("interactions" if target == "interaction" else "ratings")
    return bool(target == "interaction")


def by_item(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """By the person's ratings: a line for each item that they rated, the strongest effect first."""
    context = scorer.fitted.context
    values = context.scale.array()
    query = leave_each_out(context, user, item)
    means = means_of(scorer.rating_probabilities(query), values)
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


def by_pick(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """By what is known of the person: how much likelier each made it that the item is picked."""
    context, model = scorer.fitted.context, scorer.fitted.interaction_model
    assert model is not None
    columns, levels = user.without(item).ratings(0)
    known = known_interactions(scorer, user)
    known = known.where(known.columns != item)
    whole = model.log_probabilities(known)[0, item].astype(np.float64)
    without = np.empty(len(known.columns))
    step = max(1, _SCORES // model.n_items)
    for first in range(0, len(without), step):
        check_cancelled()
        places = np.arange(first, min(first + step, len(without)))
        without[places] = model.log_probabilities_without(known, places)[:, item]
    order = np.lexsort((columns, without - whole))  # what helped most comes first
    items = columns[order].astype(np.int64)
    frame = {
        **item_columns(context, items),
        "rating": context.scale.array()[levels[order]],
        "interaction_probability": np.full(len(items), np.exp(whole)),
        "prediction_without": np.exp(without[order]),
        "lift": np.exp(whole - without[order]),
    }
    if context.implicit:
        del frame["rating"]
    return pl.DataFrame(frame)


def by_level(scorer: Scorer, user: Entities, item: int) -> pl.DataFrame:
    """By the item's ratings: a line for each level that others gave, the strongest effect first.

    Summed up by level, so that nobody's own rating can be told from it.
    """
    context = scorer.fitted.context
    values, K = context.scale.array(), len(context.scale)
    others = Entities.of_dataset(context, "item").take(np.array([item]))
    raters, levels = others.without(int(user.index[0])).ratings(0)
    rest = [(raters[levels != k], levels[levels != k]) for k in range(K)]
    all_but = Entities.of_histories([item] * (K + 1), [*rest, (raters, levels)], context.n_users, K)
    nobody = np.zeros(K + 1, np.int64)
    query = Query(context, user, all_but, nobody, np.arange(K + 1), serial=True)
    means = means_of(scorer.rating_probabilities(query), values)
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


def leave_each_out(context: Dataset, user: Entities, item: int) -> Query:
    """Return the query of an item without each of the user's ratings of others, and with all."""
    others = user.without(item)
    n = len(others.rows.columns)
    zeros = np.zeros(n + 1, np.int64)
    left_out = np.append(np.arange(n), -1) if n else None
    items = np.full(n + 1, item)
    return Query.of_users(context, others, zeros, items, left_out=left_out, serial=True)
