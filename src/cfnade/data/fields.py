"""Text cut into fields.

polars reads; counts of lines and separators prove that it read what is there. Where they do not
agree, or quotes are used in an unusual way, lines are walked one by one, which either finds the
bad ones or reads the table the slow way.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cfnade.exceptions import DataError

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)
SEPARATORS = {"::": '"::"', "\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
"""The usual ones and what they are called."""

SKIP = "or leave such lines out with skip_bad_lines="
TOLD = 5
"""Bad lines of which the reason is given."""

_UNIT = "\x1f"  # stands in for a separator of several characters: neither polars nor csv takes one
_QUOTE = "\x1e"  # stands in for a quote that a backslash keeps from closing its field
_ESCAPED = re.compile(rb'\\([\\"])')
_RECORD = 10_000  # lines that a quoted field may go on for


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

    @property
    def called(self) -> str:
        """The separator in words."""
        return SEPARATORS.get(self.separator, f'"{self.separator}"')


@dataclass(frozen=True)
class Table:
    """Columns "0", "1" … of strings, null where empty; `lines` are those of the rows, from 0."""

    frame: pl.DataFrame
    lines: Sequence[int]

    def line(self, row: int) -> int:
        """The line of a row, from 1 as people count."""
        return self.lines[row] + 1

    def only(self, rows: pl.Series) -> Table:
        """The rows where it is true."""
        return Table(self.frame.filter(rows), [self.lines[row] for row in rows.arg_true()])


class BadLines:
    """Lines that cannot be read: the first is an error, or all are left out, counted and told.

    Lines count from 0 here and from 1 in words.
    """

    def __init__(self, label: str, skip: bool = False) -> None:
        self.label, self.skip = label, skip
        self._reasons: dict[int, str] = {}

    def add(self, line: int, reason: str, cure: str) -> None:
        """Leave a line out, or raise."""
        if not self.skip:
            raise DataError(f"{self.label}:{line + 1}: {reason}; {cure}, {SKIP}")
        self._reasons.setdefault(line, reason)

    def __str__(self) -> str:
        """Empty if there are none."""
        if not self._reasons:
            return ""
        lines = sorted(self._reasons)
        told = "; ".join(f"line {line + 1}: {self._reasons[line]}" for line in lines[:TOLD])
        more = "; …" if len(lines) > TOLD else ""
        plural = "s" if len(lines) > 1 else ""
        return f"skipped {len(lines):,} bad line{plural} ({told}{more})"


def cut_fields(data: bytes, shape: TextShape, bad: BadLines) -> Table:
    """Cut clean text into fields, as many in every line as the shape says."""
    data = _with_one_byte_separators(data, shape, bad.label)
    first = int(shape.header)
    quotes = shape.quoted and b'"' in data
    escaped = quotes and _escapes_quotes(data, shape.cut)
    if escaped:
        data = _without_escapes(data)
    orderly = not quotes or encloses_fields(data, shape.cut)
    if orderly and b"\r" not in data:
        start = data.find(b"\n") + 1 if shape.header else 0
        frame = _fast(data[start:], shape, quotes)
        if frame is not None and (start > 0 or not shape.header):
            return Table(_restored(frame, escaped), range(first, first + frame.height))
    table = _slow(data, shape, bad)
    return Table(_restored(table.frame, escaped), table.lines)


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


# -- quotes ---------------------------------------------------------------------------------------


def uses_quotes(data: bytes, cut: str) -> bool:
    """Whether all double quotes of a text put fields in quotes, or a backslash stands before."""
    if encloses_fields(data, cut):
        return True
    plain = _without_escapes(data)
    return plain != data and b'"' in plain and encloses_fields(plain, cut)


def encloses_fields(data: bytes, cut: str) -> bool:
    """Whether every double quote stands at the edge of a field, so that it must be quoting."""
    separator = cut.encode()
    opening = data.count(separator + b'"') + data.count(b'\n"') + data.startswith(b'"')
    closing = data.count(b'"' + separator) + data.count(b'"\n') + data.endswith(b'"')
    return opening == closing and opening + closing == data.count(b'"')


def _escapes_quotes(data: bytes, cut: str) -> bool:
    """Whether quotes inside fields are written with a backslash, as in "\\"0210000010", and not
    doubled: then one of them stands where no field could end, or without them all is in order.
    """
    if b"\\" not in data or _QUOTE.encode() in data:  # one byte is looked for far faster than two
        return False
    if re.search(rb'\\"[^"\n' + re.escape(cut.encode()) + rb"]", data):
        return True
    return not encloses_fields(data, cut) and encloses_fields(_without_escapes(data), cut)


def _without_escapes(data: bytes) -> bytes:
    return _ESCAPED.sub(lambda pair: _QUOTE.encode() if pair[1] == b'"' else b"\\", data)


def _restored(frame: pl.DataFrame, escaped: bool) -> pl.DataFrame:
    if not escaped:
        return frame
    return frame.with_columns(pl.all().str.replace_all(_QUOTE, '"', literal=True))


# -- lines ----------------------------------------------------------------------------------------


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


def _slow(data: bytes, shape: TextShape, bad: BadLines) -> Table:
    lines: list[int] = []
    columns: list[list[str | None]] = [[] for _ in range(shape.width)]
    for line, fields in _records(data.decode().split("\n"), shape, bad):
        lines.append(line)
        for column, text in zip(columns, fields, strict=True):
            column.append(text or None)
    first = int(shape.header)
    if len(lines) == first:
        raise DataError(f"{bad.label}: holds a header and no ratings")
    series = {str(i): pl.Series(texts[first:], dtype=pl.String) for i, texts in enumerate(columns)}
    return Table(pl.DataFrame(series), lines[first:])


def _records(lines: list[str], shape: TextShape, bad: BadLines) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line, from 0, and its fields, as many as there must be."""

    def rest(start: int) -> Iterator[str]:
        for place in range(start, len(lines)):
            if place > line + _RECORD:
                return  # of a quote that was never closed
            yield lines[place] + "\n"

    line = 0
    while line < len(lines):
        start, reader = line, _reader(rest(line), shape)
        try:
            for fields in reader:
                if len(fields) != shape.width:
                    bad.add(line, *_ragged(len(fields), shape))
                    break
                yield line, fields
                line = start + reader.line_num
        except csv.Error as error:
            bad.add(
                line,
                f"this line cannot be cut into fields ({error})",
                "look for a stray double quote or carriage return in it",
            )
        line += 1  # only this one: an open quote would take the next ones along


def _reader(lines: Iterator[str], shape: TextShape) -> Any:
    return csv.reader(
        lines,
        delimiter=shape.cut,
        quoting=csv.QUOTE_MINIMAL if shape.quoted else csv.QUOTE_NONE,
        strict=True,
    )


def _ragged(count: int, shape: TextShape) -> tuple[str, str]:
    """What is wrong, and what to do."""
    if count == 0:
        return "the line is blank", "remove it"
    return (
        f"the line has {count} fields, {shape.like} {shape.width} (separated by {shape.called})",
        "correct or remove the line, or give separator=",
    )
