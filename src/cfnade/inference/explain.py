"""How each known rating moved a prediction: leave it out and predict again, exactly; as frames."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from cfnade.components.base import Who
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.objectives import means_of
from cfnade.inference.results import item_columns
from cfnade.inference.scorer import Scorer
from cfnade.inference.top_n import known_interactions
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.validation import check_choice

_SCORES = 1 << 22  # of all items, without some interactions, that are made together


Target = Literal["rating", "interaction"]


def explanation(scorer: Scorer, who: Who, item: int, target: Target | None) -> pl.DataFrame:
    """By whatever the model reads: a line for each."""
    if explains_interaction(scorer.fitted, target):
        return by_pick(scorer, who, item)
    return (by_item if scorer.fitted.takes_histories else by_level)(scorer, who, item)


def explains_interaction(model: FittedModel, target: Any) -> bool:
    """Return whether the probability of an interaction is explained, rather than the rating."""
    if target is None:
        return not model.rates
    check_choice("target", target, get_args(Target), error=PredictionError)
    model.require("interactions" if target == "interaction" else "ratings")
    return bool(target == "interaction")


def by_item(scorer: Scorer, who: Who, item: int) -> pl.DataFrame:
    """By the person's ratings: a line for each item that they rated, the strongest effect first."""
    context = scorer.fitted.context
    values = context.scale.array()
    rated = who.rated.without(item)
    effects = scorer.effects(who, item)
    prediction = float(means_of(effects.whole[None], values)[0])
    without = means_of(effects.without, values)
    order = np.lexsort((rated.columns, -np.abs(prediction - without)))
    items, without = rated.columns[order].astype(np.int64), without[order]
    return pl.DataFrame(
        {
            **item_columns(context, items),
            "rating": values[rated.levels[order]],
            "prediction": np.full(len(items), prediction),
            "without": without,
            "change": prediction - without,
        }
    )


def by_pick(scorer: Scorer, who: Who, item: int) -> pl.DataFrame:
    """By what is known of the person: how much likelier each made it that the item is picked."""
    context, model = scorer.fitted.context, scorer.fitted.interaction_model
    assert model is not None
    rated, known = who.rated.without(item), known_interactions(scorer, [who])
    known = known.where(known.columns != item)
    whole = model.log_probabilities(known)[0, item].astype(np.float64)
    without = np.empty(len(known.columns))
    step = max(1, _SCORES // model.n_items)
    for first in range(0, len(without), step):
        check_cancelled()
        places = np.arange(first, min(first + step, len(without)))
        without[places] = model.log_probabilities_without(known, places)[:, item]
    order = np.lexsort((rated.columns, without - whole))  # what helped most comes first
    items = rated.columns[order].astype(np.int64)
    columns = {
        **item_columns(context, items),
        "rating": context.scale.array()[rated.levels[order]],
        "interaction_probability": np.full(len(items), np.exp(whole)),
        "without": np.exp(without[order]),
        "lift": np.exp(whole - without[order]),
    }
    if context.implicit:
        del columns["rating"]
    return pl.DataFrame(columns)


def by_level(scorer: Scorer, who: Who, item: int) -> pl.DataFrame:
    """By the item's ratings: a line for each level that others gave, the strongest effect first.

    Summed up by level, so that nobody's own rating can be told from it.
    """
    values = scorer.fitted.context.scale.array()
    raters, each, levels = scorer.effects_of_others(who, item)
    K, counts = len(values), np.bincount(raters.levels, minlength=len(values))
    prediction = float(means_of(each.whole[None], values)[0])
    changes = np.bincount(raters.levels, prediction - means_of(each.without, values), minlength=K)
    without = means_of(levels, values)
    frame = pl.DataFrame(
        {
            "rating": values,
            "count": counts,
            "prediction": np.full(K, prediction),
            "without": without,
            "change": prediction - without,
            "mean_change": np.divide(changes, counts, out=np.full(K, np.nan), where=counts > 0),
        }
    )
    frame = frame.filter(pl.col("count") > 0)
    return frame.sort(pl.col("change").abs(), descending=True, maintain_order=True)
