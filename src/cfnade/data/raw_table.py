"""The result of a reader: a table with canonical columns, parsed from texts or typed values.

The functions that parse a column return null for each cell that they cannot read. A reader raises
for the first of them, or leaves those rows out; `explain_row` returns what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

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
_DATE = "a number nor a date such as 2005-09-06"
_ALLOWED = {"rating": "numbers", "weight": "numbers", "time": "dates, numbers or texts"}

_TYPES = {"rating": (pl.Boolean,), "weight": (pl.Boolean,), "time": (pl.Date, pl.Datetime)}
"""Types of columns that can be read beside numbers and strings."""

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


@dataclass(frozen=True)
class RawTable:
    """The result of a reader: canonical columns, no cell missing, numbers finite.

    The columns are user and item (integers or strings), rating, or weight or neither for
    interactions, and perhaps time (seconds since 1970). NumPy arrays enter without a copy.
    """

    frame: pl.DataFrame
    locate: Locate = "row {}".format
    """Returns the place of a row in the source; rows count from 0."""
    label: str = ""  # the source's name in messages
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
        frame, _ = parse_or_raise(series, lambda row, _: locate(row), exact_times=True)
        return cls(frame, **attributes)

    def __len__(self) -> int:
        return self.frame.height

    @property
    def implicit(self) -> bool:
        """Whether the rows are interactions."""
        return "rating" not in self.frame.columns

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a column as an array, None if there is none."""
        return self.frame[name].to_numpy() if name in self.frame.columns else None


def parse_columns(
    columns: Mapping[str, pl.Series],
    locate: Callable[[int, str], str],
    *,
    is_text: bool = False,
    exact_times: bool = False,
    time_required: bool = True,
) -> tuple[pl.DataFrame, str]:
    """Parse the column of each role; cells that cannot be read become null.

    Args:
        columns: Columns of texts or typed values by role.
        locate: Returns the place of the cell of a row and role.
        is_text: Whether all cells were texts, so that ids may be integers.
        exact_times: Whether integers are seconds however large they are.
        time_required: Whether times in no known format are an error; else they are left out.

    Returns:
        The parsed columns, and a note if times were left out.
    """
    parsed = {}
    note = ""
    for role, column in columns.items():
        if isinstance(column.dtype, pl.Categorical | pl.Enum | pl.Null):
            column = column.cast(pl.String)
        try:
            dtype = column.dtype
            if not (
                dtype.is_numeric()
                or dtype == pl.String
                or dtype.base_type() in _TYPES.get(role, ())
            ):
                raise _wrong_type(role, column)
            if role in ("user", "item"):
                parsed[role] = parse_ids(column, is_text=is_text)
            elif role in ("rating", "weight"):
                parsed[role] = parse_numbers(column, role)
            else:
                parsed[role] = parse_times(column, exact=exact_times)
        except DataError as error:
            message = f"{locate(first_true(column.is_not_null()), role)}: {error}"
            if role != "time" or time_required:
                raise DataError(message) from error
            note = f"times are ignored: {message}"
    return pl.DataFrame([values.alias(role) for role, values in parsed.items()]), note


def parse_or_raise(
    columns: Mapping[str, pl.Series], locate: Callable[[int, str], str], **options: bool
) -> tuple[pl.DataFrame, str]:
    """Parse the column of each role as `parse_columns` does; raise at the first bad cell."""
    frame, note = parse_columns(columns, locate, **options)
    if (bad := bad_rows(frame)) is not None:
        row = first_true(bad)
        role, reason, remedy = explain_row(row, frame, columns)
        raise DataError(f"{locate(row, role)}: {reason}; {remedy}")
    return frame, note


def bad_rows(frame: pl.DataFrame) -> pl.Series | None:
    """Return which rows of parsed columns have a cell that could not be read; None if none has."""
    if not any(column.null_count() for column in frame):
        return None
    return frame.select(pl.any_horizontal(pl.all().is_null())).to_series()


def explain_row(
    row: int, frame: pl.DataFrame, columns: Mapping[str, pl.Series]
) -> tuple[str, str, str]:
    """Return role, reason and remedy of the first cell of a row that could not be read."""
    role = next(role for role in frame.columns if frame[role][row] is None)
    return role, *_explain(columns[role][row], role)


