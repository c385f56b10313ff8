"""Read delimited text, with or without a header.

`sniff` finds the dialect from the first lines, `read_fields` cuts the lines into fields: polars
reads, and counts of lines and separators prove that it read what is there. Where they disagree, the
csv module reads record by record and names the bad lines.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, ColumnRoles, assign_roles, find_name
from cfnade.data.raw_table import RawTable, describe_items, parse_columns
from cfnade.data.readers.encoding import decode
from cfnade.exceptions import DataError
from cfnade.utils.text import option

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)
SEPARATORS = {"::": '"::"', "\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
"""Usual separators and their names in messages."""

_ALIASES = {"\\t": "\t", "tab": "\t"}  # of separators, as shells and people write them
_UNIT = "\x1f"  # replaces a separator of several bytes: neither polars nor csv takes one
_LINES = 50  # that are examined
_MAX_RECORD = 10_000  # lines of a quoted field
_PREVIEW = 3  # lines in a message
_EXPLAINED = 5  # skipped lines of which the reason is given
_NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*")
_VALUE = re.compile(rf"{_NUMBER.pattern}|\s*(true|false)\s*", re.IGNORECASE)
_RECBOLE = re.compile(r":(token|token_seq|float|float_seq)$")


def _skip_advice() -> str:
    return f"or leave such lines out with {option('skip_bad_lines', True)}"


@dataclass(frozen=True)
class Dialect:
    """How a text is cut into fields."""

    separator: str  # as in the file
    quoted: bool  # whether a field may be put in double quotes
    width: int
    header: bool
    names: tuple[str, ...] | None = None
    width_of: str = "the first line"  # what has that many fields, for messages
    types: tuple[str, ...] = ()  # of RecBole's columns

    @property
    def cut(self) -> str:
        """The single character to split at."""
        return self.separator if len(self.separator.encode()) == 1 else _UNIT

    def __str__(self) -> str:
        header = "with" if self.names else "without"
        return f"{_name(self.separator)}-separated text {header} header"


@dataclass(frozen=True)
class FieldTable:
    """Columns "0", "1" … of strings, null where empty; `lines` are those of the rows, from 0."""

    frame: pl.DataFrame
    lines: Sequence[int]

    def line(self, row: int) -> int:
        """Return the line of a row, counted from 1."""
        return self.lines[row] + 1

    def filter(self, rows: pl.Series) -> FieldTable:
        return FieldTable(self.frame.filter(rows), [self.lines[row] for row in rows.arg_true()])


BadLine = tuple[int, str, str]  # line from 0, reason, remedy


@dataclass
class BadLines:
    """Lines that cannot be read: the first is an error unless they are skipped."""

    label: str
    skip: bool = False
    entries: list[BadLine] = field(default_factory=list)

    def check(self) -> None:
        """Raise for the first bad line, unless bad lines are skipped."""
        if self.entries and not self.skip:
            line, reason, remedy = min(self.entries)
            raise DataError(f"{self.label}:{line + 1}: {reason}; {remedy}, {_skip_advice()}")

    def __str__(self) -> str:
        if not self.entries:
            return ""
        bad_lines = sorted(self.entries)
        reasons = "; ".join(f"line {line + 1}: {why}" for line, why, _ in bad_lines[:_EXPLAINED])
        reasons += "; …" if len(bad_lines) > _EXPLAINED else ""
        return f"skipped {len(bad_lines):,} bad line{'s' * (len(bad_lines) > 1)} ({reasons})"


def read_text(data: bytes, label: str, options: LoadOptions) -> RawTable:
    """Return the ratings of a text, with a description of what was recognized and skipped."""
    data, note = decode(data, label, options.encoding, replace=options.skip_bad_lines)
    dialect, roles = recognize(data, label, options)
    table = read_block(data, dialect, roles, label, skip_bad_lines=options.skip_bad_lines)
    parts = (f"{dialect}: {roles.describe(dialect.names)}", note, table.description)
    return dataclasses.replace(table, description="; ".join(part for part in parts if part))


def recognize(data: bytes, label: str, options: LoadOptions) -> tuple[Dialect, ColumnRoles]:
    """Return the dialect of a clean text of ratings and the roles of its columns."""
    dialect = sniff(data, label, options.separator, options.header)
    try:
        return dialect, assign_roles(dialect.names, dialect.width, options, label)
    except DataError as error:
        hint = ""
        if dialect.width == 2 and dialect.names is not None and options.header is None:
            hint = f", or, if the first line is data already, {option('header', False)}"
        raise DataError(f"{error}{hint}.\n{_beginning(_first_lines(data))}") from error


def read_block(
    data: bytes,
    dialect: Dialect,
    roles: ColumnRoles,
    label: str,
    *,
    skip_bad_lines: bool = False,
) -> RawTable:
    """Return the ratings of a clean text, or of some whole lines of one."""
    bad = BadLines(label, skip_bad_lines)
    table = read_fields(data, dialect, bad)
    column = table.frame.to_series
    assumed = roles.check_no_rating_ignored(dialect.names, column, dialect.width, label)
    while True:
        column = table.frame.to_series
        parsed = parse_columns(
            {role: column(place) for role, place in roles.positions().items()},
            lambda row, _role, table=table: f"{label}:{table.line(row)}",  # type: ignore[misc]
            is_text=True,
            time_required=not roles.time_assumed,
        )
        if parsed.bad is None:
            break
        row, _, reason, remedy = parsed.fault()
        if bool(parsed.bad.all()) or not skip_bad_lines:
            hint = "" if bool(parsed.bad.all()) else f", {_skip_advice()}"
            raise DataError(f"{label}:{table.line(row)}: {reason}; {remedy}{hint}")
        for place, row in enumerate(parsed.bad.arg_true().to_list()):
            reason = parsed.fault(row)[2] if place < _EXPLAINED else ""
            bad.entries.append((table.lines[row], reason, ""))
        table = table.filter(~parsed.bad)
    frame, lines = parsed.frame(), table.lines
    texts = {kind: column(p) for kind, p in roles.item_columns(dialect.names or ()).items()}
    rated = roles.rating
    return RawTable(
        frame=frame,
        locate=lambda row: f"{label}:{lines[row] + 1}",
        description="; ".join(words for words in (str(bad), parsed.note) if words),
        assumed=assumed,
        item_table=describe_items(frame, texts),
        rating_column=rated if rated is None or dialect.names is None else dialect.names[rated],
    )


# -- dialect --------------------------------------------------------------------------------------


def sniff(
    data: bytes,
    label: str,
    separator: str | None = None,
    header: bool | None = None,
    min_columns: int | None = None,
) -> Dialect:
    """Return the dialect of a clean text, from its first lines.

    Unless `min_columns` is given, there are three or more; or two if lines cannot be cut further.
    """
    lines = _first_lines(data)
    separator = _separator(lines, label, separator, min_columns)
    quoted = len(separator.encode()) == 1
    if quoted and separator == "\t" and b'"' in data:
        quoted = _encloses_fields(re.sub(rb'\\["\\]', b"", data), separator)
    fields = _split(lines[0], separator, quoted)
    if header is None:  # a rating is a number, the name of a column is not
        header = not any(_VALUE.fullmatch(text) for text in fields)
    names, types = _column_names(fields) if header else (None, ())
    return Dialect(separator, quoted, len(fields), header, names, types=types)


def _column_names(fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names in a header and, of RecBole's files ("rating:float"), the types."""
    suffixes = [_RECBOLE.search(text.strip()) for text in fields]
    if not all(suffixes):
        return tuple(text.strip() for text in fields), ()
    types = tuple(match[1] for match in suffixes if match)
    return tuple(_RECBOLE.sub("", text.strip()) for text in fields), types


