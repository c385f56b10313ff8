"""Data of other libraries at the borders of the estimator: training data, histories and results.

Inside, everything is NumPy and polars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import narwhals.stable.v1 as nw
import numpy as np
import polars as pl

from cfnade.data.dataset import Dataset, pair_keys
from cfnade.data.load import load
from cfnade.data.merge import merge
from cfnade.data.readers.frames import join_target
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.data.split_protocols import TRAIN, VALID, add_validation
from cfnade.data.splits import Split, apply_labels
from cfnade.exceptions import DataError, PredictionError, TrainingError

Library = Literal["pandas", "polars", "pyarrow"]
LIBRARIES: tuple[Library, ...] = get_args(Library)
_PAIR, _TRIPLE = ("item", "rating"), ("user", "item", "rating")


def library_of(*arguments: Any) -> Library | None:
    """Return the library of the first argument that is a frame or a column of one."""
    for argument in arguments:
        roots = {parent.__module__.partition(".")[0] for parent in type(argument).__mro__}
        for library in LIBRARIES:
            if library in roots:
                return library
    return None


def to_frame(frame: pl.DataFrame, library: Library | None, *columns: Any) -> pl.DataFrame:
    """Return a polars frame as one of another library.

    Args:
        frame: The result.
        library: None for polars.
        *columns: Arguments with a value for each row; the result has the index of the first pandas
            one.
    """
    if library is None or library == "polars":
        return frame
    data = {
        name: frame[name].to_numpy() if frame[name].dtype.is_numeric() else frame[name].to_list()
        for name in frame.columns
    }
    result: Any = nw.from_dict(data, backend=library).to_native()
    indexed = [column for column in columns if library == library_of(column) == "pandas"]
    if indexed:
        result.index = indexed[0].index
    return result  # type: ignore[no-any-return]  # polars unless another library is asked for


def read(data: Any, scale: Scale | None = None) -> Dataset:
    """Return ratings as they are; load anything else, on the scale if there is one."""
    if isinstance(data, Dataset):
        return data
    return load(data, implicit=True) if scale == INTERACTIONS else load(data, scale=scale)


def to_split(data: Any, valid: Any, seed: int) -> Split:
    """Return what to train on, and what to select and calibrate by."""
    if isinstance(data, Split):
        if valid is not None:
            raise TrainingError("a Split has a validation part; omit valid")
        return data
    if valid is not None:
        joined = join_target(data, valid)  # fit(X, y)
        data, valid = (data, valid) if joined is None else (joined, None)
    ratings = read(data)
    if valid is None:
        labels = np.full(len(ratings), TRAIN, np.uint8)
        return apply_labels(ratings, add_validation(labels, seed), f"5 % validation, seed {seed}")
    validation = read(valid, ratings.scale)
    both = merge(ratings, validation)
    pairs = pair_keys(both.users, both.items, both.n_items)
    if repeated := len(pairs) - len(np.unique(pairs)):
        raise DataError(
            f"{repeated:,} of {len(validation):,} validation ratings are of a user and an item "
            "that the training data rates too; take them out of one of the two"
        )
    labels = np.repeat(np.array([TRAIN, VALID], np.uint8), [len(ratings), len(validation)])
    return apply_labels(both, labels, "validation given")


# -- histories ------------------------------------------------------------------------------------


def to_history(history: Any, *, rated: bool) -> Any:
    """Return the history of a user as pairs if it is a table; else as it is.

    A pandas series has ratings by item. Without ratings, any column holds items.
    """
    if library_of(history) is None:
        return history
    table = nw.from_native(history, eager_only=True, allow_series=True)
    if isinstance(table, nw.Series):
        if not rated:
            return table.to_list()
        if hasattr(history, "items"):
            return [*zip(history.index.tolist(), history.tolist(), strict=True)]
        raise PredictionError(
            "a history of ratings came as one column; give a table of items and ratings"
        )
    return [*_columns(table, _PAIR if rated else _PAIR[:1], "a history")]


def to_histories(histories: Any, *, rated: bool) -> Any:
    """Return the histories of several users by name, from a table or a mapping of histories."""
    if library_of(histories) is not None:
        table = nw.from_native(histories, eager_only=True)
        by_user: dict[Any, list[Any]] = {}
        for user, *entry in _columns(table, _TRIPLE if rated else _TRIPLE[:2], "histories"):
            by_user.setdefault(user, []).append(tuple(entry) if rated else entry[0])
        return by_user
    if isinstance(histories, Mapping):
        return {name: to_history(history, rated=rated) for name, history in histories.items()}
    return histories


def _columns(table: nw.DataFrame[Any], names: Sequence[str], noun: str) -> Any:
    """Return rows of these columns, by name, or by position if there are no others."""
    if not set(names) <= set(table.columns):
        if len(table.columns) != len(names):
            raise PredictionError(
                f"{noun} came as a table with columns {', '.join(map(repr, table.columns))}; it "
                f"needs {', '.join(names)}"
            )
        names = table.columns
    columns = [table[name].to_list() for name in names]
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)
