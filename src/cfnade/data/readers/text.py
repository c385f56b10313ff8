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
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, ColumnRoles, assign_roles, find_name
from cfnade.data.raw_table import (
    REPLACEMENT,
    RawTable,
    bad_rows,
    describe_items,
    explain_row,
    first_true,
    parse_columns,
)
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
_NUMBER = r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*"
_VALUE = re.compile(rf"{_NUMBER}|\s*(true|false)\s*", re.IGNORECASE)
_RECBOLE = re.compile(r":(token|token_seq|float|float_seq)$", re.IGNORECASE)
_NEWLINE = b"\n"
_WESTERN = "cp1252"  # Latin-1 and what Windows adds to it


@dataclass(frozen=True)
class Dialect:
    """How a text is cut into fields."""

    separator: str  # as in the file
    quoted: bool  # whether a field may be put in double quotes
    width: int
    header: bool
    names: tuple[str, ...] | None = None
    sequences: tuple[str, ...] = ()  # names of RecBole's columns of several tokens

    @property
    def cut(self) -> str:
        """The single character to split at."""
        return self.separator if len(self.separator.encode()) == 1 else _UNIT


@dataclass(frozen=True)
class FieldTable:
    """Columns "0", "1" … of strings, null where empty."""

    frame: pl.DataFrame
    lines: Sequence[int]
    """Line of each row, from 1."""
    skipped: dict[int, str]
    """Lines that were left out, and why."""


def read_text(data: bytes, label: str, options: LoadOptions) -> RawTable:
    """Return the ratings of a text, with a description of what was recognized and skipped."""
    data, note = decode(data, label, options.encoding, replace=options.skip_bad_lines)
    dialect, roles = recognize(data, label, options)
    table = read_block(data, dialect, roles, label, skip_bad_lines=options.skip_bad_lines)
    parts = [_describe_layout(dialect, roles), note, table.description]
    return replace(table, description="; ".join(filter(None, parts)))


def _describe_layout(dialect: Dialect, roles: ColumnRoles) -> str:
    """Return the dialect and the columns that are read, in words."""
    separator = SEPARATORS.get(dialect.separator, f'"{dialect.separator}"')
    positions = roles.positions()
    if dialect.names is not None:
        columns = ", ".join(dialect.names[place] for place in positions.values())
        return f"{separator}-separated text with header: {columns}"
    columns = f"{', '.join(positions)} in columns {', '.join(map(str, positions.values()))}"
    return f"{separator}-separated text without header: {columns}"


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
    first_line: int = 1,
) -> RawTable:
    """Return the ratings of a clean text, or of some whole lines of one.

    Args:
        data: Clean text.
        dialect: How it is cut into fields.
        roles: Which column is which.
        label: The source's name in messages.
        skip_bad_lines: Whether to leave bad lines out; else the first one is an error.
        first_line: Number of the first line of `data` in the source.
    """
    table = read_fields(data, dialect, label, skip_bad_lines=skip_bad_lines, first_line=first_line)
    frame, lines, skipped = table.frame, table.lines, table.skipped
    names, assumed = dialect.names, ""
    if roles.implicit_assumed:
        assumed = roles.check_no_rating_ignored(names, frame.to_series, dialect.width, label)
    while True:
        columns = {role: frame.to_series(place) for role, place in roles.positions().items()}
        parsed, note = parse_columns(
            columns,
            lambda row, _role, lines=lines: f"{label}:{lines[row]}",  # type: ignore[misc]
            is_text=True,
            time_required=not roles.time_assumed,
        )
        bad = bad_rows(parsed)
        if bad is None:
            break
        if bool(bad.all()) or not skip_bad_lines:
            row = first_true(bad)
            _, reason, remedy = explain_row(row, parsed, columns)
            hint = "" if bool(bad.all()) else f", or {_skip_advice()}"
            raise DataError(f"{label}:{lines[row]}: {reason}; {remedy}{hint}")
        for count, row in enumerate(bad.arg_true()):
            reason = explain_row(row, parsed, columns)[1] if count < _EXPLAINED else ""
            skipped[lines[row]] = reason
        frame, lines = frame.filter(~bad), [lines[row] for row in (~bad).arg_true()]
    texts = {kind: frame.to_series(p) for kind, p in roles.item_columns(names or ()).items()}
    return RawTable(
        frame=parsed,
        locate=lambda row: f"{label}:{lines[row]}",
        label=label,
        description="; ".join(filter(None, [_describe_skipped(skipped) if skipped else "", note])),
        assumed=assumed,
        item_table=describe_items(parsed, texts) if texts else None,
        rating_column=roles.rating if roles.rating is None or not names else names[roles.rating],
    )