def _explain(cell: Any, role: str) -> tuple[str, str]:
    """Return what is wrong with a cell that could not be read, and what to do."""
    text = str(cell)
    noun = f"{role} id" if role in ("user", "item") else role
    number = to_numbers(pl.Series([text], dtype=pl.String))[0]
    skip = f"name another column with {option(role)}, or give {option(role, False)}"
    if cell is None or not text.strip():
        remedy = f"correct it, {skip}" if role == "time" else "remove that row or fill it in"
        return f"the {noun} is missing", remedy
    if REPLACEMENT in text:
        return f"the {noun} holds damaged characters", "correct it"
    if number is not None and not np.isfinite(number):
        return f"{noun} {number} is not a finite number", "correct or remove it"
    if role in ("user", "item"):
        if isinstance(cell, int):
            return f"{noun} {cell} does not fit into 64 bits", "give ids as strings"
        return f"{noun} {cell} is not a whole number", "give ids as integers or strings"
    if role == "time":
        is_time = number is not None or _iso_seconds(text) is not None
        fault = "not written like the others" if is_time else f"neither {_DATE}"
        return f"time {_quoted(text)} is {fault}", f"correct it, {skip}"
    if number is not None:
        limit = "above 0" if number <= 0 else f"in {_MIN_WEIGHT:g}..{_MAX_WEIGHT:g}"
        return f"weight {number:g}: a weight must be {limit}", f"correct or remove the line, {skip}"
    remedy = f"correct or remove the line, or name the column with {option(role)}"
    if "," in text:
        remedy = "write decimals with a point, as in 3.5"
    elif role == "rating":
        remedy += f", or add {option('implicit', True)}"
    return f"{noun} {_quoted(text)} is not a number", remedy


def _wrong_type(role: str, column: pl.Series) -> DataError:
    noun = f"{role} id" if role in ("user", "item") else role
    fault = f"{noun} {str(column[0] if len(column) else None)[:40]!r} is of type {column.dtype}"
    if column.dtype == pl.Object:
        fault = "it holds values of several types, or of one that cannot be read"
    allowed = _ALLOWED.get(role, "integers or strings")
    return DataError(
        f"{fault}; this column must hold {allowed}: convert it, or name another column"
    )


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
        if described is not None:
            pairs = described.join(pairs, on="item", how="full", coalesce=True)
        described = pairs
    return described


# -- ids ------------------------------------------------------------------------------------------


def parse_ids(column: pl.Series, *, is_text: bool) -> pl.Series:
    """Parse ids: integers or strings.

    Texts become integers if every id is written as one (no leading zeros, no plus). In typed
    columns floats become integers if they are whole, as a table with gaps makes them.
    """
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False) if column.dtype == pl.UInt64 else column
    if column.dtype.is_numeric():
        values = column.cast(pl.Float64)
        return _keep(values, (values == values.floor()) & (values.abs() <= _EXACT)).cast(pl.Int64)
    texts = column
    if is_text:
        integers = _to_integers(texts)
        if integers is None and bool(texts.str.contains(r"^[ \t]|[ \t]$").any()):
            texts = texts.str.strip_chars(" \t")  # "1, 2, 5", or a blank behind a name
            integers = _to_integers(texts)
        if integers is not None:
            return integers
        texts = _keep(texts, ~texts.str.contains(REPLACEMENT, literal=True))
    return _keep(texts, texts.str.strip_chars() != "")


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


def _keep(values: pl.Series, fits: pl.Series) -> pl.Series:
    """Return the values that fit; null in place of the others."""
    fits = fits.fill_null(value=False)
    if fits.all():
        return values
    return values.zip_with(fits, pl.Series([None], dtype=values.dtype))


# -- ratings and weights --------------------------------------------------------------------------


def parse_numbers(column: pl.Series, role: str) -> pl.Series:
    """Parse ratings, or weights of interactions, each above 0; true and false are 1 and 0."""
    if column.dtype == pl.Boolean:
        column = column.cast(pl.UInt8)
    if column.dtype == pl.Float32:
        # 3.7 is stored as 3.70000005: the shortest decimal that rounds to it is what was meant
        column = column.cast(pl.String)
    values = to_numbers(column)
    if values.null_count() and column.dtype == pl.String:
        words = column.str.strip_chars().str.to_lowercase()
        if bool(words.drop_nulls().is_in(["true", "false"]).all()):
            values = words.replace_strict({"true": 1.0, "false": 0.0}, return_dtype=pl.Float64)
    fits = values.is_finite()
    if role == "weight":
        fits &= values.is_between(_MIN_WEIGHT, _MAX_WEIGHT)
    return _keep(values, fits)


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


