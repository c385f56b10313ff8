"""Delimited text, with or without header: its layout is recognised, then every line is read.

polars reads; counts of lines and separators prove that it read what is there. Where they do not
agree, or quotes are used in an unusual way, lines are walked one by one, which either finds the
first bad line or reads the table the slow way.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from cfnade.data.columns import Columns, numbers, text_ids, times
from cfnade.data.roles import ReadOptions, Roles, choose
from cfnade.errors import DataError

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)

_UNIT = "\x1f"  # stands in for a separator of several characters: neither polars nor csv takes one
_SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
_WRITTEN = {"\\t": "\t", "tab": "\t"}  # as shells and people write it
_LINES = 50  # that are looked at
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class TextShape:
    """How a text is cut into fields."""

    separator: str  # as it stands in the file
    quoted: bool  # whether a field may be put in double quotes
    width: int
    header: bool
    like: str = "the first line"  # what has that many fields, for messages

    @property
    def cut(self) -> str:
        """The one character that is cut at."""
        return self.separator if len(self.separator.encode()) == 1 else _UNIT


@dataclass(frozen=True)
class Layout:
    """What there is to know of a text before it is read."""

    shape: TextShape
    names: tuple[str, ...] | None
    roles: Roles

    def __str__(self) -> str:
        name = _NAMES.get(self.shape.separator, f'"{self.shape.separator}"')
        positions = self.roles.positions()
        if self.names is not None:
            columns = ", ".join(self.names[position] for position in positions)
            return f"{name}-separated text with header: {columns}"
        roles = ", ".join(("user", "item", "rating", "time")[: len(positions)])
        places = ", ".join(str(position) for position in positions)
        return f"{name}-separated text without header: {roles} in columns {places}"


@dataclass(frozen=True)
class Table:
    """Columns "0", "1" … of strings, null where empty; `line` is the line of a row, both from 0."""

    frame: pl.DataFrame
    line: Callable[[int], int]


def read_text(data: bytes, label: str, options: ReadOptions) -> tuple[Columns, Layout]:
    """The ratings of a text, and what was recognised."""
    data = clean(data, label, options.encoding)
    layout = recognise(data, label, options)
    return columns_of(cut_fields(data, layout.shape, label), layout.roles, label), layout


def columns_of(table: Table, roles: Roles, label: str) -> Columns:
    """Texts turned into ids, numbers and times."""

    def where(row: int) -> str:
        return f"{label}:{table.line(row) + 1}"

    column = table.frame.to_series
    return Columns(
        users=text_ids(column(roles.user), "user", where),
        items=text_ids(column(roles.item), "item", where),
        values=numbers(column(roles.rating), where),
        times=None if roles.time is None else times(column(roles.time), where),
        where=where,
    )


# -- characters -----------------------------------------------------------------------------------


def clean(data: bytes, label: str, encoding: str | None = None) -> bytes:
    """UTF-8 without byte order mark, lines ended by newlines, no blank lines at the end."""
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is not None or not data.isascii():
        data = _as_utf8(data, label, encoding)
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DataError(
            f"{label}:{line}: a NUL byte: this is not text, or it is damaged; fetch it again, or "
            'give its encoding, as in encoding="utf-16"'
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")  # as old Macs ended lines
    data = data.rstrip(b"\n ")
    if not data:
        raise DataError(f"{label}: is empty; it should hold a user, an item and a rating a line")
    return data


def _as_utf8(data: bytes, label: str, encoding: str | None) -> bytes:
    try:
        text = data.decode(encoding or "utf-8")
        return data if encoding is None else text.encode()
    except (LookupError, TypeError) as error:
        raise DataError(
            f'encoding={encoding!r} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        what = f"not {encoding} ({error}); give another encoding="
        if encoding is None:
            what = (
                f"byte 0x{data[start]:02x} is not UTF-8; if the file is in another encoding give "
            )
            what += 'it, as in encoding="latin-1"'
        line = data.count(b"\n", 0, start) + 1
        raise DataError(f"{label}:{line}: {what}") from error


# -- layout ---------------------------------------------------------------------------------------


def recognise(data: bytes, label: str, options: ReadOptions) -> Layout:
    """The layout of a clean text, from its first lines."""
    lines = [line.decode("utf-8", "replace") for line in data[: 1 << 16].split(b"\n")[:_LINES]]
    separator = _separator(lines, label, options.separator)
    quoted = len(separator.encode()) == 1 and (separator != "\t" or _encloses_fields(data, b"\t"))
    fields = _split(lines[0], separator, quoted)
    header = options.header
    if header is None:  # a rating is a number, a column's name is not
        header = not any(_NUMBER.fullmatch(text) for text in fields)
    names = tuple(name.strip() for name in fields) if header else None
    shape = TextShape(separator, quoted, len(fields), header)
    return Layout(shape, names, choose(names, len(fields), options, label))


def _separator(lines: list[str], label: str, asked: str | None) -> str:
    if asked is not None:
        separator = _WRITTEN.get(asked, asked)
        if not separator or set(separator) & set('\r\n"\0'):
            raise DataError(f'separator={asked!r} cannot separate fields; give one such as ","')
        return separator
    best: tuple[tuple[int, bool, int], str | None] = (0, False, 0), None
    for separator in _SEPARATORS:
        widths = Counter(len(_split(line, separator, len(separator) == 1)) for line in lines)
        width, count = max(widths.items(), key=lambda pair: (pair[0] >= 3, pair[1]))
        merit = count, separator != " ", width
        if width >= 3 and merit > best[0]:
            best = merit, separator
    if best[1] is None:
        raise DataError(
            f"{label}:1: no separator cuts the lines into a user, an item and a rating; the first "
            f"line is {lines[0][:60]!r}. Give separator= if it has one"
        )
    return best[1]


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


def cut_fields(data: bytes, shape: TextShape, label: str) -> Table:
    """Cut clean text into fields, as many in every line as the shape says."""
    data = _with_one_byte_separators(data, shape, label)
    first = int(shape.header)
    quotes = shape.quoted and b'"' in data
    orderly = not quotes or _encloses_fields(data, shape.cut.encode())
    if orderly and b"\r" not in data:
        start = data.find(b"\n") + 1 if shape.header else 0
        frame = _fast(data[start:], shape, quotes)
        if frame is not None and (start > 0 or not shape.header):
            return Table(frame, lambda row: row + first)
    return _slow(data, shape, label)


def _with_one_byte_separators(data: bytes, shape: TextShape, label: str) -> bytes:
    """The text with a separator of one byte, and one only between two fields."""
    if shape.separator == " ":
        if b"  " in data or b"\n " in data or b" \n" in data or data.startswith(b" "):
            data = re.sub(rb" +", b" ", data).replace(b"\n ", b"\n").replace(b" \n", b"\n")
        return data.removeprefix(b" ")
    if shape.cut == shape.separator:
        return data
    if _UNIT.encode() in data:
        raise DataError(
            f"{label}: holds the control byte 0x1f, which stands for {shape.separator!r} while "
            "reading; remove it"
        )
    return data.replace(shape.separator.encode(), _UNIT.encode())


def _encloses_fields(data: bytes, separator: bytes) -> bool:
    """Whether every double quote stands at the edge of a field, so that it must be quoting."""
    opening = data.count(separator + b'"') + data.count(b'\n"') + data.startswith(b'"')
    closing = data.count(b'"' + separator) + data.count(b'"\n') + data.endswith(b'"')
    return opening == closing and opening + closing == data.count(b'"')


def _fast(data: bytes, shape: TextShape, quotes: bool) -> pl.DataFrame | None:
    """The table as polars reads it, or None unless its counts prove that no line is ragged."""
    lines = _count(data, "\n") + 1
    if not quotes and _count(data, shape.cut) != lines * (shape.width - 1):
        return None
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            separator=shape.cut,
            quote_char='"' if quotes else None,
            schema={str(i): pl.String for i in range(shape.width)},
        )
    except POLARS_ERRORS:
        return None
    # polars refuses a line that is too long. None is too short, as the sum is right or, where
    # quotes hide separators, as each line's last field is there.
    whole = not quotes or frame.to_series(shape.width - 1).null_count() == 0
    return frame if frame.height == lines and whole else None


def _count(data: bytes, byte: str) -> int:
    """As `data.count`, which is ten times slower where a byte is frequent."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(byte)))


