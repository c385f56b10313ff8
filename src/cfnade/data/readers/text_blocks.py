"""Read text that is larger than memory in blocks of whole lines."""

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
    lines: int  # lines before it


def check_encoding(path: Path, options: LoadOptions, member: str = "") -> None:
    """Refuse text that cannot be cut at newline bytes. `member` names the file in a zip archive."""
    wide = (options.encoding or "").lower().startswith(("utf-16", "utf-32"))
    if wide or _head(path, member).startswith(_WIDE):
        raise DataError(
            f"{path}: is text of two or four bytes a character, which cannot be read in blocks; "
            "save it as UTF-8 or Parquet"
        )


def read_blocks(
    path: Path, options: LoadOptions, size: int, member: str = ""
) -> Iterator[tuple[RawTable, str]]:
    """Yield the ratings of each block of lines, and a description of the lines it skipped."""
    head = _head(path, member)
    if not head.strip():
        return
    layout = _layout(path, head, options)
    is_quoted = bool(compression_of(path)) or (b'"' in head and layout[0].quoted)
    for block in iter_text_blocks(path, size, member, is_quoted=is_quoted):
        try:
            table = _read(path, block, layout, options)
        except DataError as error:
            raise DataError(_renumber(str(error), path, block)) from error
        if table is not None:
            locate = partial(_locate, table.locate, path, block)
            yield replace(table, locate=locate), table.description


def iter_text_blocks(
    path: Path, size: int, member: str = "", *, is_quoted: bool = True
) -> Iterator[TextBlock]:
    """Yield all lines of a file in blocks of about so many bytes.

    Args:
        is_quoted: Whether a line end between quotes does not end a line.
    """
    held, length, lines = [b""], 0, 0
    for piece in _chunks(path, member):
        held.append(piece)
        length += len(piece)
        if length >= size:
            data = b"".join(held)
            end = _last_line_end(data) if is_quoted else data.rfind(b"\n") + 1
            if end:
                yield TextBlock(data[:end], lines)
                lines += data.count(b"\n", 0, end)
                data = data[end:]
            held, length = [data], len(data)
    yield TextBlock(b"".join(held), lines)


def _last_line_end(data: bytes) -> int:
    """Return the place after the last newline that is outside of quotes."""
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
    if block.lines:
        dialect = replace(dialect, header=False)
    if dialect.header and b"\n" not in data:
        return None
    return read_block(data, dialect, roles, label, skip_bad_lines=skip)


def _locate(where: Locate, path: Path, block: TextBlock, row: int) -> str:
    return _renumber(where(row), path, block)


def _renumber(message: str, path: Path, block: TextBlock) -> str:
    """Return the message with lines of the file in place of lines of the block."""
    start = re.escape(f"{path}:")
    return re.sub(rf"(?<={start})\d+", lambda line: str(int(line[0]) + block.lines), message)


def _layout(path: Path, head: bytes, options: LoadOptions) -> tuple[Dialect, ColumnRoles]:
    """Return what the first lines show; times and titles are left alone."""
    lines = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
    data, _ = decode(lines, str(path), options.encoding, replace=True)
    dialect, roles = recognize(data, str(path), options)
    return replace(dialect, names=None), replace(roles, time=None)


def _chunks(path: Path, member: str) -> Iterator[bytes]:
    return iter_member_blocks(path, member, _STORED) if member else iter_blocks(path, _STORED)


def _head(path: Path, member: str) -> bytes:
    parts, length = [], 0
    for piece in _chunks(path, member):
        parts.append(piece)
        length += len(piece)
        if length >= HEAD:
            break
    return b"".join(parts)[:HEAD]
