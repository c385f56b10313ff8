"""The result of a reader: a table with canonical columns, parsed from texts or typed values.

The functions of the columns return the values and mark the cells that they cannot read. A reader
raises at the first of them, with its place, or leaves those rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.scale import Scale
from cfnade.exceptions import DataError
from cfnade.utils.text import option

Locate = Callable[[int], str]
"""Returns the place of a row for messages, such as "ratings.csv:17"."""
REPLACEMENT = "\ufffd"
"""Stands where bytes of a damaged text could not be decoded."""

_DAY = 86_400
_UNITS = ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3))  # above a bound: nano-, micro-, milli-
_EXACT = 2.0**53  # beyond it a float no longer distinguishes neighbors
_MIN_WEIGHT, _MAX_WEIGHT = 1e-30, 1e30  # they and their sums fit into 32 bits
_FILL = "remove that row or fill it in"
_DATE = "a number nor a date such as 2005-09-06"

_DATES = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%m %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y"),
    *("%d. %B %Y", "%a, %d %b %Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %H:%M:%S")
_SWAPPED = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y", "%d/%m/%y": "%m/%d/%y"}
_GERMAN = "januar jänner februar märz mär mrz mai juni juli oktober okt dezember dez"
_ENGLISH = "January January February March Mar Mar May June July October Oct December Dec"
_SAMPLE = 200  # distinct dates that a format is tried on first


def _hint(first: str = "correct it", role: str = "time") -> str:
    return f"{first}, name another column with {option(role)}, or give {option(role, False)}"


class DateError(DataError):
    """A column of times whose type or format is unknown, or ambiguous."""


@dataclass(frozen=True)
class Parsed:
    """Values of a column, and which cells have none."""

    values: pl.Series
    bad: pl.Series | None = None  # (n,) bool; None if every cell was read
    explain: Callable[[int], tuple[str, str]] | None = None
    """Returns what is wrong with a bad cell, and what to do."""


@dataclass(frozen=True)
class RawTable:
    """The result of a reader: canonical columns, no cell missing, numbers finite.

    The columns are user and item (integers or strings), rating, or weight or neither for
    interactions, and perhaps time (seconds since 1970). NumPy arrays enter without a copy.
    """

    frame: pl.DataFrame
    locate: Locate = "row {}".format
    """Says where a row stands in the source; rows count from 0."""
    label: str = ""  # what messages call the source
    description: str = ""  # what was recognized and skipped
    assumed: str = ""  # what the reader assumed without being told
    scale: Scale | None = None  # if the source states it
    source: str = ""  # the name of a published data set
    item_table: pl.DataFrame | None = None  # item, title, genres
    rating_column: str | int | None = None  # as the caller may name it, for advice

    @classmethod
    def from_arrays(
        cls,
        users: Any,
        items: Any,
        ratings: Any = None,
        *,
        times: Any = None,
        weights: Any = None,
        **attributes: Any,
    ) -> RawTable:
        """Return the table of arrays or series of equal length; cells are checked."""
        columns = {"user": users, "item": items, "rating": ratings, "weight": weights}
        columns = {k: v for k, v in (columns | {"time": times}).items() if v is not None}
        lengths = {role: len(column) for role, column in columns.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{n:,} of {role}" for role, n in lengths.items())
            raise DataError(f"the columns have different lengths: {counts}")
        series = {role: pl.Series(role, column) for role, column in columns.items()}
        locate = attributes.get("locate", cls.locate)
        parsed = parse_or_raise(series, lambda row, _: locate(row), exact_times=True)
        return cls(parsed.frame, **attributes)

    def __len__(self) -> int:
        return self.frame.height

    @property
    def implicit(self) -> bool:
        """Whether the rows are interactions."""
        return "rating" not in self.frame.columns

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a column as an array, None if there is none."""
        return self.frame[name].to_numpy() if name in self.frame.columns else None


