"""Turn tables in memory into polars frames: frames of other libraries, arrays, lists, dicts.

Columns without names are numbered: they are user, item, rating and, if there is a fourth, time. Two
columns are interactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, find_name
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.exceptions import DataError

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions

_WIDTHS = (2, 3, 4)
_ROWS = "user, item and perhaps rating and time"
_DICTS = "give {name: column}, {user: {item: rating}} or {user: [items]}"


def to_polars(data: Any, options: LoadOptions | None = None) -> pl.DataFrame:
    """Return any table in memory as a polars frame."""
    if isinstance(data, pl.LazyFrame):
        try:
            data = data.collect()
        except (*POLARS_ERRORS, OSError) as error:
            raise DataError(
                f"the LazyFrame cannot be collected ({_first_line(error)}); correct its query"
            ) from error
    if isinstance(data, pl.DataFrame):
        return data
    if type(data).__module__.startswith("scipy.sparse"):
        return _from_sparse(data, options)
    if isinstance(data, np.ndarray):
        return _from_array(data)
    if isinstance(data, Mapping):
        return _from_mapping(data, options)
    if isinstance(data, tuple) and _are_columns(data):
        return _from_columns(dict(enumerate(data)))
    if isinstance(data, list | tuple):
        return _from_rows(data)
    return _from_frame(data)


def join_target(X: Any, y: Any) -> Any:
    """Return the table of `fit(X, y)`: users and items in two columns, and their ratings.

    Returns None if `y` is a table of its own.
    """
    if isinstance(y, list) and y and not isinstance(y[0], list | tuple | Mapping):
        y = np.asarray(y)
    size: tuple[int, ...] = getattr(y, "shape", ())
    if len(size) != 1 or getattr(getattr(y, "dtype", None), "names", None):
        return None
    shape = getattr(X, "shape", None)
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple):
        shape = (len(X), len(X[0]))
    if shape != (*size, 2):
        kind = f"of shape {shape}" if shape is not None else f"a {type(X).__name__}"
        raise DataError(
            "fit(X, y) takes users and items in the two columns of X and as many ratings in y; "
            f"X is {kind} and y has {size[0]:,} values"
        )
    frame = to_polars(X)
    if frame.columns == ["0", "1"]:
        frame.columns = ["user", "item"]
    return frame.with_columns(_series("rating", y))


def _from_frame(data: Any) -> pl.DataFrame:
    """Return a frame of pandas, pyarrow or any library that narwhals knows."""
    import narwhals.stable.v1 as nw

    if type(data).__module__.startswith("pandas") and any(
        name is not None for name in getattr(getattr(data, "index", None), "names", ())
    ):
        try:
            data = data.reset_index()  # user and item may be the levels of an index
        except ValueError as error:
            raise DataError(
                f"the index of the frame has a name that a column has too ({error}); rename it, or "
                "call reset_index(drop=True)"
            ) from None
    try:
        table = nw.from_native(data, eager_only=True)
        names = [str(name) for name in table.columns]
    except Exception:  # each library has its own error for a frame that is none
        raise DataError(
            f"data of type {type(data).__name__} is not a table that can be read; give a pandas, "
            "polars or pyarrow frame, an array, a sparse matrix, a list of tuples or a dict"
        ) from None
    if len(set(names)) < len(names):
        raise DataError(f"the columns of the frame have equal names: {names[:20]}; rename them")
    return pl.DataFrame([_from_narwhals(table[:, i]).alias(name) for i, name in enumerate(names)])


def _from_narwhals(column: Any) -> pl.Series:
    import narwhals.stable.v1 as nw

    native = column.to_native()
    try:
        if isinstance(native, pl.Series):
            return native
        if column.implementation.is_pyarrow():
            return pl.Series(native)
        gaps = column.is_null().to_list()
        if not any(gaps) and column.dtype.is_numeric() and column.dtype != nw.Decimal:
            return pl.Series(column.to_numpy())
        if not any(gaps) and column.dtype == nw.Datetime:
            return pl.Series(column.dt.timestamp("us").to_numpy()).cast(pl.Datetime("us"))
        values = zip(column.to_list(), gaps, strict=True)
        return pl.Series([None if gap else value for value, gap in values])
    except (*POLARS_ERRORS, TypeError, ValueError, ArithmeticError):
        # a column that is not read may hold anything
        return pl.Series([None] * len(column), dtype=pl.Object)


def _from_sparse(matrix: Any, options: LoadOptions | None) -> pl.DataFrame:
    """Return the stored entries of users × items as rows; a stored zero is a rating too.

    Entries that are all equal only mark pairs, unless an option makes sense for ratings alone.
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
    columns = {"user": users, "item": items}
    marks = len(values) > 0 and bool(np.all(values == values[0]))
    if options is not None and options.implicit:
        columns["weight"] = values
    elif not marks or (options is not None and options.is_for_ratings()):
        columns["rating"] = values
    return _frame(columns)