def _slow(data: bytes, shape: TextShape, label: str) -> Table:
    records = list(_records(data, shape, label))[int(shape.header) :]
    if not records:
        raise DataError(f"{label}: holds a header and no ratings")
    lines, fields = zip(*records, strict=True)
    columns = {
        str(i): pl.Series([text or None for text in column], dtype=pl.String)
        for i, column in enumerate(zip(*fields, strict=True))
    }
    return Table(pl.DataFrame(columns), lines.__getitem__)


def _records(data: bytes, shape: TextShape, label: str) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line, from 0, and its fields, as many as there must be."""
    reader = csv.reader(
        io.StringIO(data.decode(), newline="\n"),
        delimiter=shape.cut,
        quoting=csv.QUOTE_MINIMAL if shape.quoted else csv.QUOTE_NONE,
        strict=True,
    )
    line = 0
    try:
        for fields in reader:
            if len(fields) != shape.width:
                raise DataError(_ragged(len(fields), shape, f"{label}:{line + 1}"))
            yield line, fields
            line = reader.line_num
    except csv.Error as error:
        raise DataError(
            f"{label}:{line + 1}: this line cannot be cut into fields ({error}); look for a stray "
            "double quote or carriage return in it"
        ) from error


def _ragged(count: int, shape: TextShape, place: str) -> str:
    if count == 0:
        return f"{place}: the line is blank; remove it"
    name = _NAMES.get(shape.separator, repr(shape.separator))
    return (
        f"{place}: the line has {count} fields, {shape.like} {shape.width} (separated by {name}); "
        "correct or remove the line, or give separator="
    )