class ParsedColumns(NamedTuple):
    """The columns of a table by role, and which rows have a cell that cannot be read."""

    columns: dict[str, Parsed]
    frame: pl.DataFrame
    bad: pl.Series | None
    note: str = ""
    """What was left out, for the user to know."""

    def fault(self, row: int | None = None) -> tuple[int, str, str, str]:
        """Return row, role, reason and remedy of the first bad cell, of all rows or of one."""
        for role, column in self.columns.items():
            if column.bad is None or column.explain is None:
                continue
            place = first_true(column.bad) if row is None else row
            if column.bad[place]:
                return place, role, *column.explain(place)
        raise AssertionError("no cell is bad")


def parse_columns(
    columns: Mapping[str, pl.Series],
    locate: Callable[[int, str], str],
    *,
    is_text: bool = False,
    exact_times: bool = False,
    time_required: bool = True,
) -> ParsedColumns:
    """Parse the column of each role; `locate` says where the cell of a row and role stands.

    Times in no known format are left out unless they are required.
    """
    parsed, note = dict[str, Parsed](), ""
    bad: pl.Series | None = None
    for role, column in columns.items():

        def locate_cell(row: int, role: str = role) -> str:
            return locate(row, role)

        if isinstance(column.dtype, pl.Categorical | pl.Enum | pl.Null):
            column = column.cast(pl.String)
        if role in ("user", "item"):
            parsed[role] = parse_ids(column, role, locate_cell, is_text=is_text)
        elif role in ("rating", "weight"):
            parsed[role] = parse_numbers(column, locate_cell, role)
        else:
            try:
                parsed[role] = parse_times(column, locate_cell, exact=exact_times)
            except DateError as error:
                if time_required:
                    raise
                note = f"times are ignored: {error}"
                continue
        if (marked := parsed[role].bad) is not None:
            bad = marked if bad is None else bad | marked
    frame = pl.DataFrame({role: column.values for role, column in parsed.items()})
    return ParsedColumns(parsed, frame, bad, note)


def parse_or_raise(
    columns: Mapping[str, pl.Series], locate: Callable[[int, str], str], **options: bool
) -> ParsedColumns:
    """Parse the column of each role; raise at the first bad cell."""
    parsed = parse_columns(columns, locate, **options)
    if parsed.bad is not None:
        row, role, reason, remedy = parsed.fault()
        raise DataError(f"{locate(row, role)}: {reason}; {remedy}")
    return parsed


def describe_items(
    frame: pl.DataFrame, texts: Mapping[str, pl.Series], *, trusted: bool = False
) -> pl.DataFrame | None:
    """Return titles and genres by item, from columns of the same rows; None without any.

    A title that differs between rows of one item is a review's and is left out, unless `trusted`.
    """
    described = None
    for kind, column in texts.items():
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = column.cast(pl.String)
        if column.dtype != pl.String:
            continue
        pairs = pl.DataFrame({"item": frame["item"], kind: column})
        pairs = pairs.filter(pl.col(kind).fill_null("") != "").unique(maintain_order=True)
        if not trusted and pairs["item"].n_unique() < pairs.height:
            continue
        pairs = pairs.unique("item", keep="last", maintain_order=True)
        if described is None:
            described = pairs
        else:
            described = described.join(pairs, on="item", how="full", coalesce=True)
    return described


# -- ids ------------------------------------------------------------------------------------------


def parse_ids(column: pl.Series, role: str, locate: Locate, *, is_text: bool) -> Parsed:
    """Parse ids: integers or strings.

    Texts become integers if every id is written as one (no leading zeros, no plus). In typed
    columns floats become integers if they are whole, as a table with gaps makes them.
    """
    noun = f"{role} id"
    if not is_text and column.dtype != pl.String:
        return _numeric_ids(column, noun, locate)
    texts = column
    integers = _to_integers(texts) if is_text else None
    if is_text and integers is None and bool(texts.str.contains(r"^[ \t]|[ \t]$").any()):
        texts = texts.str.strip_chars(" \t")  # "1, 2, 5", or a blank behind a name
        integers = _to_integers(texts)
    if integers is not None:
        return Parsed(integers)
    bad = (texts.str.strip_chars() == "").fill_null(value=True)
    if is_text:
        bad |= texts.str.contains(REPLACEMENT, literal=True).fill_null(value=False)

    def explain(row: int) -> tuple[str, str]:
        if REPLACEMENT in (texts[row] or ""):
            return f"the {noun} holds damaged characters", "correct it"
        return f"the {noun} is missing", _FILL

    return Parsed(texts, bad, explain) if bool(bad.any()) else Parsed(texts)


