"""Text too large for memory, read in blocks of whole lines.

A plain file is cut at any line, so that many tasks can read it. One that is compressed, or in which
quotes may hide a line's end, is read from its start to its end by one task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cfnade.data.column_roles import ColumnRoles
from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import Locate, RawTable
from cfnade.data.readers.files import HEAD, compression_of, iter_blocks, iter_member_blocks
from cfnade.data.readers.text import Dialect, decode, read_block, recognize
from cfnade.exceptions import DataError

_WIDE = (b"\xff\xfe", b"\xfe\xff")  # two bytes a character: a newline may be half of one
_STORED = 1 << 20  # bytes of a compressed file read at a time


class TextBlock(NamedTuple):
    """Some whole lines of a text."""

    data: bytes
    begin: int  # the byte at which it begins, of a plain file
    lines: int | None = None  # lines before it; counted only if somebody asks

    @property
    def first(self) -> bool:
        return self.begin == 0 and not self.lines


def is_whole_stream(path: Path, options: LoadOptions, member: str = "") -> bool:
    """Whether a text must be read by one task. `member` names the file in a zip archive."""
    head = _head(path, member)
    if head.startswith(_WIDE) or (options.encoding or "").lower().startswith(("utf-16", "utf-32")):
        raise DataError(
            f"{path}: is text of two or four bytes a character, which cannot be read in pieces; "
            "save it as UTF-8 or Parquet"
        )
    if compression_of(path):
        return True
    return b'"' in head and _layout(path, head, options)[0].quoted


def read_blocks(
    path: Path, blocks: Iterator[TextBlock], options: LoadOptions, member: str = ""
) -> Iterator[tuple[RawTable, str]]:
    """The ratings of each block that has some, and in words which lines were skipped."""
    layout: tuple[Dialect, ColumnRoles] | None = None
    for block in blocks:
        layout = layout or _layout(path, _head(path, member), options)
        try:
            read = _read(path, block, layout, options)
        except DataError as error:
            raise DataError(_renumbered(str(error), path, block)) from error
        if read is not None:
            yield replace(read, locate=partial(_place, read.locate, path, block)), read.description


def lines_between(path: Path, first: int, last: int, size: int) -> Iterator[TextBlock]:
    """The lines of a plain file that begin at bytes first ≤ i < last, as one block."""
    with path.open("rb") as file:
        if first:
            file.seek(first - 1)
            first += len(file.readline()) - 1
        if first >= last:
            return
        file.seek(first)
        data = file.read(last - first)
        if not data.endswith(b"\n") and last < size:
            data += file.readline()
    yield TextBlock(data, first)


def lines_of_stream(path: Path, size: int, member: str = "") -> Iterator[TextBlock]:
    """All lines of a file in blocks of about so many bytes."""
    held, length, lines = [b""], 0, 0
    for piece in _blocks(path, member):
        held.append(piece)
        length += len(piece)
        if length >= size:
            data = b"".join(held)
            end = _last_line_end(data)
            if end:
                yield TextBlock(data[:end], 0, lines)
                lines += data.count(b"\n", 0, end)
                data = data[end:]
            held, length = [data], len(data)
    yield TextBlock(b"".join(held), 0, lines)


def _last_line_end(data: bytes) -> int:
    """Behind the last newline that is outside of quotes."""
    end = data.rfind(b"\n") + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def _read(
    path: Path, block: TextBlock, layout: tuple[Dialect, ColumnRoles], options: LoadOptions
) -> RawTable | None:
    if not block.data.strip():
        return None
    label, skip = str(path), options.skip_bad_lines
    data, _ = decode(block.data, label, options.encoding, replace=skip)
    dialect, roles = layout
    if not block.first:
        dialect = replace(dialect, header=False)
    if dialect.header and b"\n" not in data:
        return None
    return read_block(data, dialect, roles, label, skip_bad_lines=skip)


def _place(where: Locate, path: Path, block: TextBlock, row: int) -> str:
    return _renumbered(where(row), path, block)


def _renumbered(message: str, path: Path, block: TextBlock) -> str:
    """The message with lines of the file where it has lines of the block."""
    before = block.lines
    if before is None:
        with path.open("rb") as file:
            steps = range(0, block.begin, _STORED)
            before = sum(file.read(min(_STORED, block.begin - a)).count(b"\n") for a in steps)
    start = re.escape(f"{path}:")
    return re.sub(rf"(?<={start})\d+", lambda line: str(int(line[0]) + before), message)


def _layout(path: Path, head: bytes, options: LoadOptions) -> tuple[Dialect, ColumnRoles]:
    """Return what the first lines show; times and titles are left alone."""
    lines = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
    data, _ = decode(lines, str(path), options.encoding, replace=True)
    dialect, roles = recognize(data, str(path), options)
    return replace(dialect, names=None), replace(roles, time=None)


def _blocks(path: Path, member: str) -> Iterator[bytes]:
    return iter_member_blocks(path, member, _STORED) if member else iter_blocks(path, _STORED)


def _head(path: Path, member: str) -> bytes:
    parts, length = [], 0
    for piece in _blocks(path, member):
        parts.append(piece)
        length += len(piece)
        if length >= HEAD:
            break
    return b"".join(parts)[:HEAD]
