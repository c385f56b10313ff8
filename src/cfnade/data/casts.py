"""Texts of a column turned into ids, ratings and times, each checked; errors say where and what."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.errors import DataError

Where = Callable[[int], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Above each bound a time cannot be meant in the unit before: seconds, then milli, micro, nano.
_UNITS = ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3))


def ids(texts: pl.Series, role: str, where: Where) -> pl.Series:
    """Integers if every id is written as one (no leading zeros, no plus), else the texts."""
    refuse_missing(texts, f"{role} id", where)
    whole = _whole(texts)
    if whole is None and bool(texts.str.starts_with(" ").any() or texts.str.ends_with(" ").any()):
        whole = _whole(texts.str.strip_chars())  # "1, 2, 5"
    if whole is not None:
        return whole
    blank = texts.str.strip_chars() == ""
    if blank.any():
        raise DataError(_missing(f"{role} id", where(first(blank))))
    return texts


def _whole(texts: pl.Series) -> pl.Series | None:
    """The texts as integers if that loses nothing: written again they would be the same."""
    whole = texts.cast(pl.Int64, strict=False)
    if whole.null_count():
        return None
    values = whole.to_numpy()
    if values.min() < 0:
        return whole if bool((whole.cast(pl.String) == texts).all()) else None
    # Zeros in front and a plus only lengthen, so it is enough to compare the total length.
    length, bound = len(values), 10
    while bound <= values.max():
        length += int(np.count_nonzero(values >= bound))
        bound *= 10
    return whole if int(texts.str.len_bytes().cast(pl.Int64).sum()) == length else None


def numbers(texts: pl.Series, where: Where) -> npt.NDArray[np.float64]:
    """Ratings. Returns (n,)."""
    refuse_missing(texts, "rating", where)
    values = texts.cast(pl.Float64, strict=False)
    if values.null_count():
        values = texts.str.strip_chars().cast(pl.Float64, strict=False)
    if values.null_count():
        row = first(values.is_null())
        raise DataError(f"{where(row)}: {_not_a_number(str(texts[row]))}")
    return finite(values.to_numpy(), "rating", where)


def finite(values: npt.NDArray[Any], what: str, where: Where) -> npt.NDArray[Any]:
    """The values, none of them NaN or infinite."""
    fine = np.isfinite(values)
    if not fine.all():
        row = int(np.argmin(fine))
        raise DataError(
            f"{where(row)}: {what} {values[row]} is not a finite number; correct or remove it"
        )
    return values


def times(texts: pl.Series, where: Where) -> npt.NDArray[np.int64]:
    """Seconds since 1970, from numbers or ISO dates (UTC unless they say otherwise)."""
    refuse_missing(texts, "time", where, LEAVE_OUT)
    for kind in (pl.Int64, pl.Float64):
        values = texts.cast(kind, strict=False)
        if values.null_count():
            values = texts.str.strip_chars().cast(kind, strict=False)
        if values.null_count() == 0:
            return seconds(finite(values.to_numpy(), "time", where), where)
    return _from_iso(texts, where)


def seconds(values: npt.NDArray[Any], where: Where) -> npt.NDArray[np.int64]:
    """Whole seconds of times that may be in milli-, micro- or nanoseconds."""
    high = float(values.max(initial=0))
    for bound, unit in _UNITS:
        if high > bound:
            mixed = (values > 0) & (values <= bound)
            if mixed.any():
                row = int(np.argmax(mixed))
                raise DataError(
                    f"{where(row)}: time {values[row]} and time {high:.0f} cannot be in the same "
                    f"unit; {LEAVE_OUT}"
                )
            values = values // unit
            break
    if np.abs(values).max(initial=0) >= 2.0**62:
        raise DataError(f"{where(int(np.abs(values).argmax()))}: time is out of range; {LEAVE_OUT}")
    return values.astype(np.int64)


def refuse_missing(
    column: pl.Series, what: str, where: Where, cure: str = "remove the line or fill it in"
) -> None:
    """Raise at the first missing value."""
    if column.null_count():
        raise DataError(_missing(what, where(first(column.is_null())), cure))


def _from_iso(texts: pl.Series, where: Where) -> npt.NDArray[np.int64]:
    days = texts.str.to_date("%Y-%m-%d", strict=False)
    if days.null_count() == 0:
        return days.to_physical().to_numpy().astype(np.int64) * 86_400
    distinct = texts.unique()
    parsed = pl.Series([_iso_seconds(text) for text in distinct.to_list()], dtype=pl.Int64)
    values = texts.replace_strict(distinct, parsed, return_dtype=pl.Int64)
    if values.null_count():
        # among numbers the word is to blame, among dates the number
        wrong = values.is_null() & texts.cast(pl.Float64, strict=False).is_null()
        row = first(wrong if wrong.any() else values.is_null())
        raise DataError(
            f"{where(row)}: time {_shown(str(texts[row]))} is neither a number nor an ISO date "
            f"such as 2005-09-06; {LEAVE_OUT}"
        )
    return values.to_numpy()


def _iso_seconds(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        return int((moment - _EPOCH).total_seconds() // 1)
    except (ValueError, OverflowError):
        return None


def first(mask: pl.Series) -> int:
    """The position of the first true value."""
    found = mask.arg_max()
    return 0 if found is None else found


def _missing(what: str, place: str, cure: str = "remove the line or fill it in") -> str:
    return f"{place}: the {what} is missing; {cure}"


def _not_a_number(text: str) -> str:
    if "," in text:
        return f"rating {_shown(text)} is not a number; write decimals with a point, as in 3.5"
    return (
        f"rating {_shown(text)} is not a number; correct or remove the line, or say which column "
        "holds ratings with rating="
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


LEAVE_OUT = 'correct it, name another column with time=, or leave times out with time="-"'