def _numeric_ids(column: pl.Series, noun: str, locate: Locate) -> Parsed:
    dtype = column.dtype
    if not dtype.is_numeric():
        raise _wrong_type(noun, column, locate, "integers or strings")
    if dtype.is_integer():
        integers = column if dtype != pl.UInt64 else column.cast(pl.Int64, strict=False)
        bad = integers.is_null()
    else:
        values = column.cast(pl.Float64)
        fits = values.is_finite() & (values == values.floor()) & (values.abs() <= _EXACT)
        bad = ~fits.fill_null(value=False)
        integers = values.zip_with(~bad, pl.Series([0.0])).cast(pl.Int64)

    def explain(row: int) -> tuple[str, str]:
        value = column[row]
        if value is None:
            return f"the {noun} is missing", _FILL
        if dtype.is_integer():
            return f"{noun} {value} does not fit into 64 bits", "give ids as strings"
        if not np.isfinite(float(value)):
            return f"{noun} {value} is not a finite number", "correct or remove it"
        return f"{noun} {value} is not a whole number", "give ids as integers or strings"

    return Parsed(integers, bad, explain) if bool(bad.any()) else Parsed(integers)


def _to_integers(texts: pl.Series) -> pl.Series | None:
    """Return the texts as integers if each would be written the same again."""
    integers = texts.cast(pl.Int64, strict=False)
    if integers.null_count():
        return None
    values = integers.to_numpy()
    if len(values) == 0 or values.min() < 0:
        return integers if bool((integers.cast(pl.String) == texts).all()) else None
    # Leading zeros and a plus only lengthen, so comparing the total length is enough.
    length, bound = len(values), 10
    while bound <= values.max():
        length += int(np.count_nonzero(values >= bound))
        bound *= 10
    return integers if int(texts.str.len_bytes().cast(pl.Int64).sum()) == length else None


# -- ratings and weights --------------------------------------------------------------------------


def parse_numbers(column: pl.Series, locate: Locate, noun: str) -> Parsed:
    """Parse ratings, or weights of interactions, each above 0; true and false are 1 and 0."""
    if column.dtype == pl.Boolean:
        column = column.cast(pl.UInt8)
    if not (column.dtype.is_numeric() or column.dtype == pl.String):
        raise _wrong_type(noun, column, locate, "numbers")
    texts = column
    if column.dtype == pl.Float32:
        # 3.7 is stored as 3.70000005: the shortest decimal that rounds to it is what was meant
        column = column.cast(pl.String)
    values = to_numbers(column)
    if values.null_count() and column.dtype == pl.String:
        words = column.str.strip_chars().str.to_lowercase()
        if bool(words.drop_nulls().is_in(["true", "false"]).all()):
            values = words.replace_strict({"true": 1.0, "false": 0.0}, return_dtype=pl.Float64)
    fine = values.is_finite()
    if noun == "weight":
        fine &= values.is_between(_MIN_WEIGHT, _MAX_WEIGHT)
    fine = fine.fill_null(value=False)

    def explain(row: int) -> tuple[str, str]:
        text, value = texts[row], values[row]
        if text is None:
            return f"the {noun} is missing", _FILL
        if value is not None and np.isfinite(value):
            limit = "above 0" if value <= 0 else f"in {_MIN_WEIGHT:g}..{_MAX_WEIGHT:g}"
            fault = f"weight {value:g}: a weight must be {limit}"
            return fault, _hint("correct or remove the line", "weight")
        if value is not None:
            return f"{noun} {value} is not a finite number", "correct or remove it"
        if "," in str(text):
            remedy = "write decimals with a point, as in 3.5"
        else:
            remedy = f"correct or remove the line, or name the column with {option(noun)}"
            remedy += f", or add {option('implicit', True)}" if noun == "rating" else ""
        return f"{noun} {_quoted(str(text))} is not a number", remedy

    return Parsed(values) if bool(fine.all()) else Parsed(values, ~fine, explain)