def parse_times(column: pl.Series, *, exact: bool = False) -> pl.Series:
    """Parse times as seconds since 1970, from numbers, dates or texts (UTC unless they say more).

    With `exact`, integers are seconds however large they are. Cells that are not written like most
    become null. Raises if no common format fits the texts, or if it is unclear whether the day or
    the month comes first.
    """
    dtype = column.dtype
    if isinstance(dtype, pl.Date | pl.Datetime):
        return column.dt.epoch("s")
    if exact and dtype.is_signed_integer():
        return column.cast(pl.Int64)
    values = to_numbers(column, pl.Int64)
    if dtype.is_float() or dtype.is_decimal() or values.null_count():
        values = to_numbers(column)
        if dtype == pl.String and 2 * values.null_count() > len(values):
            return _parse_dates(column)
    elif bool(values.is_between(19_000_101, 21_001_231).all()):
        days = values.cast(pl.String).str.to_date("%Y%m%d", strict=False)
        if not days.null_count():  # days such as 20050906
            return days.cast(pl.Int64) * _DAY
    return _to_seconds(values)


def _to_seconds(values: pl.Series) -> pl.Series:
    """Return whole seconds of times that may be in milli-, micro- or nanoseconds."""
    values = _keep(values, values.is_finite())
    high = float(values.max() or 0)  # type: ignore[arg-type]
    bound, unit = max([(b, u) for b, u in _UNITS if high > b], default=(0.0, 1))
    if unit > 1:
        values = _keep(values // unit, (values <= 0) | (values > bound))
    return _keep(values, values.is_between(-(2**62), 2**62, closed="none")).cast(pl.Int64)


def _parse_dates(texts: pl.Series) -> pl.Series:
    """Return seconds since 1970 of texts in the one format that most of them have."""
    days = texts.str.to_date("%Y-%m-%d", strict=False)
    if days.null_count() == 0:
        return days.cast(pl.Int64) * _DAY
    distinct = texts.drop_nulls().unique(maintain_order=True)
    parsed = pl.Series([_iso_seconds(text) for text in distinct.to_list()], dtype=pl.Int64)
    if 2 * parsed.null_count() > len(distinct):
        parsed = _parse_common(distinct)
    return texts.replace_strict(distinct, parsed, default=None, return_dtype=pl.Int64)


def _parse_common(distinct: pl.Series) -> pl.Series:
    """Return the distinct texts as seconds, in the common format that fits them all."""
    plain = distinct.str.strip_chars().str.replace(r"(?i)\s*(?:UTC|GMT|\+00:?00)$", "")
    plain = plain.str.replace(r"^([A-Za-z]{3,9})\.? ", "$1 ")
    fitting = _fitting_formats(plain)
    if not fitting:
        for month, english in zip(_GERMAN.split(), _ENGLISH.split(), strict=True):
            plain = plain.str.replace(rf"(?i)\b{month}\b", english)
        fitting = _fitting_formats(plain.str.replace(r"(\p{L}{3,9})\. ", "$1 "))
    advice = f"name another column with {option('time')}, or give {option('time', False)}"
    subject = f"time {_quoted(distinct[0])}"
    if not fitting:
        raise DataError(
            f"{subject} is neither {_DATE}, nor in another common format; correct it, {advice}"
        )
    least = min(values.null_count() for values in fitting.values())
    best = {name: values for name, values in fitting.items() if values.null_count() == least}
    name, values = next(iter(best.items()))
    swapped = _SWAPPED.get(name.split(" ")[0].rstrip(","))
    for other_name, swapped_values in best.items():
        if swapped and other_name.startswith(swapped) and not values.equals(swapped_values):
            raise DataError(
                f"{subject} and the others may have the day or the month first; write dates as "
                f"2005-09-06, {advice}"
            )
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


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
