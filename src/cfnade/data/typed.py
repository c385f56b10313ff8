"""Typed columns (of a Parquet file or a frame) turned into ids, ratings and times, each checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data import casts
from cfnade.data.casts import Where
from cfnade.errors import DataError

_WHOLE = 2.0**53  # beyond it a float no longer tells neighbours apart


def ids(column: pl.Series, role: str, where: Where) -> pl.Series:
    """Integers or texts as they are; floats if they are whole, as a table with gaps makes them."""
    what = f"{role} id"
    column = _plain(column)
    casts.refuse_missing(column, what, where, _FILL)
    if column.dtype.is_integer():
        return _int64(column, what, where)
    if column.dtype == pl.String:
        blank = column.str.strip_chars() == ""
        if blank.any():
            raise DataError(f"{where(casts.first(blank))}: the {what} is empty; {_FILL}")
        return column
    if column.dtype.is_float() or column.dtype.is_decimal():
        values = casts.finite(column.cast(pl.Float64).to_numpy(), what, where)
        bad = (values != np.floor(values)) | (np.abs(values) > _WHOLE)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"{where(row)}: {what} {values[row]} is not a whole number; give ids as integers "
                "or strings"
            )
        return pl.Series(values.astype(np.int64))
    raise DataError(_wrong_type(what, column, where, "integers or strings"))


def numbers(column: pl.Series, where: Where) -> npt.NDArray[np.float64]:
    """Ratings. Returns (n,)."""
    column = _plain(column)
    casts.refuse_missing(column, "rating", where, _FILL)
    if column.dtype == pl.String:
        return casts.numbers(column, where)
    if not (column.dtype.is_numeric() or column.dtype.is_decimal()):
        raise DataError(_wrong_type("rating", column, where, "numbers"))
    if column.dtype == pl.Float32:
        # 3.7 is stored as 3.70000005: the shortest decimal that rounds to it is what was meant
        column = column.cast(pl.String)
    return casts.finite(column.cast(pl.Float64).to_numpy(), "rating", where)


def times(column: pl.Series, where: Where, exact: bool = False) -> npt.NDArray[np.int64]:
    """Seconds since 1970, from dates, numbers or texts. Returns (n,).

    If `exact`, integers are seconds however large they are.
    """
    column = _plain(column)
    casts.refuse_missing(column, "time", where, casts.LEAVE_OUT)
    if column.dtype == pl.String:
        return casts.times(column, where)
    if column.dtype == pl.Date:
        return column.to_physical().to_numpy().astype(np.int64) * 86_400
    if isinstance(column.dtype, pl.Datetime):
        unit = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.dtype.time_unit]
        whole: npt.NDArray[np.int64] = column.to_physical().to_numpy() // unit
        return whole
    if not (column.dtype.is_numeric() or column.dtype.is_decimal()):
        raise DataError(_wrong_type("time", column, where, "dates, numbers or texts"))
    if exact and column.dtype.is_signed_integer():
        return column.cast(pl.Int64).to_numpy()
    fits = column.dtype.is_integer() and column.dtype != pl.UInt64
    values = column.cast(pl.Int64 if fits else pl.Float64).to_numpy()
    return casts.seconds(casts.finite(values, "time", where), where)


def texts(column: pl.Series) -> pl.Series | None:
    """Titles or genres, empty where unknown; None if these are not texts."""
    column = _plain(column)
    return column.fill_null("") if column.dtype == pl.String else None


def _plain(column: pl.Series) -> pl.Series:
    """Without the packaging of repeated texts."""
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    return column


def _int64(column: pl.Series, what: str, where: Where) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    if whole.null_count():
        row = casts.first(whole.is_null())
        raise DataError(
            f"{where(row)}: {what} {column[row]} does not fit into 64 bits; give ids as strings"
        )
    return whole


def _wrong_type(what: str, column: pl.Series, where: Where, allowed: str) -> str:
    value: Any = column[0] if len(column) else None
    return (
        f"{where(0)}: {what} {str(value)[:40]!r} is of type {column.dtype}; this column must hold "
        f"{allowed}: convert it, or name another column"
    )


_FILL = "remove the row or fill it in"