def to_numbers(column: pl.Series, dtype: type[pl.DataType] = pl.Float64) -> pl.Series:
    """Return the column as numbers, null where a cell is none.

    Blanks around a text are ignored. A comma with one or two digits behind it is a decimal point;
    with three it may separate thousands, so the cell is no number.
    """
    values = column.cast(dtype, strict=False)
    if values.null_count() and column.dtype == pl.String:
        plain = column.str.strip_chars().str.replace(r"^([+-]?\d*),(\d\d?)$", "${1}.$2")
        values = plain.cast(dtype, strict=False)
    return values


# -- times ----------------------------------------------------------------------------------------


def parse_times(column: pl.Series, locate: Locate, *, exact: bool = False) -> Parsed:
    """Parse times as seconds since 1970, from numbers, dates or texts (UTC unless they say more).

    With `exact`, integers are seconds however large they are. Raises `DateError` if no common
    format fits the texts, or if it is unclear whether the day or the month comes first.
    """
    dtype = column.dtype
    if isinstance(dtype, pl.Date | pl.Datetime):
        seconds, missing = column.dt.epoch("s"), column.is_null()
        return Parsed(seconds, missing, _missing_time) if bool(missing.any()) else Parsed(seconds)
    if not (dtype.is_numeric() or dtype == pl.String):
        raise DateError(str(_wrong_type("time", column, locate, "dates, numbers or texts")))
    if exact and dtype.is_signed_integer() and not column.null_count():
        return Parsed(column.cast(pl.Int64))
    fractions = dtype.is_float() or dtype.is_decimal()
    for kind in (pl.Float64,) if fractions else (pl.Int64, pl.Float64):
        values = to_numbers(column, kind)
        if not values.null_count():
            if kind == pl.Int64 and bool(values.is_between(19_000_101, 21_001_231).all()):
                days = values.cast(pl.String).str.to_date("%Y%m%d", strict=False)
                if not days.null_count():  # days such as 20050906
                    return Parsed(days.cast(pl.Int64) * _DAY)
            return _numeric_times(values)
    numeric = values.is_not_null()
    if 2 * int(numeric.sum()) >= len(column) or dtype != pl.String:
        return _majority(column, values, numeric)
    dates = _parse_dates(column, locate)
    return _majority(column, dates, dates.is_not_null())


def _missing_time(_: int) -> tuple[str, str]:
    return "the time is missing", _hint()


def _majority(column: pl.Series, values: pl.Series, read: pl.Series) -> Parsed:
    """Return the values of cells that are written like most; the others are bad."""
    if bool(read.all()):
        return Parsed(values)
    places = read.arg_true()
    fine = _numeric_times(values.gather(places))
    bad = ~read
    if fine.bad is not None:
        bad = bad.scatter(places.filter(fine.bad), values=True)
    seconds = np.zeros(len(column), np.int64)
    if fine.bad is None:
        seconds[places.to_numpy()] = fine.values.to_numpy()

    def explain(row: int) -> tuple[str, str]:
        text = column[row]
        if text is None:
            return _missing_time(row)
        if read[row] and fine.explain is not None:
            return fine.explain(int((places < row).sum()))
        number = to_numbers(pl.Series([str(text)], dtype=pl.String))[0]
        if number is not None or _iso_seconds(str(text)) is not None:
            return f"time {_quoted(str(text))} is not written like the others", _hint()
        return f"time {_quoted(str(text))} is neither {_DATE}", _hint()

    return Parsed(pl.Series(seconds), bad, explain)


def _numeric_times(values: pl.Series) -> Parsed:
    """Return whole seconds of times that may be in milli-, micro- or nanoseconds."""
    array = values.to_numpy()
    bad, fault = ~np.isfinite(array), "is not a finite number"
    if not bad.any():
        high = float(array.max(initial=0))
        bound, unit = max([(b, u) for b, u in _UNITS if high > b], default=(0.0, 1))
        seconds = array // unit if unit > 1 else array
        bad, fault = np.abs(seconds) >= 2.0**62, "is out of range"
        if unit > 1:
            bad = (array > 0) & (array <= bound)
            fault = f"and time {high:.0f} cannot be in the same unit"
    if bad.any():
        return Parsed(values, pl.Series(bad), lambda row: (f"time {array[row]} {fault}", _hint()))
    return Parsed(pl.Series(seconds.astype(np.int64)))