def _skip_advice() -> str:
    return f"leave such lines out with {option('skip_bad_lines', True)}"


def _describe_skipped(skipped: dict[int, str]) -> str:
    reasons = "; ".join(f"line {n}: {skipped[n]}" for n in sorted(skipped)[:_EXPLAINED])
    reasons += "; …" if len(skipped) > _EXPLAINED else ""
    return f"skipped {len(skipped):,} bad line{'s' * (len(skipped) > 1)} ({reasons})"


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
    if not header:
        return Dialect(separator, quoted, len(fields), header)
    names = tuple([_RECBOLE.sub("", text.strip()) for text in fields])
    types = [text.strip().lower().rpartition(":")[2] for text in fields]
    sequences = tuple([n for n, type_ in zip(names, types, strict=True) if type_ == "token_seq"])
    return Dialect(separator, quoted, len(fields), header, names, sequences)


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
    best, pairs = (
        max((m for m in merits if m[2] >= width), key=itemgetter(0, 1, 2), default=(0, 0, 0, None))
        for width in (min_columns or 3, 2)
    )
    if min_columns is not None:
        return best[3]
    for separator in SEPARATORS:
        names = [_RECBOLE.sub("", text.strip()) for text in rows[separator][0]]
        places = {find_name(COLUMN_NAMES[role], names) for role in ("user", "item")}
        if len(names) == 2 and places == {0, 1}:
            return separator
    return pairs[3] if 2 * best[0] < len(lines) and best[0] < pairs[0] else best[3]


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


def read_fields(
    data: bytes,
    dialect: Dialect,
    label: str,
    *,
    skip_bad_lines: bool = False,
    first_line: int = 1,
) -> FieldTable:
    """Cut clean text into fields, as many in each line as the dialect has."""
    if len(dialect.separator.encode()) > 1:
        if _UNIT.encode() in data:
            raise DataError(
                f"{label}: holds the control byte 0x1f, which stands for {dialect.separator!r} "
                "while reading; remove it"
            )
        data = data.replace(dialect.separator.encode(), _UNIT.encode())
    elif dialect.separator == " ":  # one between two fields, and none at the ends
        if b"  " in data or b"\n " in data or b" \n" in data or data.startswith(b" "):
            data = re.sub(rb" +", b" ", data).replace(b"\n ", b"\n").replace(b" \n", b"\n")
        data = data.removeprefix(b" ")
    frame = _read_fast(data, dialect)
    if frame is not None:
        start = first_line + dialect.header
        return FieldTable(frame, range(start, start + frame.height), {})
    records, bad = _read_records(data, dialect)
    skipped = {first_line + line: reason for line, (reason, _) in bad.items()}
    if bad and not skip_bad_lines:
        line = min(bad)
        reason, remedy = bad[line]
        raise DataError(f"{label}:{first_line + line}: {reason}; {remedy}, or {_skip_advice()}")
    if dialect.header:
        records = records[1:]
    if not records:
        raise DataError(f"{label}: holds a header and no ratings")
    series = {
        str(i): pl.Series([fields[i] or None for _, fields in records], dtype=pl.String)
        for i in range(dialect.width)
    }
    return FieldTable(pl.DataFrame(series), [first_line + line for line, _ in records], skipped)


def _read_fast(data: bytes, dialect: Dialect) -> pl.DataFrame | None:
    """Return the table as polars reads it, or None unless counts prove that no line is ragged."""
    quotes = dialect.quoted and b'"' in data
    # Polars takes a quote behind a backslash for the end of a field.
    if b"\r" in data or (quotes and (b"\\" in data or not _encloses_fields(data, dialect.cut))):
        return None
    if dialect.header:
        _, newline, data = data.partition(b"\n")
        if not newline:
            return None
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


def _encloses_fields(data: bytes, cut: str) -> bool:
    """Return whether every double quote stands at the edge of a field, so that it must quote."""
    separator = cut.encode()
    opening = data.count(separator + b'"') + data.count(b'\n"') + data.startswith(b'"')
    closing = data.count(b'"' + separator) + data.count(b'"\n') + data.endswith(b'"')
    return opening == closing and opening + closing == data.count(b'"')


Record = tuple[int, list[str]]
BadLines = dict[int, tuple[str, str]]
"""Reason and remedy of each bad line, by its number from 0."""


def _read_records(data: bytes, dialect: Dialect) -> tuple[list[Record], BadLines]:
    """Cut text into fields with the csv module, which finds the bad lines.

    Where a backslash may escape a quote, the reading that gives more records counts.
    """
    lines = data.decode().split("\n")
    reading = _records(lines, dialect, None)
    if dialect.quoted and b'\\"' in data:
        reading = max(_records(lines, dialect, "\\"), reading, key=lambda pair: len(pair[0]))
    return reading


