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
_TABLES = (
    "give a pandas, polars or pyarrow frame, an array, a sparse matrix, a list of tuples or a dict"
)


def to_polars(data: Any, options: LoadOptions | None = None) -> pl.DataFrame:
    """Return any table in memory as a polars frame."""
    if isinstance(data, pl.LazyFrame):
        data = _collect(data)
    if isinstance(data, pl.DataFrame):
        return data
    if type(data).__module__.startswith("scipy.sparse"):
        return _from_sparse(data, options)
    if isinstance(data, np.ndarray):
        return _from_array(data)
    if isinstance(data, Mapping):
        return _from_mapping(data, options)
    if isinstance(data, tuple) and _are_columns(data):
        return _from_columns({str(i): column for i, column in enumerate(data)}, "tuple")
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
    ratings = _series("rating", y)
    names = ["user", "item"] if frame.columns == ["0", "1"] else frame.columns
    return frame.rename(dict(zip(frame.columns, names, strict=True))).with_columns(ratings)


def _collect(lazy: pl.LazyFrame) -> pl.DataFrame:
    try:
        frame = lazy.collect()
        assert isinstance(frame, pl.DataFrame)
        return frame
    except (*POLARS_ERRORS, OSError) as error:
        raise DataError(
            f"the LazyFrame cannot be collected ({_first_line(error)}); correct its query"
        ) from error


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
            f"data of type {type(data).__name__} is not a table that can be read; {_TABLES}"
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

    Entries that are all equal only mark pairs, unless an option says that they are ratings.
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
    pairs = {"user": users, "item": items}
    marks = len(values) > 0 and bool(np.all(values == values[0]))
    if marks and not _rated(options) and not _implicit(options):
        return _frame(pairs)
    return _frame(pairs | {"weight" if _implicit(options) else "rating": values})


def _rated(options: LoadOptions | None) -> bool:
    """Return whether an option makes sense for ratings only."""
    if options is None:
        return False
    values = (options.rating, options.scale, options.bins, options.min_rating)
    return any(value is not None for value in values)


def _implicit(options: LoadOptions | None) -> bool:
    return options is not None and options.implicit


def _from_array(array: np.ndarray[Any, Any]) -> pl.DataFrame:
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


def _are_columns(data: tuple[Any, ...]) -> bool:
    """Return whether these are (users, items, ratings): lists, arrays or series of cells."""
    if len(data) not in _WIDTHS:
        return False
    for part in data:
        if isinstance(part, list):
            if any(isinstance(cell, list | tuple | Mapping) for cell in part):
                return False
        elif len(getattr(part, "shape", ())) != 1:
            return False
    return True


def _from_columns(columns: Mapping[Any, Any], noun: str) -> pl.DataFrame:
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns of the {noun} are not equally long: {lengths}")
    return _frame({str(name): column for name, column in columns.items()})


def _from_mapping(data: Mapping[Any, Any], options: LoadOptions | None) -> pl.DataFrame:
    """Return {user: {item: rating}}, {user: [items]}, or columns by name."""
    inner = [isinstance(value, Mapping) for value in data.values()]
    if data and all(inner):
        rows = [(u, i, rating) for u, rated in data.items() for i, rating in rated.items()]
        names = ["user", "item", "weight" if _implicit(options) else "rating"]
        return _from_rows(rows).rename(dict(zip("012", names, strict=True)))
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
            preview = str(column)[:40]
            raise DataError(f"under {name!r} the dict holds {preview!r}, not a column; {_DICTS}")
    has_roles = options is not None and not (options.user is None and options.item is None)
    if not has_roles and not _names_columns(data):
        return _from_rows([(user, item) for user, items in data.items() for item in items])
    return _from_columns(data, "dict")


def _names_columns(data: Mapping[Any, Any]) -> bool:
    """Return whether a key is a usual name of a column; otherwise keys are users."""
    names = [key for key in data if isinstance(key, str)]
    return any(find_name(candidates, names) is not None for candidates in COLUMN_NAMES.values())


def _from_rows(rows: Sequence[Any]) -> pl.DataFrame:
    if not rows:
        raise DataError(f"it is empty: there are no ratings; give rows of {_ROWS}")
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        odd = next((n for n, row in enumerate(rows) if set(row) != set(names)), None)
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
            column = _for_polars(column)
        elif _are_numbers(column):
            column = np.asarray(column)
        elif not isinstance(column, list | tuple | pl.Series) and hasattr(column, "to_numpy"):
            column = _for_polars(column.to_numpy())
        series = pl.Series(name, column)
    except (*POLARS_ERRORS, TypeError, ValueError) as error:
        raise DataError(
            f"column {name!r} holds values of several types or of one that cannot be read "
            f"({_first_line(error)[:120]}); convert it to numbers or strings"
        ) from error
    return series


def _for_polars(column: np.ndarray[Any, Any]) -> Any:
    if column.dtype == object:
        values = column.tolist()
        return np.asarray(values) if _are_numbers(values) else values
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]")
    return np.ascontiguousarray(np.char.decode(column) if column.dtype.kind == "S" else column)


def _are_numbers(column: Any) -> bool:
    """Return whether integers and fractions meet: polars wants one type, NumPy finds it."""
    kinds = set(map(type, column)) if isinstance(column, list | tuple) else set()
    return len(kinds) > 1 and all(
        issubclass(kind, int | float | np.integer | np.floating) and kind is not bool
        for kind in kinds
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