def _parse_dates(texts: pl.Series, locate: Locate) -> pl.Series:
    """Return seconds since 1970 of texts in the one format that most of them have."""
    days = texts.str.to_date("%Y-%m-%d", strict=False)
    if days.null_count() == 0:
        return days.cast(pl.Int64) * _DAY
    distinct = texts.drop_nulls().unique(maintain_order=True)
    parsed = pl.Series([_iso_seconds(text) for text in distinct.to_list()], dtype=pl.Int64)
    if 2 * parsed.null_count() > len(distinct):
        parsed = _parse_common(distinct, texts, locate)
    return texts.replace_strict(distinct, parsed, default=None, return_dtype=pl.Int64)


def _parse_common(distinct: pl.Series, texts: pl.Series, locate: Locate) -> pl.Series:
    """Return the distinct texts as seconds, in the common format that fits them all."""
    plain = distinct.str.strip_chars().str.replace(r"(?i)\s*(?:UTC|GMT|\+00:?00)$", "")
    plain = plain.str.replace(r"^([A-Za-z]{3,9})\.? ", "$1 ")
    fitting = _fitting_formats(plain)
    if not fitting and bool(plain.head(_SAMPLE).str.contains(r"\p{L}{3}").any()):
        for month, english in zip(_GERMAN.split(), _ENGLISH.split(), strict=True):
            plain = plain.str.replace(rf"(?i)\b{month}\b", english)
        plain = plain.str.replace(r"(\p{L}{3,9})\. ", "$1 ")
        fitting = _fitting_formats(plain)
    row = first_true(texts.is_not_null())
    subject = f"{locate(row)}: time {_quoted(str(texts[row]))}"
    if not fitting:
        raise DateError(f"{subject} is neither {_DATE}, nor in another common format; {_hint()}")
    least = min(values.null_count() for values in fitting.values())
    best = {name: values for name, values in fitting.items() if values.null_count() == least}
    name, values = next(iter(best.items()))
    swapped = _SWAPPED.get(name.split(" ")[0].rstrip(","))
    for other_name, swapped_values in best.items():
        if swapped and other_name.startswith(swapped) and not values.equals(swapped_values):
            fault = "and the others may have the day or the month first"
            raise DateError(f"{subject} {fault}; {_hint('write dates as 2005-09-06')}")
    return values


def _fitting_formats(texts: pl.Series) -> dict[str, pl.Series]:
    """Return the seconds of each text by format, for the formats that most of them have."""
    fitting = {}
    for layout in (date + clock for date in _DATES for clock in _CLOCKS):
        moments = _moments(texts.head(_SAMPLE), layout)
        if 2 * moments.null_count() < len(moments):
            fitting[layout] = _moments(texts, layout).dt.epoch("s")
    return fitting


def _moments(texts: pl.Series, layout: str) -> pl.Series:
    moments = texts.str.to_datetime(layout, strict=False)
    plausible = moments.dt.year().is_between(1000, 9999)  # %Y accepts "25" as the year 25
    return moments.set(~plausible.fill_null(value=True), None)


def _iso_seconds(text: str) -> int | None:
    """Return seconds since 1970 of an ISO date, None if it is none."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() // 1)
    except (ValueError, OverflowError):
        return None


def first_true(mask: pl.Series) -> int:
    """Return the position of the first true value."""
    return mask.arg_max() or 0


def _wrong_type(noun: str, column: pl.Series, locate: Locate, allowed: str) -> DataError:
    text = str(column[0] if len(column) else None)[:40]
    return DataError(
        f"{locate(0)}: {noun} {text!r} is of type {column.dtype}; this column must hold "
        f"{allowed}: convert it, or name another column"
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
