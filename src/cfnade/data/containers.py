"""Ratings in containers that are no frames: arrays, sparse matrices, lists and dicts, as frames.

Columns without names are numbered: they are user, item, rating and, if there is a fourth, time. Two
columns are interactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from cfnade.data.fields import POLARS_ERRORS
from cfnade.data.roles import NO_COLUMN, USUAL, ReadOptions, find_name
from cfnade.data.typed_tables import mixed_types
from cfnade.exceptions import DataError

_WIDTHS = (2, 3, 4)
_ROWS = "user, item and perhaps rating and time"
_DICTS = "give {name: column}, {user: {item: rating}} or {user: [items]}"


def as_frame(data: Any, options: ReadOptions, rated: bool) -> Any:
    """A polars frame of what is none; anything else as it is, for others to read or refuse.

    `rated` says that there are ratings, even if all are equal.
    """
    if type(data).__module__.startswith("scipy.sparse"):
        return _of_sparse(data, options, rated)
    if isinstance(data, np.ndarray):
        return _of_array(data)
    if isinstance(data, Mapping):
        return _of_mapping(data, options)
    if isinstance(data, list | tuple):
        return _of_rows(data)
    return data


def _of_sparse(matrix: Any, options: ReadOptions, rated: bool) -> pl.DataFrame:
    """Users are rows, items columns, both by number; what is stored is a rating, a zero too.

    Where all entries are equal they only mark pairs, unless it is said that they are ratings.
    """
    if matrix.ndim != 2:
        raise DataError(
            f"a sparse array of {matrix.ndim} dimensions is no table of users × items; give one "
            "of 2 dimensions"
        )
    entries = matrix.tocoo()
    users, items, values = entries.row, entries.col, entries.data
    if matrix.format in ("bsr", "dia"):  # their zeros only fill blocks and diagonals
        users, items, values = (part[entries.data != 0] for part in (users, items, values))
    cells = {"user": users, "item": items}
    marks = len(values) > 0 and bool(np.all(values == values[0]))
    if marks and not rated and options.rating is None:
        return _frame(cells)
    return _frame(cells | {_called(options): values})


def _called(options: ReadOptions) -> str:
    """What is said of a pair: a rating, or its count if there are no ratings."""
    return "weight" if options.rating == NO_COLUMN else "rating"


def _of_array(array: np.ndarray[Any, Any]) -> pl.DataFrame:
    if isinstance(array, np.ma.MaskedArray):
        raise DataError("a masked array is not read; give its valid rows (numpy.ma.compress_rows)")
    if array.dtype.names is not None:
        if array.ndim != 1:
            raise DataError(
                f"a structured array of shape {array.shape} is no table; give one of 1 dimension"
            )
        return _frame({name: array[name] for name in array.dtype.names})
    if array.ndim != 2 or array.shape[1] not in _WIDTHS:
        raise DataError(
            f"an array of shape {array.shape} is no table of ratings; give 2 to 4 columns "
            f"({_ROWS}), or a table of users × items as a scipy.sparse matrix"
        )
    return _frame({str(i): array[:, i] for i in range(array.shape[1])})


def _of_mapping(data: Mapping[Any, Any], options: ReadOptions) -> pl.DataFrame:
    """{user: {item: rating}}, {user: [items]}, or columns by name."""
    inner = [isinstance(value, Mapping) for value in data.values()]
    if data and all(inner):
        rows = [(u, i, rating) for u, rated in data.items() for i, rating in rated.items()]
        names = ["user", "item", _called(options)]
        return _of_rows(rows).rename(dict(zip("012", names, strict=True)))
    if not data:
        raise DataError(f"the dict is empty: there are no ratings; {_DICTS}")
    if any(inner):
        odd = next(key for key, value in data.items() if not isinstance(value, Mapping))
        raise DataError(
            f"a dict of dicts is {{user: {{item: rating}}}}; under {odd!r} it holds a "
            f"{type(data[odd]).__name__}"
        )
    for name, column in data.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            shown = str(column)[:40]
            raise DataError(f"under {name!r} the dict holds {shown!r}, not a column; {_DICTS}")
    if options.user is None and options.item is None and not _names_columns(data):
        return _of_rows([(user, item) for user, items in data.items() for item in items])
    lengths = {str(name): len(column) for name, column in data.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns of the dict are not equally long: {lengths}")
    return _frame({str(name): column for name, column in data.items()})


def _names_columns(data: Mapping[Any, Any]) -> bool:
    """Whether a key is a usual name of a column; where none is, keys are users."""
    names = [key for key in data if isinstance(key, str)]
    return any(find_name(usual, names) is not None for usual in USUAL.values())


def _of_rows(rows: Sequence[Any]) -> pl.DataFrame:
    if not rows:
        raise DataError(f"it is empty: there are no ratings; give rows of {_ROWS}")
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        odd = next((n for n, row in enumerate(rows) if list(row) != names), None)
        if odd is not None:
            raise DataError(f"row {odd} has the keys {list(rows[odd])}, row 0 {names}")
        return _frame({str(name): [row[name] for row in rows] for name in names})
    for number, row in enumerate(rows):
        if not isinstance(row, list | tuple | np.ndarray) or len(row) not in _WIDTHS:
            raise DataError(f"row {number} is {str(row)[:60]!r}; each must hold {_ROWS}")
        if len(row) != len(rows[0]):
            raise DataError(f"row {number} has {len(row)} values, row 0 has {len(rows[0])}")
    columns = zip(*rows, strict=True)
    return _frame({str(i): list(column) for i, column in enumerate(columns)})


def _frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([_series(name, column) for name, column in columns.items()])


def _series(name: str, column: Any) -> pl.Series:
    try:
        if isinstance(column, np.ndarray):
            column = _known_to_polars(column)
        elif _are_numbers(column):
            column = np.asarray(column)
        series = pl.Series(name, column)
    except (*POLARS_ERRORS, TypeError, ValueError) as error:
        raise mixed_types(name, str(error).splitlines()[0]) from error
    if series.dtype == pl.Object:
        raise mixed_types(name, f"{type(column[0]).__name__} among them")
    return series


def _known_to_polars(column: np.ndarray[Any, Any]) -> Any:
    if column.dtype == object:
        values = column.tolist()
        return np.asarray(values) if _are_numbers(values) else values
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]")
    return np.ascontiguousarray(np.char.decode(column) if column.dtype.kind == "S" else column)


def _are_numbers(column: Any) -> bool:
    """Whether whole numbers and fractions meet: polars wants one kind, NumPy finds it."""
    kinds = set(map(type, column)) if isinstance(column, list | tuple) else set()
    return len(kinds) > 1 and all(
        issubclass(kind, int | float | np.integer | np.floating) and kind is not bool
        for kind in kinds
    )