def _from_array(array: np.ndarray[Any, Any]) -> pl.DataFrame:
    if isinstance(array, np.ma.MaskedArray):
        raise DataError("a masked array is not read; give its valid rows (numpy.ma.compress_rows)")
    if array.dtype.names is not None and array.ndim == 1:
        return _frame({name: array[name] for name in array.dtype.names})
    if array.dtype.names is not None or array.ndim != 2 or array.shape[1] not in _WIDTHS:
        raise DataError(
            f"an array of shape {array.shape} is no table of ratings; give 2 to 4 columns "
            f"({_ROWS}), or a table of users × items as a scipy.sparse matrix"
        )
    return _frame(dict(enumerate(array.T)))


def _are_columns(data: tuple[Any, ...]) -> bool:
    """Return whether these are (users, items, ratings): lists, arrays or series of cells."""

    def is_column(part: Any) -> bool:
        if isinstance(part, list):
            return not any(isinstance(cell, list | tuple | Mapping) for cell in part)
        return len(getattr(part, "shape", ())) == 1

    return len(data) in _WIDTHS and all(map(is_column, data))


def _from_columns(columns: Mapping[Any, Any]) -> pl.DataFrame:
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns are not equally long: {lengths}")
    return _frame(columns)


def _from_mapping(data: Mapping[Any, Any], options: LoadOptions | None) -> pl.DataFrame:
    """Return {user: {item: rating}}, {user: [items]}, or columns by name."""
    if not data:
        raise DataError(f"the dict is empty: there are no ratings; {_DICTS}")
    if all(isinstance(value, Mapping) for value in data.values()):
        rows = [(u, i, rating) for u, rated in data.items() for i, rating in rated.items()]
        implicit = options is not None and options.implicit
        frame = _from_rows(rows)
        frame.columns = ["user", "item", "weight" if implicit else "rating"]
        return frame
    for name, column in data.items():
        if isinstance(column, str | Mapping) or not hasattr(column, "__len__"):
            preview = str(column)[:40]
            raise DataError(f"under {name!r} the dict holds {preview!r}, not a column; {_DICTS}")
    names = [key for key in data if isinstance(key, str)]
    has_roles = options is not None and not (options.user is None and options.item is None)
    if has_roles or any(find_name(common, names) is not None for common in COLUMN_NAMES.values()):
        return _from_columns(data)
    return _from_rows([(user, item) for user, items in data.items() for item in items])


def _from_rows(rows: Sequence[Any]) -> pl.DataFrame:
    if not rows:
        raise DataError(f"it is empty: there are no ratings; give rows of {_ROWS}")
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        odd = next((n for n, row in enumerate(rows) if set(row) != set(names)), None)
        if odd is not None:
            raise DataError(f"row {odd} has the keys {list(rows[odd])}, row 0 {names}")
        return _frame({name: [row[name] for row in rows] for name in names})
    for number, row in enumerate(rows):
        if not isinstance(row, list | tuple | np.ndarray) or len(row) not in _WIDTHS:
            raise DataError(f"row {number} is {str(row)[:60]!r}; each must hold {_ROWS}")
        if len(row) != len(rows[0]):
            raise DataError(f"row {number} has {len(row)} values, row 0 has {len(rows[0])}")
    return _frame(dict(enumerate(map(list, zip(*rows, strict=True)))))


def _frame(columns: Mapping[Any, Any]) -> pl.DataFrame:
    return pl.DataFrame([_series(str(name), column) for name, column in columns.items()])


def _series(name: str, column: Any) -> pl.Series:
    try:
        if not isinstance(column, list | tuple | pl.Series) and hasattr(column, "to_numpy"):
            column = column.to_numpy()
        if isinstance(column, np.ndarray):
            if column.dtype == object:
                column = column.tolist()
            elif column.dtype.kind == "M":
                column = column.astype("datetime64[us]")
            else:
                text = column.dtype.kind == "S"
                column = np.ascontiguousarray(np.char.decode(column) if text else column)
        if isinstance(column, list | tuple) and _mixes_numbers(column):
            column = np.asarray(column)
        return pl.Series(name, column)
    except (*POLARS_ERRORS, TypeError, ValueError) as error:
        raise DataError(
            f"column {name!r} holds values of several types or of one that cannot be read "
            f"({_first_line(error)[:120]}); convert it to numbers or strings"
        ) from error


def _mixes_numbers(column: Sequence[Any]) -> bool:
    """Return whether integers and fractions meet: polars wants one type, NumPy finds it."""
    kinds = set(map(type, column))
    numbers = (int, float, np.integer, np.floating)
    return len(kinds) > 1 and all(issubclass(k, numbers) and k is not bool for k in kinds)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
