"""What a delimited text looks like: its separator, its header, its columns."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass, field

from cfnade.data.roles import Roles, Wanted, choose
from cfnade.data.text import UNIT, Shape, encloses_fields
from cfnade.errors import DataError

_SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
_WRITTEN = {"\\t": "\t", "tab": "\t"}  # as shells and people write it
_LINES = 50  # that are looked at
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Given:
    """What a person says of a text; the rest is recognised."""

    wanted: Wanted = field(default_factory=Wanted)
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class Layout:
    """What there is to know of a text before it is read."""

    separator: str  # as it stands in the file
    shape: Shape
    names: tuple[str, ...] | None
    roles: Roles

    def __str__(self) -> str:
        name = _NAMES.get(self.separator, f'"{self.separator}"')
        positions = self.roles.positions()
        if self.names is not None:
            columns = ", ".join(self.names[position].strip() for position in positions)
            return f"{name}-separated text with header: {columns}"
        roles = ", ".join(("user", "item", "rating", "time")[: len(positions)])
        return f"{name}-separated text without header: {roles} in columns " + ", ".join(
            str(position) for position in positions
        )


def recognise(data: bytes, label: str, given: Given) -> Layout:
    """The layout of a clean text, from its first lines."""
    lines = [line.decode("utf-8", "replace") for line in data[: 1 << 16].split(b"\n")[:_LINES]]
    separator = _separator(lines, label, given.separator)
    single = len(separator.encode()) == 1
    quoted = single and (separator != "\t" or encloses_fields(data, b"\t"))
    fields = _cut(lines[0], separator, quoted)
    header = _has_header(fields, given)
    names = tuple(name.strip() for name in fields) if header else None
    return Layout(
        separator,
        Shape(separator if single else UNIT, quoted, len(fields), header),
        names,
        choose(names, len(fields), given.wanted, label),
    )


def prepared(data: bytes, layout: Layout, label: str) -> bytes:
    """The text with a separator of one byte, and one only between two fields."""
    if layout.separator == " ":
        if b"  " in data or b"\n " in data or b" \n" in data or data.startswith(b" "):
            data = re.sub(rb" +", b" ", data).replace(b"\n ", b"\n").replace(b" \n", b"\n")
        return data.removeprefix(b" ")
    if layout.shape.separator != UNIT:
        return data
    if UNIT.encode() in data:
        raise DataError(
            f"{label}: holds the control byte 0x1f, which stands for {layout.separator!r} while "
            "reading; remove it"
        )
    return data.replace(layout.separator.encode(), UNIT.encode())


def _separator(lines: list[str], label: str, given: str | None) -> str:
    if given is not None:
        separator = _WRITTEN.get(given, given)
        if not separator or set(separator) & set('\r\n"\0'):
            raise DataError(f'separator={given!r} cannot separate fields; give one such as ","')
        return separator
    best: tuple[int, bool, int] = (0, False, 0)
    found = None
    for separator in _SEPARATORS:
        widths = Counter(len(_cut(line, separator, len(separator) == 1)) for line in lines)
        width, count = max(widths.items(), key=lambda pair: (pair[0] >= 3, pair[1]))
        if width >= 3 and (count, separator != " ", width) > best:
            best, found = (count, separator != " ", width), separator
    if found is None:
        raise DataError(
            f"{label}:1: no separator cuts the lines into a user, an item and a rating; the first "
            f"line is {lines[0][:60]!r}. Give separator= if it has one"
        )
    return found


def _cut(line: str, separator: str, quoted: bool) -> list[str]:
    if separator == " ":
        line = re.sub(" +", " ", line).strip(" ")
    if not quoted:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def _has_header(fields: list[str], given: Given) -> bool:
    """A first line without any number is a header: a rating is one, a column's name is not."""
    if given.header is not None:
        return given.header
    return not any(_NUMBER.fullmatch(text) for text in fields)