def _first_lines(data: bytes) -> list[str]:
    return [line.decode("utf-8", "replace") for line in data[: 1 << 16].split(b"\n")[:_LINES]]


def _beginning(lines: list[str]) -> str:
    printable = [
        "".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in lines
    ]
    return "\n".join(["It begins:", *(f"    {line[:100]}" for line in printable[:_PREVIEW])])


def _separator(lines: list[str], label: str, requested: str | None, min_columns: int | None) -> str:
    if requested is not None:
        separator = _ALIASES.get(requested, requested)
        if not separator or set(separator) & set('\r\n"\0'):
            raise DataError(
                f'{option("separator", requested)} cannot separate fields; give one such as ","'
            )
        return separator
    best = _separator_of_pairs(lines) if min_columns is None else None
    best = best or _best_separator(lines, min_columns or 3)[1]
    if best is None:
        columns = (
            f"{min_columns} columns" if min_columns else "a user, an item and perhaps a rating"
        )
        raise DataError(
            f"{label}:1: no separator cuts the lines into {columns}; give "
            f"{option('separator')} if it has "
            f"one.\n{_beginning(lines)}"
        )
    return best


def _best_separator(lines: list[str], min_columns: int) -> tuple[int, str | None]:
    """Return how many lines the best separator cuts into equally many columns, and which it is."""
    best: tuple[tuple[int, bool, int], str | None] = (0, False, 0), None
    for separator in SEPARATORS:
        widths = Counter(len(_split(line, separator, len(separator) == 1)) for line in lines)
        width, count = max(widths.items(), key=lambda pair: (pair[0] >= min_columns, pair[1]))
        merit = count, separator != " ", width
        if width >= min_columns and merit > best[0]:
            best = merit, separator
    return best[0][0], best[1]


