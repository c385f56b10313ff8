"""Columns, as texts or typed, turned into ids, ratings and times, each checked.

Errors say where and what: `where` turns a row's number into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.roles import Roles
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.exceptions import DataError

Where = Callable[[int], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
# Above each bound a time cannot be meant in the unit before: seconds, then milli, micro, nano.
_UNITS = ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3))
_EXACT = 2.0**53  # beyond it a float no longer tells neighbours apart
_LIGHTEST, _HEAVIEST = 1e-30, 1e30  # of weights: they and their sums fit into 32 bits
_FILL = "remove that row or fill it in"
_LEAVE_OUT = 'correct it, name another column with time=, or leave times out with time="-"'


@dataclass(frozen=True)
class Columns:
    """What a reader hands to the door. Nothing is missing in it; nothing else is promised."""

    users: npt.NDArray[Any] | pl.Series  # (n,) integers or strings
    items: npt.NDArray[Any] | pl.Series
    values: npt.NDArray[Any]  # (n,) numbers
    times: npt.NDArray[Any] | None = None  # (n,) seconds since 1970
    titles: Mapping[Any, str] = field(default_factory=dict)  # by raw item id
    genres: Mapping[Any, str] = field(default_factory=dict)
    scale: Scale | None = None  # if the source itself states it
    source: str = ""
    where: Where = "row {}".format
    """Says where a rating stands ("ratings.dat:17"), for messages; counts from 0."""
    weights: npt.NDArray[np.float64] | None = None  # (n,) of interactions
    assumed: str = ""
    """What the reader took for granted, for people to know."""

    @property
    def implicit(self) -> bool:
        """Whether these are interactions."""
        return self.scale == INTERACTIONS

    def as_interactions(self) -> Columns:
        """The same without ratings."""
        ones = np.ones(len(self.values), np.uint8)
        return self if self.implicit else replace(self, values=ones, scale=INTERACTIONS)

    def with_texts(
        self, items: Iterable[str], titles: Iterable[str | None], genres: Iterable[str | None]
    ) -> Columns:
        """With titles and genres of items by their ids as written; where unknown, empty or None."""
        whole = isinstance(self.items, pl.Series) and self.items.dtype.is_integer()
        ids = [int(raw) if whole and raw.isdecimal() else raw for raw in items]
        # a source without titles or genres gives none at all
        titled, classed = (zip(ids, texts, strict=False) for texts in (titles, genres))
        return replace(
            self,
            titles={raw: text for raw, text in titled if text},
            genres={raw: text for raw, text in classed if text},
        )


def columns_of(
    roles: Roles,
    column: Callable[[int], tuple[pl.Series, Where]],
    ids: Callable[[pl.Series, str, Where], pl.Series],
    texts: Mapping[str, pl.Series],
    *,
    scale: Scale | None = None,
    **known: Any,
) -> Columns:
    """Columns of a table by their roles, each checked; `texts` may be titles and genres.

    `column` gives one and its places in words, `ids` reads ids. A table that states its `scale` is
    one that we wrote; `known` is what else its reader knows.
    """
    (users, at_user), (items, at_item) = column(roles.user), column(roles.item)
    item_ids, own = ids(items, "item", at_item), scale is not None
    described: dict[str, Any] = {
        kind: by_item(item_ids, text, sure=own) for kind, text in texts.items()
    }
    return Columns(
        users=ids(users, "user", at_user),
        items=item_ids,
        values=(
            np.ones(len(item_ids), np.uint8)
            if roles.rating is None
            else numbers(*column(roles.rating))
        ),
        times=None if roles.time is None else times(*column(roles.time), exact=own),
        scale=INTERACTIONS if roles.rating is None else scale,
        weights=None if roles.weight is None else counts(*column(roles.weight)),
        **described,
        **known,
    )


# -- ids ------------------------------------------------------------------------------------------


def text_ids(texts: pl.Series, role: str, where: Where) -> pl.Series:
    """Integers if every id is written as one (no leading zeros, no plus), else the texts."""
    refuse_missing(texts, f"{role} id", where)
    whole = _whole(texts)
    if whole is None and bool(texts.str.starts_with(" ").any() or texts.str.ends_with(" ").any()):
        whole = _whole(texts.str.strip_chars())  # "1, 2, 5"
    return _not_blank(texts, role, where) if whole is None else whole


def typed_ids(column: pl.Series, role: str, where: Where) -> pl.Series:
    """Integers or texts as they are; floats if they are whole, as a table with gaps makes them."""
    what, column = f"{role} id", _unpacked(column)
    refuse_missing(column, what, where)
    if column.dtype == pl.String:
        return _not_blank(column, role, where)
    if column.dtype.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        if whole.null_count():
            row = _first(whole.is_null())
            raise DataError(
                f"{where(row)}: {what} {column[row]} does not fit into 64 bits; give ids as strings"
            )
        return whole
    if not (column.dtype.is_float() or column.dtype.is_decimal()):
        raise DataError(_wrong_type(what, column, where, "integers or strings"))
    values = finite(column.cast(pl.Float64).to_numpy(), what, where)
    bad = (values != np.floor(values)) | (np.abs(values) > _EXACT)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{where(row)}: {what} {values[row]} is not a whole number; give ids as integers or "
            "strings"
        )
    return pl.Series(values.astype(np.int64))


def refuse_missing(column: pl.Series, what: str, where: Where, cure: str = _FILL) -> None:
    """Raise at the first missing value."""
    if column.null_count():
        raise DataError(f"{where(_first(column.is_null()))}: the {what} is missing; {cure}")


def _not_blank(texts: pl.Series, role: str, where: Where) -> pl.Series:
    blank = texts.str.strip_chars() == ""
    if blank.any():
        raise DataError(f"{where(_first(blank))}: the {role} id is missing; {_FILL}")
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


# -- ratings, times and texts ---------------------------------------------------------------------


def numbers(column: pl.Series, where: Where, what: str = "rating") -> npt.NDArray[np.float64]:
    """Ratings, or weights. Returns (n,)."""
    column = _unpacked(column)
    refuse_missing(column, what, where)
    if not (column.dtype.is_numeric() or column.dtype == pl.String):
        raise DataError(_wrong_type(what, column, where, "numbers"))
    if column.dtype == pl.Float32:
        # 3.7 is stored as 3.70000005: the shortest decimal that rounds to it is what was meant
        column = column.cast(pl.String)
    values = as_numbers(column)
    if values.null_count():
        row = _first(values.is_null())
        text = str(column[row])
        cure = (
            f"correct or remove the line, or say which column holds {what}s with {what}= "
            '("-" if none does)'
        )
        if "," in text:
            cure = "write decimals with a point, as in 3.5"
        raise DataError(f"{where(row)}: {what} {_shown(text)} is not a number; {cure}")
    return finite(values.to_numpy(), what, where)


def counts(column: pl.Series, where: Where) -> npt.NDArray[np.float64]:
    """Weights of interactions, each above 0. Returns (n,)."""
    values = numbers(column, where, "weight")
    wrong = (values < _LIGHTEST) | (values > _HEAVIEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        limit = "above 0" if values[row] <= 0 else f"in {_LIGHTEST:g}..{_HEAVIEST:g}"
        raise DataError(
            f"{where(row)}: weight {values[row]:g}: a weight must be {limit}; correct or remove "
            'the line, name another column with weight=, or leave weights out with weight="-"'
        )
    return values


def times(column: pl.Series, where: Where, exact: bool = False) -> npt.NDArray[np.int64]:
    """Seconds since 1970, from numbers, dates or texts of either (UTC unless they say otherwise).

    If `exact`, integers are seconds however large they are. Returns (n,).
    """
    column = _unpacked(column)
    refuse_missing(column, "time", where, _LEAVE_OUT)
    if column.dtype == pl.Date:
        return column.to_physical().to_numpy().astype(np.int64) * _DAY
    if isinstance(column.dtype, pl.Datetime):
        unit = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.dtype.time_unit]
        whole: npt.NDArray[np.int64] = column.to_physical().to_numpy() // unit
        return whole
    if not (column.dtype.is_numeric() or column.dtype == pl.String):
        raise DataError(_wrong_type("time", column, where, "dates, numbers or texts"))
    if exact and column.dtype.is_signed_integer():
        return column.cast(pl.Int64).to_numpy()
    fractions = column.dtype.is_float() or column.dtype.is_decimal()
    for kind in (pl.Float64,) if fractions else (pl.Int64, pl.Float64):
        values = as_numbers(column, kind)
        if not values.null_count():
            return _seconds(finite(values.to_numpy(), "time", where), where)
    return _from_iso(column, where)


def titles(column: pl.Series) -> pl.Series | None:
    """Titles or genres, empty where unknown; None if these are not texts."""
    column = _unpacked(column)
    return column.fill_null("") if column.dtype == pl.String else None


def by_item(items: pl.Series, column: pl.Series, sure: bool = False) -> dict[Any, str]:
    """Texts of items, if the column is about items or that is `sure`: "title" may as well be a
    review's.
    """
    texts = titles(column)
    if texts is None:
        return {}
    pairs = pl.DataFrame({"item": items, "text": texts}).filter(texts != "").unique()
    if not sure and pairs["item"].n_unique() < pairs.height:
        return {}
    return dict(pairs.iter_rows())


def _unpacked(column: pl.Series) -> pl.Series:
    """Without the packaging of repeated texts."""
    packed = isinstance(column.dtype, pl.Categorical | pl.Enum)
    return column.cast(pl.String) if packed else column


def as_numbers(column: pl.Series, kind: type[pl.DataType] = pl.Float64) -> pl.Series:
    """The column as numbers, null where it is none. Blanks around a text are forgiven; a comma with
    one or two digits behind it is a decimal point, one with three may stand between thousands."""
    values = column.cast(kind, strict=False)
    if values.null_count() and column.dtype == pl.String:
        plain = column.str.strip_chars().str.replace(r"^([+-]?\d*),(\d\d?)$", "${1}.$2")
        values = plain.cast(kind, strict=False)
    return values


def finite(values: npt.NDArray[Any], what: str, where: Where) -> npt.NDArray[Any]:
    """The values; raise at the first that is infinite or not a number."""
    fine = np.isfinite(values)
    if not fine.all():
        row = int(np.argmin(fine))
        raise DataError(
            f"{where(row)}: {what} {values[row]} is not a finite number; correct or remove it"
        )
    return values


def _seconds(values: npt.NDArray[Any], where: Where) -> npt.NDArray[np.int64]:
    """Whole seconds of times that may be in milli-, micro- or nanoseconds."""
    high = float(values.max(initial=0))
    for bound, unit in _UNITS:
        if high > bound:
            mixed = (values > 0) & (values <= bound)
            if mixed.any():
                row = int(np.argmax(mixed))
                raise DataError(
                    f"{where(row)}: time {values[row]} and time {high:.0f} cannot be in the same "
                    f"unit; {_LEAVE_OUT}"
                )
            values = values // unit
            break
    size = np.abs(values)
    if size.max(initial=0) >= 2.0**62:
        raise DataError(f"{where(int(size.argmax()))}: time is out of range; {_LEAVE_OUT}")
    return values.astype(np.int64)


def _from_iso(texts: pl.Series, where: Where) -> npt.NDArray[np.int64]:
    days = texts.str.to_date("%Y-%m-%d", strict=False)
    if days.null_count() == 0:
        return days.to_physical().to_numpy().astype(np.int64) * _DAY
    distinct = texts.unique()
    parsed = pl.Series([iso_seconds(text) for text in distinct.to_list()], dtype=pl.Int64)
    values = texts.replace_strict(distinct, parsed, return_dtype=pl.Int64)
    if values.null_count():
        row, fault = _odd_time(texts, values)
        raise DataError(f"{where(row)}: time {_shown(str(texts[row]))} {fault}; {_LEAVE_OUT}")
    return values.to_numpy()


def _odd_time(texts: pl.Series, dates: pl.Series) -> tuple[int, str]:
    """The row to blame where not all are dates, and for what."""
    numeric = texts.str.strip_chars().cast(pl.Float64, strict=False).is_not_null()
    neither = dates.is_null() & ~numeric
    if neither.any():
        return _first(neither), "is neither a number nor an ISO date such as 2005-09-06"
    odd = ~numeric if 2 * int(numeric.sum()) > len(texts) else numeric
    return _first(odd), "is not written like the others (numbers, or ISO dates)"


def iso_seconds(text: str) -> int | None:
    """Seconds since 1970 of an ISO date, None if it is none."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        return int((moment - _EPOCH).total_seconds() // 1)
    except (ValueError, OverflowError):
        return None


# -- words ----------------------------------------------------------------------------------------


def _first(mask: pl.Series) -> int:
    """The position of the first true value."""
    return mask.arg_max() or 0


def _wrong_type(what: str, column: pl.Series, where: Where, allowed: str) -> str:
    value: Any = column[0] if len(column) else None
    return (
        f"{where(0)}: {what} {str(value)[:40]!r} is of type {column.dtype}; this column must hold "
        f"{allowed}: convert it, or name another column"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
