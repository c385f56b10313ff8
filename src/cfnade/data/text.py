"""Delimited text, with or without header: its layout is recognised, then every line is read."""

from __future__ import annotations

import csv
import functools
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from cfnade.data.characters import LOST, clean
from cfnade.data.columns import (
    Columns,
    as_numbers,
    columns_of,
    counts,
    iso_seconds,
    numbers,
    text_ids,
    times,
)
from cfnade.data.fields import (
    SEPARATORS,
    SKIP,
    TOLD,
    BadLines,
    Table,
    TextShape,
    cut_fields,
    uses_quotes,
)
from cfnade.data.roles import PLAIN, ReadOptions, Roles, choose
from cfnade.exceptions import DataError

_WRITTEN = {"\\t": "\t", "tab": "\t"}  # as shells and people write it
_LINES = 50  # that are looked at
_SHOWN = 3  # lines that a message shows
_NOWHERE = "".format  # a row's number in no words: the line is named beside it
_NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Layout:
    """What there is to know of a text before it is read."""

    shape: TextShape
    names: tuple[str, ...] | None
    roles: Roles

    def __str__(self) -> str:
        name, positions = self.shape.called, self.roles.positions()
        if self.names is not None:
            columns = ", ".join(self.names[position] for position in positions)
            return f"{name}-separated text with header: {columns}"
        roles = ", ".join(self.roles.named())
        places = ", ".join(str(position) for position in positions)
        return f"{name}-separated text without header: {roles} in columns {places}"


def read_text(data: bytes, label: str, options: ReadOptions) -> tuple[Columns, str]:
    """The ratings of a text, and in words what was recognised, skipped or assumed."""
    data, encoding = clean(data, label, options.encoding, options.skip_bad_lines)
    layout = recognise(data, label, options)
    columns, skipped = read_columns(data, layout, BadLines(label, options.skip_bad_lines))
    return columns, "; ".join(words for words in (str(layout), encoding, skipped) if words)


def read_columns(data: bytes, layout: Layout, bad: BadLines) -> tuple[Columns, str]:
    """The ratings of a clean text, and in words which lines were skipped."""
    table = cut_fields(data, layout.shape, bad)
    if bad.skip and LOST.encode() in data:
        table = _without_faults(table, layout.roles, bad) or table
    try:
        return _columns(table, layout, bad.label), str(bad)
    except DataError as error:
        rest = _without_faults(table, layout.roles, bad)
        if rest is None:
            raise
        if not bad.skip:
            raise DataError(f"{error}, {SKIP}") from error
    return _columns(rest, layout, bad.label), str(bad)


def _columns(table: Table, layout: Layout, label: str) -> Columns:
    """Texts turned into ids, numbers and times."""

    def where(row: int) -> str:
        return f"{label}:{table.line(row)}"

    roles, column = layout.roles, table.frame.to_series
    described = roles.texts(layout.names or ())
    return columns_of(
        roles,
        lambda place: (column(place), where),
        text_ids,
        {kind: column(place) for kind, place in described.items()},
        where=where,
        assumed=roles.notice(layout.names),
    )


def _without_faults(table: Table, roles: Roles, bad: BadLines) -> Table | None:
    """The rows that can be read; None if that is all or none of them: no line is to blame then."""
    columns = {role: table.frame.to_series(place) for role, place in roles.named().items()}
    wrong = {role: _faults(column, role) for role, column in columns.items()}
    any_wrong = functools.reduce(operator.or_, wrong.values())
    rows = any_wrong.arg_true().to_list()
    if len(rows) in (0, len(any_wrong)):
        return None
    for place, row in enumerate(rows if bad.skip else ()):
        role = next(role for role in wrong if wrong[role][row])
        bad.add(table.lines[row], _reason(columns[role], role, row) if place < TOLD else "", "")
    return table.only(~any_wrong)


def _faults(column: pl.Series, role: str) -> pl.Series:
    """Where a text cannot be an id, a rating, a weight or a time, whatever the others are."""
    if role in ("user", "item"):
        return (column.str.strip_chars() == "").fill_null(True) | column.str.contains(
            LOST, literal=True
        ).fill_null(True)
    values = as_numbers(column)
    wrong = values.is_finite().fill_null(False).not_()
    if role == "weight":
        return wrong | (values <= 0).fill_null(True)
    if role == "rating" or 2 * int(wrong.sum()) < len(wrong):
        return wrong
    distinct = column.unique()  # of dates
    dates = [text is not None and iso_seconds(text) is not None for text in distinct.to_list()]
    return column.is_in(distinct.filter(pl.Series(dates))).fill_null(False).not_()