def _separator_of_pairs(lines: list[str]) -> str | None:
    """Return the separator of a user and an item alone: the header names them, or hardly a line
    can be cut into more.
    """
    for separator in SEPARATORS:
        names = _column_names(_split(lines[0], separator, len(separator) == 1))[0]
        if len(names) == 2:
            places = {find_name(COLUMN_NAMES[role], names) for role in ("user", "item")}
            if None not in places and len(places) == 2:
                return separator
    (many, _), (count, best) = _best_separator(lines, 3), _best_separator(lines, 2)
    return best if 2 * many < len(lines) and many < count else None


def _split(line: str, separator: str, quoted: bool) -> list[str]:
    if separator == " ":
        line = re.sub(" +", " ", line).strip(" ")
    if not quoted:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


# -- fields ---------------------------------------------------------------------------------------


def read_fields(data: bytes, dialect: Dialect, bad: BadLines) -> FieldTable:
    """Cut clean text into fields, as many in each line as the dialect has."""
    data = _with_one_byte_separator(data, dialect, bad.label)
    quotes = dialect.quoted and b'"' in data
    # Polars takes a quote behind a backslash for the end of a field.
    simple = b"\\" not in data and _encloses_fields(data, dialect.cut) if quotes else True
    if simple and b"\r" not in data:
        start = data.find(b"\n") + 1 if dialect.header else 0
        if start > 0 or not dialect.header:
            frame = _read_fast(data[start:], dialect, quotes)
            if frame is not None:
                first = int(dialect.header)
                return FieldTable(frame, range(first, first + frame.height))
    return read_records(data, dialect, bad)


def _with_one_byte_separator(data: bytes, dialect: Dialect, label: str) -> bytes:
    if dialect.separator == " ":  # one between two fields, and none at the ends
        if b"  " in data or b"\n " in data or b" \n" in data or data.startswith(b" "):
            data = re.sub(rb" +", b" ", data).replace(b"\n ", b"\n").replace(b" \n", b"\n")
        return data.removeprefix(b" ")
    if dialect.cut == dialect.separator:
        return data
    if _UNIT.encode() in data:
        raise DataError(
            f"{label}: holds the control byte 0x1f, which stands for {dialect.separator!r} while "
            "reading; remove it"
        )
    return data.replace(dialect.separator.encode(), _UNIT.encode())


