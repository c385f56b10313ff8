"""Delimited text as a strict table of strings: every line has as many fields as the first.

polars reads; counts of lines and separators prove that it read what is there. Where they do not
agree, or quotes are used in an unusual way, lines are walked one by one, which either finds the
first bad line or reads the table the slow way.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from cfnade.errors import DataError

UNIT = "\x1f"
"""Stands in for a separator of several characters, which neither polars nor csv can take."""

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)


@dataclass(frozen=True)
class Shape:
    """How a text is cut into fields."""

    separator: str  # one character
    quoted: bool  # whether a field may be put in double quotes
    width: int
    header: bool


@dataclass(frozen=True)
class Table:
    """Columns "0", "1" … of strings, null where empty; `line` is the line of a row, both from 0."""

    frame: pl.DataFrame
    line: Callable[[int], int]


def clean(data: bytes, label: str, encoding: str | None = None) -> bytes:
    """UTF-8 without byte order mark, lines ended by newlines, no blank lines at the end."""
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is not None:
        data = _recoded(data, label, encoding)
    elif not data.isascii():
        _check_utf8(data, label)
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


def table(data: bytes, shape: Shape, label: str) -> Table:
    """Cut clean text into fields."""
    first = int(shape.header)
    quotes = shape.quoted and b'"' in data
    orderly = not quotes or encloses_fields(data, shape.separator.encode())
    if orderly and b"\r" not in data:
        start = data.find(b"\n") + 1 if shape.header else 0
        frame = _fast(data[start:], shape, quotes)
        if frame is not None and (start > 0 or not shape.header):
            return Table(frame, lambda row: row + first)
    return _slow(data, shape, label)


def encloses_fields(data: bytes, separator: bytes) -> bool:
    """Whether every double quote stands at the edge of a field, so that it must be quoting."""
    opening = data.count(separator + b'"') + data.count(b'\n"') + data.startswith(b'"')
    closing = data.count(b'"' + separator) + data.count(b'"\n') + data.endswith(b'"')
    return opening == closing and opening + closing == data.count(b'"')


def _fast(data: bytes, shape: Shape, quotes: bool) -> pl.DataFrame | None:
    """The table as polars reads it, or None unless its counts prove that no line is ragged."""
    lines = _count(data, "\n") + 1
    if not quotes and _count(data, shape.separator) != lines * (shape.width - 1):
        return None
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            separator=shape.separator,
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


def _slow(data: bytes, shape: Shape, label: str) -> Table:
    columns: list[list[str | None]] = [[] for _ in range(shape.width)]
    lines: list[int] = []
    for line, fields in _records(data, shape, label):
        if line == 0 and shape.header:
            continue
        lines.append(line)
        for column, field in zip(columns, fields, strict=True):
            column.append(field or None)
    if not lines:
        raise DataError(f"{label}: holds a header and no ratings")
    frame = pl.DataFrame(
        {str(i): pl.Series(column, dtype=pl.String) for i, column in enumerate(columns)}
    )
    return Table(frame, lines.__getitem__)


def _records(data: bytes, shape: Shape, label: str) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line, from 0, and its fields, as many as there must be."""
    file = io.StringIO(data.decode(), newline="\n")
    reader = csv.reader(
        file,
        delimiter=shape.separator,
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


def _ragged(count: int, shape: Shape, place: str) -> str:
    if count == 0:
        return f"{place}: the line is blank; remove it"
    name = {"\t": "tab", UNIT: "the separator"}.get(shape.separator, repr(shape.separator))
    return (
        f"{place}: the line has {count} fields, the first line {shape.width} (separated by "
        f"{name}); correct or remove the line, or give separator="
    )


def _check_utf8(data: bytes, label: str) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{label}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; if the file is in "
            'another encoding give it, as in encoding="latin-1"'
        ) from error


def _recoded(data: bytes, label: str, encoding: str) -> bytes:
    try:
        return data.decode(encoding).encode("utf-8")
    except (LookupError, TypeError) as error:
        raise DataError(
            f'encoding={encoding!r} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        raise DataError(
            f"{label}:{line}: not {encoding} ({error}); give another encoding="
        ) from error