def _reason(column: pl.Series, role: str, row: int) -> str:
    """What is wrong with the text in a row that is at fault."""
    checks: dict[str, Callable[..., Any]] = {"rating": numbers, "weight": counts, "time": times}
    text = column.slice(row, 1)
    try:
        if role in checks:
            checks[role](text, _NOWHERE)
        else:
            text_ids(text, role, _NOWHERE)
    except DataError as error:
        return str(error).removeprefix(": ").partition(";")[0]
    if role == "time":
        return f"time {text[0]!r} is not written like the others (numbers, or ISO dates)"
    return f"the {role} id holds damaged characters"


# -- layout ---------------------------------------------------------------------------------------


def recognise(data: bytes, label: str, options: ReadOptions) -> Layout:
    """The layout of a clean text of ratings, from its first lines."""
    shape, names = shape_of(data, label, options)
    try:
        return Layout(shape, names, choose(names, shape.width, options, label))
    except DataError as error:
        hint = ""
        if shape.width == 2 and names is not None and options.header is None:
            hint = ", or, if the first line is data already, header=False (--no-header)"
        raise DataError(f"{error}{hint}.\n{_beginning(_first_lines(data))}") from error


def shape_of(
    data: bytes, label: str, options: ReadOptions, least: int | None = None
) -> tuple[TextShape, tuple[str, ...] | None]:
    """How a clean text of at least so many columns is cut, and the names in its header.

    Unless that is said, there are three or more; or two if that is what lines can be cut into.
    """
    lines = _first_lines(data)
    separator = _separator(lines, label, options.separator, least)
    one = len(separator.encode()) == 1
    quoted = one and (separator != "\t" or uses_quotes(data, separator))
    fields = _split(lines[0], separator, quoted)
    header = options.header
    if header is None:  # a rating is a number, a column's name is not
        header = not any(_NUMBER.fullmatch(text) for text in fields)
    names = tuple(name.strip() for name in fields) if header else None
    return TextShape(separator, quoted, len(fields), header), names


def _first_lines(data: bytes) -> list[str]:
    return [line.decode("utf-8", "replace") for line in data[: 1 << 16].split(b"\n")[:_LINES]]


def _beginning(lines: list[str]) -> str:
    """The first lines, as a message shows them."""
    shown = ["".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in lines]
    return "\n".join(["It begins:", *(f"    {line[:100]}" for line in shown[:_SHOWN])])


def _separator(lines: list[str], label: str, asked: str | None, least: int | None) -> str:
    if asked is not None:
        separator = _WRITTEN.get(asked, asked)
        if not separator or set(separator) & set('\r\n"\0'):
            raise DataError(f'separator={asked!r} cannot separate fields; give one such as ","')
        return separator
    likeliest = _of_two(lines) if least is None else None
    likeliest = likeliest or _best(lines, least or 3)[1]
    if likeliest is None:
        columns = f"{least} columns" if least else "a user, an item and perhaps a rating"
        raise DataError(
            f"{label}:1: no separator cuts the lines into {columns}; give separator= if it has "
            f"one.\n{_beginning(lines)}"
        )
    return likeliest


def _best(lines: list[str], least: int) -> tuple[int, str | None]:
    """How many of the lines a separator cuts into equally many columns, and which does it best."""
    best: tuple[tuple[int, bool, int], str | None] = (0, False, 0), None
    for separator in SEPARATORS:
        widths = Counter(len(_split(line, separator, len(separator) == 1)) for line in lines)
        width, count = max(widths.items(), key=lambda pair: (pair[0] >= least, pair[1]))
        merit = count, separator != " ", width
        if width >= least and merit > best[0]:
            best = merit, separator
    return best[0][0], best[1]


def _of_two(lines: list[str]) -> str | None:
    """The separator of a user and an item alone: the header names them, or hardly a line can be
    cut into more.
    """
    for separator in SEPARATORS:
        names = _split(lines[0], separator, len(separator) == 1)
        if len(names) == 2 and _names_both(names):
            return separator
    (many, _), (count, best) = _best(lines, 3), _best(lines, 2)
    return best if 2 * many < len(lines) and many < count else None


def _names_both(names: list[str]) -> bool:
    try:
        return choose(names, 2, PLAIN, "").rating is None
    except DataError:
        return False


def _split(line: str, separator: str, quoted: bool) -> list[str]:
    if separator == " ":
        line = re.sub(" +", " ", line).strip(" ")
    if not quoted:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)
