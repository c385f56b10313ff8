"""How each known rating moved a prediction: leave it out and predict again, exactly.

Leaving a rating out takes its embedding off the summed context; only the dense part of the network
is computed again, for many ratings at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from cfnade.models.cfnade import CFNADE
from cfnade.predictor import frames
from cfnade.predictor.known import Known
from cfnade.predictor.scoring import (
    Row,
    column_scores,
    embeddings,
    row_of,
    row_sum,
    states,
    states_without,
)

FloatArray = npt.NDArray[np.float64]


class Effects(NamedTuple):
    """A cell's expected rating, and what it would be without each rating of its row."""

    prediction: float
    without: FloatArray  # (c,)


class LevelEffects(NamedTuple):
    """The same by level: how many ratings, without all of them, and the mean effect of one."""

    prediction: float
    counts: npt.NDArray[np.int64]  # (K,)
    without: FloatArray  # (K,)
    mean_change: FloatArray  # (K,) NaN at a level without ratings


def effects(model: CFNADE, row: Row, column: int, values: FloatArray) -> Effects:
    """Effects of the row's ratings, which must not hold the cell itself."""
    total = row_sum(model, row)
    whole = states(model, total.unsqueeze(0), torch.tensor([len(row.columns)]))
    without = np.empty(len(row.columns))
    for part, state in states_without(model, row, total):
        without[part] = _means(column_scores(model, state, column), values)
    return Effects(float(_means(column_scores(model, whole, column), values)[0]), without)


def level_effects(model: CFNADE, row: Row, column: int, values: FloatArray) -> LevelEffects:
    """Effects summed up by level, so that nobody's own rating can be told from them."""
    single = effects(model, row, column, values)
    K = len(values)
    counts = np.bincount(row.levels, minlength=K)
    shares = torch.zeros(K, model.input_table.shape[2])  # what each level's ratings add up to
    columns = torch.from_numpy(row.columns.astype(np.int64))
    levels = torch.from_numpy(row.levels.astype(np.int64))
    for part, own in embeddings(model, columns, levels):
        shares.index_add_(0, levels[part], own)
    left = torch.from_numpy(len(row.levels) - counts)
    state = states(model, row_sum(model, row) - shares, left)
    without = _means(column_scores(model, state, column), values)
    changes = np.bincount(row.levels, single.prediction - single.without, minlength=K)
    mean_change = np.divide(changes, counts, out=np.full(K, np.nan), where=counts > 0)
    return LevelEffects(single.prediction, counts, without, mean_change)


def _means(scores: Tensor, values: FloatArray) -> FloatArray:
    found: FloatArray = scores.double().softmax(1).numpy() @ values
    return found


# -- as frames -----------------------------------------------------------------------------------


def by_item(known: Known, row: Row, item: int) -> pl.DataFrame:
    """User-based: a line for each item that the person rated, the strongest effect first."""
    context, values = known.bundle.context, known.bundle.context.scale.array()
    row = _without(row, item)
    prediction, without = effects(known.bundle.model, row, item, values)
    if known.unseen(item):  # its prediction is the training mean, whatever is known
        prediction = float(known.frequencies @ values)
        without = np.full(len(row.columns), prediction)
    order = np.lexsort((row.columns, -np.abs(prediction - without)))
    items, without = row.columns[order].astype(np.int64), without[order]
    texts = context.item_ids.dtype == object
    return pl.DataFrame(
        {
            "item": frames.id_series(context.item_ids[items], texts=texts),
            "title": frames.title_series(context, items),
            "rating": values[row.levels[order]],
            "prediction": np.full(len(items), prediction),
            "without": without,
            "change": prediction - without,
        }
    )


def by_level(known: Known, user: int, item: int) -> pl.DataFrame:
    """Item-based: a line for each level that others gave the item, the strongest effect first."""
    values = known.bundle.context.scale.array()
    row = _without(row_of(known.rows, item), user)
    prediction, counts, without, mean_change = level_effects(known.bundle.model, row, user, values)
    if known.unseen(user):
        prediction = float(known.frequencies @ values)
        without, mean_change = np.full_like(without, prediction), np.zeros_like(mean_change)
    frame = pl.DataFrame(
        {
            "rating": values,
            "count": counts,
            "prediction": np.full(len(counts), prediction),
            "without": without,
            "change": prediction - without,
            "mean_change": mean_change,
        }
    )
    frame = frame.filter(pl.col("count") > 0)
    return frame.sort(pl.col("change").abs(), descending=True, maintain_order=True)


def _without(row: Row, column: int) -> Row:
    """The row without what it says of the column that is predicted."""
    keep = row.columns != column
    return Row(row.columns[keep], row.levels[keep])
