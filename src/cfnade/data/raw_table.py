"""The result of a reader, before it is validated: a table with canonical columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy.typing as npt
import polars as pl

from cfnade.data.parse import (
    DateError,
    Locate,
    Parsed,
    first_true,
    parse_ids,
    parse_numbers,
    parse_times,
    parse_weights,
    plain_strings,
)
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError


@dataclass(frozen=True)
class RawTable:
    """The result of a reader: canonical columns, no cell missing, nothing else checked.

    The columns are user and item (integers or strings), rating, or weight or neither for
    interactions, and perhaps time (seconds since 1970). NumPy arrays enter without a copy.
    """

    frame: pl.DataFrame
    locate: Locate = "row {}".format
    """Says where a row stands in the source; rows count from 0."""
    description: str = ""
    """What was recognized and skipped."""
    assumed: str = ""
    """What the reader assumed without being told."""
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
        """Return the table of arrays or series of equal length; `known` are the other fields."""
        columns = {"user": users, "item": items, "rating": ratings, "weight": weights}
        columns = {k: v for k, v in (columns | {"time": times}).items() if v is not None}
        lengths = {role: len(column) for role, column in columns.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{n:,} of {role}" for role, n in lengths.items())
            raise DataError(f"the columns have different lengths: {counts}")
        return cls(pl.DataFrame([pl.Series(r, c) for r, c in columns.items()]), **attributes)

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
    bad: pl.Series | None
    note: str = ""
    """What was left out, for the user to know."""

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(
            {role: parsed_column.values for role, parsed_column in self.columns.items()}
        )

    def fault(self, row: int | None = None) -> tuple[int, str, str, str]:
        """Return row, role, reason and remedy of the first bad cell, of all rows or of one."""
        for role, parsed_column in self.columns.items():
            if (
                parsed_column.bad is None
                or parsed_column.explain is None
                or (row is not None and not parsed_column.bad[row])
            ):
                continue
            place = first_true(parsed_column.bad) if row is None else row
            return place, role, *parsed_column.explain(place)
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
    parsers: dict[str, Callable[[pl.Series, Locate], Parsed]] = {
        "user": lambda column, locate_cell: parse_ids(column, "user", locate_cell, is_text=is_text),
        "item": lambda column, locate_cell: parse_ids(column, "item", locate_cell, is_text=is_text),
        "rating": parse_numbers,
        "weight": parse_weights,
        "time": lambda column, locate_cell: parse_times(column, locate_cell, exact=exact_times),
    }
    parsed, note = {}, ""
    bad: pl.Series | None = None
    for role, column in columns.items():
        try:
            parsed_column = parsers[role](column, partial(_locate_role, locate, role))
        except DateError as error:
            if time_required:
                raise
            note = f"times are ignored: {error}"
            continue
        parsed[role] = parsed_column
        if parsed_column.bad is not None:
            bad = parsed_column.bad if bad is None else bad | parsed_column.bad
    return ParsedColumns(parsed, bad, note)


def _locate_role(locate: Callable[[int, str], str], role: str, row: int) -> str:
    return locate(row, role)


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
        column = plain_strings(column)
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
