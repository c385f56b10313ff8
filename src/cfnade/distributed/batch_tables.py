"""Columns of tables as arguments of a predictor: ids and histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import UserHistory
from cfnade.inference.predictor import Predictor

HISTORY = ("items", "ratings")
"""Columns of lists: the items that a new user rated, and the ratings."""


def column(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return a column; raise if it is missing or has nulls."""
    if name not in frame.columns:
        raise PredictionError(
            f"the table has no column {name}; its columns are {', '.join(frame.columns) or 'none'}"
        )
    values = frame[name]
    if values.null_count():
        row = values.is_null().arg_max()
        raise PredictionError(f"row {row}: {name} is missing; fill it in or leave the row out")
    return values


def raw_ids(values: pl.Series, ids: IdIndex) -> Any:
    """Return ids in the type of the model: an array of integers, or strings."""
    if ids.are_texts:
        return values.cast(pl.String).to_list()
    if values.dtype.is_integer():
        return values.to_numpy()
    integers = values.cast(pl.Int64, strict=False)
    wrong = integers.is_null() | (integers.cast(values.dtype, strict=False) != values).fill_null(
        True
    )
    if wrong.any():
        raise PredictionError(
            f"row {wrong.arg_max()}: {values.name} {values.filter(wrong)[0]!r}: the {ids.side} ids "
            "of this model are whole numbers"
        )
    return integers.to_numpy()


def has_histories(frame: pl.DataFrame) -> bool:
    """Return whether each row is a new user with a history; their ids are not looked up then."""
    return HISTORY[0] in frame.columns


def parse_histories(frame: pl.DataFrame, predictor: Predictor) -> list[UserHistory]:
    """Return the history of each row; items that the model does not know are left out."""
    items = _lists(frame, HISTORY[0])
    sizes = items.list.len().to_numpy().astype(np.int64)
    flat = items.explode(empty_as_null=False, keep_nulls=False)
    if flat.null_count():
        raise PredictionError(f"{HISTORY[0]}: an item in a list is missing; leave it out")
    indices = predictor.items.indices(raw_ids(flat.alias("item"), predictor.items))
    levels = _levels(frame, predictor, sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return [_history(indices[a:b], levels[a:b], row) for row, (a, b) in enumerate(_pairs(starts))]


def _pairs(starts: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))


def _history(
    indices: npt.NDArray[np.int64], levels: npt.NDArray[np.uint8], row: int
) -> UserHistory:
    is_known = indices >= 0
    items = indices[is_known].astype(np.int32)
    if len(np.unique(items)) < len(items):
        raise PredictionError(f"row {row}: an item is rated twice in a history; give one rating")
    return UserHistory(items, levels[is_known])


def _levels(
    frame: pl.DataFrame, predictor: Predictor, sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    if len(predictor.scale) == 1:
        return np.zeros(int(sizes.sum()), np.uint8)
    stars = _lists(frame, HISTORY[1])
    lengths = stars.list.len().to_numpy().astype(np.int64)
    if (lengths != sizes).any():
        row = int(np.argmax(lengths != sizes))
        raise PredictionError(
            f"row {row}: {sizes[row]} items and {lengths[row]} ratings; a history has one of each"
        )
    values = stars.explode(empty_as_null=False, keep_nulls=False).cast(pl.Float64).to_numpy()
    levels, fits = predictor.scale.levels_of(values)
    if not fits.all():
        place = int(np.argmin(fits))
        row = int(np.searchsorted(np.cumsum(sizes), place, side="right"))
        raise PredictionError(
            f"row {row}: rating {values[place]:g} is off the model's scale {predictor.scale}"
        )
    return levels


def _lists(frame: pl.DataFrame, name: str) -> pl.Series:
    values = column(frame, name)
    if not isinstance(values.dtype, pl.List | pl.Array):
        raise PredictionError(
            f"{name} is of type {values.dtype}; it must hold a list for each person, as "
            "group_by(user) with lists of items and ratings makes it"
        )
    return values.cast(pl.List(values.dtype.inner))
