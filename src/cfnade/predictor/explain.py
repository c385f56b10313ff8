"""How each known rating moved a prediction: leave it out and predict again, exactly.

Leaving a rating out takes its embedding off the summed context; only the dense part of the network
is computed again, for many ratings at a time. Several models are asked one by one and their
distributions averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.bundle import Bundle
from cfnade.predictor import frames
from cfnade.predictor.ranking import means_of
from cfnade.predictor.scoring import Net, Row, distributions

FloatArray = npt.NDArray[np.float64]


class Effects(NamedTuple):
    """A cell's distribution, and what it would be without each rating of its row."""

    whole: FloatArray  # (K,)
    without: FloatArray  # (c, K)


class LevelEffects(NamedTuple):
    """The same, and what it would be without all ratings of a level."""

    single: Effects
    levels: FloatArray  # (K, K)


class Explains(Protocol):
    """What can say how known ratings move a cell; `rated` is without the cell itself."""

    bundle: Bundle

    def effects(self, rated: Row, user: int, item: int) -> Effects: ...
    def level_effects(self, rated: Row, user: int) -> LevelEffects: ...


def effects(net: Net, row: Row, column: int, added: Any = 0.0, added_without: Any = 0.0) -> Effects:
    """Effects of the row's ratings, which must not hold the cell itself.

    What another side adds to the scores: (K,) with everything, (c, K) without each rating.
    """
    total = net.total(row)
    without = np.empty((len(row.columns), net.output_table.shape[1]))
    for part, state in net.states_without(row, total):
        without[part] = net.column_scores(state, column)
    whole = net.states(total[None], np.array([len(row.columns)]))
    scores = net.column_scores(whole, column) + added  # (1, K)
    return Effects(distributions(scores)[0], distributions(without + added_without))


def level_effects(net: Net, row: Row, column: int) -> LevelEffects:
    """Effects summed up by level, so that nobody's own rating can be told from them."""
    K = net.output_table.shape[1]
    counts = np.bincount(row.levels, minlength=K)
    total = net.total(row)
    shares = np.zeros((K, len(total)), total.dtype)  # what each level's ratings add up to
    for level in np.flatnonzero(counts):
        mine = row.levels == level
        shares[level] = net.total(Row(row.columns[mine], row.levels[mine]))
    states = net.states(total - shares, len(row.levels) - counts)
    levels = distributions(net.column_scores(states, column))
    return LevelEffects(effects(net, row, column), levels)


def constant(frequencies: FloatArray, count: int) -> Effects:
    """Of a cell whose prediction no rating moves."""
    return Effects(frequencies, np.tile(frequencies, (count, 1)))


def mean_effects(found: Sequence[Effects]) -> Effects:
    """Of the mean of several models."""
    return Effects(
        np.mean([one.whole for one in found], axis=0),
        np.mean([one.without for one in found], axis=0),
    )


# -- as frames -----------------------------------------------------------------------------------


def by_item(known: Explains, row: Row, user: int, item: int) -> pl.DataFrame:
    """By the person's ratings: a line for each item that they rated, the strongest effect first."""
    context, values = known.bundle.context, known.bundle.context.scale.array()
    row = _without(row, item)
    found = known.effects(row, user, item)
    prediction = float(means_of(found.whole[None], values)[0])
    without = means_of(found.without, values)
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


def by_level(known: Explains, row: Row, user: int) -> pl.DataFrame:
    """By the item's ratings: a line for each level that others gave, the strongest effect first."""
    values = known.bundle.context.scale.array()
    row = _without(row, user)
    single, levels = known.level_effects(row, user)
    K, counts = len(values), np.bincount(row.levels, minlength=len(values))
    prediction = float(means_of(single.whole[None], values)[0])
    changes = np.bincount(row.levels, prediction - means_of(single.without, values), minlength=K)
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


def _without(row: Row, column: int) -> Row:
    """The row without what it says of the column that is predicted."""
    keep = row.columns != column
    return Row(row.columns[keep], row.levels[keep])