def _encloses_fields(data: bytes, cut: str) -> bool:
    """Return whether every double quote stands at the edge of a field, so that it must quote."""
    separator = cut.encode()
    opening = data.count(separator + b'"') + data.count(b'\n"') + data.startswith(b'"')
    closing = data.count(b'"' + separator) + data.count(b'"\n') + data.endswith(b'"')
    return opening == closing and opening + closing == data.count(b'"')


def _read_fast(data: bytes, dialect: Dialect, quotes: bool) -> pl.DataFrame | None:
    """Return the table as polars reads it, or None unless counts prove that no line is ragged."""
    lines = _count(data, "\n") + 1
    if not quotes and _count(data, dialect.cut) != lines * (dialect.width - 1):
        return None
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            separator=dialect.cut,
            quote_char='"' if quotes else None,
            schema={str(i): pl.String for i in range(dialect.width)},
        )
    except POLARS_ERRORS:
        return None
    # Polars refuses a line that is too long. None is too short, as the sum is right or, where
    # quotes hide separators, as the last field of each line is there.
    complete = not quotes or frame.to_series(dialect.width - 1).null_count() == 0
    return frame if frame.height == lines and complete else None


def _count(data: bytes, byte: str) -> int:
    """Like `data.count`, which takes ten times as long where a byte is frequent."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(byte)))


def read_records(data: bytes, dialect: Dialect, bad: BadLines) -> FieldTable:
    """Cut text into fields with the csv module, which finds the bad lines.

    Where a backslash may escape a quote, the reading that gives more records counts.
    """
    lines = data.decode().split("\n")
    records, bad_lines = _records(lines, dialect, None)
    if dialect.quoted and b'\\"' in data:
        escaped = _records(lines, dialect, "\\")
        records, bad_lines = max(escaped, (records, bad_lines), key=lambda reading: len(reading[0]))
    bad.entries += bad_lines
    bad.check()
    first = int(dialect.header)
    if len(records) <= first:
        raise DataError(f"{bad.label}: holds a header and no ratings")
    series = {
        str(i): pl.Series([fields[i] or None for _, fields in records[first:]], dtype=pl.String)
        for i in range(dialect.width)
    }
    return FieldTable(pl.DataFrame(series), [line for line, _ in records[first:]])


Record = tuple[int, list[str]]


def _records(
    lines: list[str], dialect: Dialect, escape: str | None
) -> tuple[list[Record], list[BadLine]]:
    """Return the records with the line at which each begins, and the bad lines."""
    records, bad_lines = list[Record](), list[BadLine]()

    def following(start: int) -> Iterator[str]:
        for place in range(start, len(lines)):
            if place > line + _MAX_RECORD:
                return  # of a quote that was never closed
            yield lines[place] + "\n"

    line = 0
    while line < len(lines):
        start = line
        reader = csv.reader(
            following(line),
            delimiter=dialect.cut,
            quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
            escapechar=escape,
            strict=True,
        )
        try:
            for fields in reader:
                if len(fields) != dialect.width:
                    bad_lines.append((line, *_ragged(len(fields), dialect)))
                    break
                records.append((line, fields))
                line = start + reader.line_num
        except csv.Error as error:
            reason = f"this line cannot be cut into fields ({error})"
            bad_lines.append(
                (line, reason, "look for a stray double quote or carriage return in it")
            )
        line += 1  # this one alone: an open quote would take the next ones along
    return records, bad_lines


def _name(separator: str) -> str:
    return SEPARATORS.get(separator, f'"{separator}"')


def _ragged(count: int, dialect: Dialect) -> tuple[str, str]:
    if count == 0:
        return "the line is blank", "remove it"
    expected = f"{dialect.width_of} {dialect.width} (separated by {_name(dialect.separator)})"
    return (
        f"the line has {count} fields, {expected}",
        f"correct or remove the line, or give {option('separator')}",
    )
