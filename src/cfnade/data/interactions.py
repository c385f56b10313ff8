"""Data without ratings: ratings that become interactions, and interactions that are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade._typing import IntArray
from cfnade.data.columns import Columns
from cfnade.data.dataset import Dataset, pair_keys
from cfnade.exceptions import DataError

Weighting = Literal["linear", "log"]
"""What a pair's total count c weighs: c, or 1 + ln c."""


def liked(columns: Columns, least: float) -> Columns:
    """The ratings of at least so much, as interactions; the others are gone."""
    if columns.implicit:
        raise DataError(
            "likes= turns ratings into interactions; these are some already: leave it out"
        )
    places = np.flatnonzero(columns.values >= least)
    if len(places) == 0:
        raise DataError(
            f"likes={least:g}: no rating is as high, the highest is {columns.values.max():g}; "
            "give a lower one"
        )
    parts: dict[str, Any] = {
        name: _taken(getattr(columns, name), places) for name in ("users", "items", "values")
    }
    times = None if columns.times is None else columns.times[places]
    where = columns.where
    kept = replace(columns, **parts, times=times, where=lambda row: where(int(places[row])))
    return replace(kept, scale=None).as_interactions()


def _taken(column: npt.NDArray[Any] | pl.Series, places: IntArray) -> npt.NDArray[Any] | pl.Series:
    return column.gather(places) if isinstance(column, pl.Series) else column[places]


def counted(ratings: Dataset, columns: Columns, weighting: Weighting, repeated: bool) -> Dataset:
    """Each pair once: at its last position, with its latest time and the weight of its total."""
    totals = columns.weights
    if repeated:
        ratings, totals = _together(ratings, columns)
    elif totals is None:
        return ratings
    if weighting == "log":
        totals = _logarithmic(totals, ratings)
    weights = totals.astype(np.float32)
    return ratings if np.all(weights == 1) else ratings.replace(weights=weights)


def _together(ratings: Dataset, columns: Columns) -> tuple[Dataset, npt.NDArray[np.float64]]:
    """One interaction of each pair, and its total: of the weights, or of lines."""
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    order = np.argsort(keys, kind="stable")  # pair after pair, lines of a pair as they came
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    sizes = np.diff(starts, append=len(keys))
    last = order[starts + sizes - 1]
    back = np.argsort(last)
    once = ratings.select(last[back])
    if ratings.times is not None:
        latest = np.maximum.reduceat(ratings.times[order], starts)
        once = once.replace(times=latest[back])
    weights = columns.weights
    totals = sizes if weights is None else np.add.reduceat(weights[order], starts)
    return once, totals[back].astype(np.float64)


def _logarithmic(totals: npt.NDArray[np.float64], ratings: Dataset) -> npt.NDArray[np.float64]:
    if totals.min() < 1:  # 1 + ln of less than 1/e is no weight
        place = int(totals.argmin())
        user = ratings.user_ids[ratings.users[place]]
        item = ratings.item_ids[ratings.items[place]]
        raise DataError(
            f"user {user}, item {item}: weighs {totals[place]:g} in all; logarithms are for counts "
            'of 1 or more: take weights="linear"'
        )
    return 1 + np.log(totals)