def _records(
    lines: list[str], dialect: Dialect, escape: str | None
) -> tuple[list[Record], BadLines]:
    """Return the records with the line at which each begins, from 0, and the bad lines."""
    records: list[Record] = []
    bad: BadLines = {}

    def following() -> Iterator[str]:
        for place in range(line, len(lines)):
            if place > line + _MAX_RECORD:
                return  # of a quote that was never closed
            yield lines[place] + "\n"

    line = 0
    while line < len(lines):
        start = line
        reader = csv.reader(
            following(),
            delimiter=dialect.cut,
            quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
            escapechar=escape,
            strict=True,
        )
        try:
            for fields in reader:
                if len(fields) != dialect.width:
                    bad[line] = _ragged(len(fields), dialect)
                    break
                records.append((line, fields))
                line = start + reader.line_num
        except csv.Error as error:
            reason = f"this line cannot be cut into fields ({error})"
            bad[line] = reason, "look for a stray double quote or carriage return in it"
        line += 1  # this one alone: an open quote would take the next ones along
    return records, bad


def _ragged(count: int, dialect: Dialect) -> tuple[str, str]:
    if count == 0:
        return "the line is blank", "remove it"
    separator = SEPARATORS.get(dialect.separator, f'"{dialect.separator}"')
    return (
        f"the line has {count} fields, not {dialect.width} (separated by {separator})",
        f"correct or remove the line, or give {option('separator')}",
    )


# -- encoding -------------------------------------------------------------------------------------


def decode(
    data: bytes,
    label: str,
    encoding: str | None = None,
    *,
    replace: bool = False,
    first_line: int = 1,
) -> tuple[bytes, str]:
    r"""Return clean UTF-8: no byte order mark, lines ended by \n, no blank lines at the end.

    With `replace`, damaged characters become `REPLACEMENT` instead of an error. Also returns a
    note on the encoding, empty if there is nothing to say.
    """
    note, text = "", data
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        if encoding is not None:
            text = data.decode(encoding).encode()
        elif not data.isascii():
            data.decode()
    except LookupError as error:
        raise DataError(
            f'{option("encoding", encoding)} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        place = f"{label}:{first_line + data.count(_NEWLINE, 0, start)}"
        if encoding is not None:
            raise DataError(
                f"{place}: not {encoding} ({error}); give another {option('encoding')}"
            ) from error
        text, note = _decode_other(data, f"{place}: byte 0x{data[start]:02x}", replace)
    text = text.removeprefix(codecs.BOM_UTF8)
    if b"\0" in text:
        line = first_line + text.count(_NEWLINE, 0, text.index(b"\0"))
        raise DataError(
            f"{label}:{line}: a NUL byte: this is not text, or it is damaged; fetch it again, or "
            f"give its encoding, as in {option('encoding', 'utf-16')}"
        )
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
        if b"\n" not in text:
            text = text.replace(b"\r", b"\n")  # as old Macs ended lines
    text = text.rstrip(b"\n ")
    if not text:
        raise DataError(f"{label}: is empty; it should hold a user, an item and a rating a line")
    return text, note


def _decode_other(data: bytes, subject: str, replace: bool) -> tuple[bytes, str]:
    """Return UTF-8 of a text that is damaged in places, or in the encoding of Western Europe.

    `subject` names the first byte that is not UTF-8, and its place.
    """
    text = data.decode("utf-8", "replace")
    lost = text.count(REPLACEMENT)
    intact = len(text) - lost - len(text.encode("ascii", "ignore"))
    if intact > lost:
        if replace:
            return text.encode(), ""
        raise DataError(
            f"{subject} is not UTF-8, as the rest of the file is; correct it, {_skip_advice()}, or "
            f"give its encoding, as in {option('encoding', 'latin-1')}"
        )
    try:
        western = data.decode(_WESTERN)
    except UnicodeDecodeError:
        western = ""
    high = np.frombuffer(data, np.uint8) >= 0x80
    in_runs = 2 * int(np.count_nonzero(high[1:] & high[:-1])) > int(np.count_nonzero(high))
    if not western or in_runs:  # accents stand alone, letters of other scripts together
        raise DataError(
            f"{subject} is not UTF-8, and the file is not in a Western encoding either; if it is "
            f"text, give its encoding, as in {option('encoding', 'gbk')}"
        )
    return western.encode(), f"read as {_WESTERN} (Latin-1), for it is not UTF-8"
