"""Read delimited text, with or without a header.

`sniff` finds the dialect from the first lines, `read_fields` cuts the lines into fields: polars
reads, and counts of lines and separators prove that it read what is there. Where they disagree, the
csv module reads record by record and names the bad lines.

Texts are UTF-8, UTF-16 with its mark, else in the encoding of Western Europe. charset-normalizer is
no substitute: it takes MovieLens's movies.dat and u.item for cp1250.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, ColumnRoles, assign_roles, find_name
from cfnade.data.raw_table import REPLACEMENT, RawTable, describe_items, parse_columns
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
_RECBOLE = re.compile(r":(token|token_seq|float|float_seq)$", re.IGNORECASE)
_WESTERN = "cp1252"  # Latin-1 and what Windows adds to it


def _skip_advice() -> str:
    return f"leave such lines out with {option('skip_bad_lines', True)}"


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
        separator = SEPARATORS.get(self.separator, f'"{self.separator}"')
        return f"{separator}-separated text {header} header"


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
            raise DataError(f"{self.label}:{line + 1}: {reason}; {remedy}, or {_skip_advice()}")

    def __str__(self) -> str:
        bad_lines = sorted(self.entries)
        reasons = "; ".join(f"line {line + 1}: {why}" for line, why, _ in bad_lines[:_EXPLAINED])
        reasons += "; …" if len(bad_lines) > _EXPLAINED else ""
        return f"skipped {len(bad_lines):,} bad line{'s' * (len(bad_lines) > 1)} ({reasons})"


def read_text(data: bytes, label: str, options: LoadOptions) -> RawTable:
    """Return the ratings of a text, with a description of what was recognized and skipped."""
    data, note = decode(data, label, options.encoding, replace=options.skip_bad_lines)
    dialect, roles = recognize(data, label, options)
    table = read_block(data, dialect, roles, label, skip_bad_lines=options.skip_bad_lines)
    parts = [f"{dialect}: {roles.describe(dialect.names)}", note, table.description]
    return dataclasses.replace(table, description="; ".join(filter(None, parts)))


def recognize(data: bytes, label: str, options: LoadOptions) -> tuple[Dialect, ColumnRoles]:
    """Return the dialect of a clean text of ratings and the roles of its columns."""
    dialect = sniff(data, label, options.separator, options.header)
    try:
        return dialect, assign_roles(dialect.names, dialect.width, options, label)
    except DataError as error:
        hint = ""
        if dialect.width == 2 and dialect.names is not None and options.header is None:
            hint = f", or, if the first line is data already, {option('header', False)}"
        raise DataError(f"{error}{hint}.\n{_beginning(data)}", field=error.field) from error


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
    assumed = ""
    if roles.implicit_assumed:
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
            hint = "" if bool(parsed.bad.all()) else f", or {_skip_advice()}"
            raise DataError(f"{label}:{table.line(row)}: {reason}; {remedy}{hint}")
        for place, row in enumerate(parsed.bad.arg_true().to_list()):
            reason = parsed.fault(row)[2] if place < _EXPLAINED else ""
            bad.entries.append((table.lines[row], reason, ""))
        table = table.filter(~parsed.bad)
    lines, rated, item_table = table.lines, roles.rating, None
    if texts := {kind: column(p) for kind, p in roles.item_columns(dialect.names or ()).items()}:
        item_table = describe_items(parsed.frame, texts)
    return RawTable(
        frame=parsed.frame,
        locate=lambda row: f"{label}:{lines[row] + 1}",
        label=label,
        description="; ".join(filter(None, [str(bad) if bad.entries else "", parsed.note])),
        assumed=assumed,
        item_table=item_table,
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
    lines = data[: 1 << 16].decode("utf-8", "replace").split("\n")[:_LINES]
    if separator is None:
        separator = _find_separator(lines, min_columns)
    else:
        separator = _ALIASES.get(separator, separator)
        if not separator or set(separator) & set('\r\n"\0'):
            name = option("separator", separator)
            raise DataError(f'{name} cannot separate fields; give one such as ","')
    if separator is None:
        columns = (
            f"{min_columns} columns" if min_columns else "a user, an item and perhaps a rating"
        )
        hint = f"give {option('separator')} if it has one.\n{_beginning(data)}"
        raise DataError(f"{label}:1: no separator cuts the lines into {columns}; {hint}")
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
    fields = [text.strip() for text in fields]
    types = tuple([match[1].lower() for text in fields if (match := _RECBOLE.search(text))])
    names = tuple([_RECBOLE.sub("", text) for text in fields])
    return names, types if len(types) == len(names) else ()


def _beginning(data: bytes) -> str:
    lines = data[: 1 << 16].decode("utf-8", "replace").split("\n")[:_PREVIEW]
    printable = (
        "".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in lines
    )
    return "\n".join(["It begins:", *(f"    {line[:100]}" for line in printable)])


def _find_separator(lines: list[str], min_columns: int | None) -> str | None:
    """Return the separator that cuts most lines into equally many columns.

    It may cut them into a user and an item alone if the header names these, or if hardly a line can
    be cut into more.
    """
    rows = {s: [_split(line, s, len(s) == 1) for line in lines] for s in SEPARATORS}
    merits = [
        (count, separator != " ", width, separator)
        for separator in SEPARATORS
        for width, count in Counter(map(len, rows[separator])).items()
    ]
    none = 0, False, 0, None
    best, best_of_pairs = (
        max((merit for merit in merits if merit[2] >= width), key=itemgetter(0, 1, 2), default=none)
        for width in (min_columns or 3, 2)
    )
    if min_columns is None:
        for separator in SEPARATORS:
            names = _column_names(rows[separator][0])[0]
            places = {find_name(COLUMN_NAMES[role], names) for role in ("user", "item")}
            if len(names) == 2 and None not in places and len(places) == 2:
                return separator
        if 2 * best[0] < len(lines) and best[0] < best_of_pairs[0]:
            best = best_of_pairs
    return best[3]


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
    if len(dialect.separator.encode()) > 1:
        data = _with_one_byte_separator(data, dialect, bad.label)
    elif dialect.separator == " ":  # one between two fields, and none at the ends
        if b"  " in data or b"\n " in data or b" \n" in data or data.startswith(b" "):
            data = re.sub(rb" +", b" ", data).replace(b"\n ", b"\n").replace(b" \n", b"\n")
        data = data.removeprefix(b" ")
    quotes = dialect.quoted and b'"' in data
    # Polars takes a quote behind a backslash for the end of a field.
    simple = b"\\" not in data and _encloses_fields(data, dialect.cut) if quotes else True
    start = data.find(b"\n") + 1 if dialect.header else 0
    if simple and b"\r" not in data and (start > 0 or not dialect.header):
        frame = _read_fast(data[start:], dialect, quotes)
        if frame is not None:
            first = int(dialect.header)
            return FieldTable(frame, range(first, first + frame.height))
    return read_records(data, dialect, bad)


def _with_one_byte_separator(data: bytes, dialect: Dialect, label: str) -> bytes:
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
    characters = np.frombuffer(data, np.uint8)  # counting in bytes takes ten times as long
    lines = int(np.count_nonzero(characters == ord("\n"))) + 1
    n_separators = int(np.count_nonzero(characters == ord(dialect.cut)))
    if not quotes and n_separators != lines * (dialect.width - 1):
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


def _ragged(count: int, dialect: Dialect) -> tuple[str, str]:
    if count == 0:
        return "the line is blank", "remove it"
    separator = SEPARATORS.get(dialect.separator, f'"{dialect.separator}"')
    expected = f"{dialect.width_of} {dialect.width} (separated by {separator})"
    return (
        f"the line has {count} fields, {expected}",
        f"correct or remove the line, or give {option('separator')}",
    )


# -- encoding -------------------------------------------------------------------------------------


def decode(
    data: bytes, label: str, encoding: str | None = None, *, replace: bool = False
) -> tuple[bytes, str]:
    r"""Return clean UTF-8: no byte order mark, lines ended by \n, no blank lines at the end.

    With `replace`, damaged characters become `REPLACEMENT` instead of an error. Also returns a
    note on the encoding, empty if there is nothing to say.
    """
    note = ""
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is not None:
        data = _decode_as(data, label, encoding).encode()
    elif not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            data, note = _from_other(data, label, error, replace)
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DataError(
            f"{label}:{line}: a NUL byte: this is not text, or it is damaged; fetch it again, or "
            f"give its encoding, as in {option('encoding', 'utf-16')}"
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")  # as old Macs ended lines
    data = data.rstrip(b"\n ")
    if not data:
        raise DataError(f"{label}: is empty; it should hold a user, an item and a rating a line")
    return data, note


def _decode_as(data: bytes, label: str, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError as error:
        raise DataError(
            f'{option("encoding", encoding)} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(
            f"{label}:{line}: not {encoding} ({error}); give another {option('encoding')}"
        ) from error


def _from_other(
    data: bytes, label: str, error: UnicodeDecodeError, replace: bool
) -> tuple[bytes, str]:
    """Return UTF-8 of a text that is damaged in places, or in the encoding of Western Europe."""
    text = data.decode("utf-8", "replace")
    lost = text.count(REPLACEMENT)
    line = data.count(b"\n", 0, error.start) + 1
    byte = f"{label}:{line}: byte 0x{data[error.start]:02x}"
    intact = len(text) - lost - len(text.encode("ascii", "ignore"))
    if intact > lost:
        if replace:
            return text.encode(), ""
        raise DataError(
            f"{byte} is not UTF-8, as the rest of the file is; correct it, {_skip_advice()}, or "
            f"give its encoding, as in {option('encoding', 'latin-1')}"
        ) from error
    try:
        western = data.decode(_WESTERN)
    except UnicodeDecodeError:
        western = ""
    high = np.frombuffer(data, np.uint8) >= 0x80
    in_runs = 2 * int(np.count_nonzero(high[1:] & high[:-1])) > int(np.count_nonzero(high))
    if not western or in_runs:  # accents stand alone, letters of other scripts together
        raise DataError(
            f"{byte} is not UTF-8, and the file is not in a Western encoding either; if it is "
            f"text, give its encoding, as in {option('encoding', 'gbk')}"
        ) from error
    return western.encode(), f"read as {_WESTERN} (Latin-1), for it is not UTF-8"
