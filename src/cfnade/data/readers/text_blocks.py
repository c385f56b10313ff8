"""Read text that is larger than memory in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.readers.files import HEAD, SourceFiles
from cfnade.data.readers.text import decode, read_block, recognize
from cfnade.exceptions import DataError

_WIDE = (b"\xff\xfe", b"\xfe\xff")  # two bytes a character: a newline may be half of one


def check_encoding(source: SourceFiles, name: str, options: LoadOptions) -> None:
    """Refuse text that cannot be cut at newline bytes."""
    wide = (options.encoding or "").lower().startswith(("utf-16", "utf-32"))
    if wide or source.head(name).startswith(_WIDE):
        raise DataError(
            f"{source.path}: is text of two or four bytes a character, which cannot be read in "
            "blocks; save it as UTF-8 or Parquet"
        )


def read_blocks(
    source: SourceFiles, name: str, options: LoadOptions, size: int
) -> Iterator[tuple[RawTable, str]]:
    """Yield the ratings of each block of lines, and a description of the lines it skipped.

    Times and titles are not read.
    """
    label, skip, head = str(source.path), options.skip_bad_lines, source.head(name)
    if not head.strip():
        return
    is_whole = len(head) < HEAD
    lines = head if is_whole else head[: head.rfind(b"\n") + 1]
    data, _ = decode(lines, label, options.encoding, replace=True)
    dialect, roles = recognize(data, label, options)
    dialect, roles = replace(dialect, names=None), replace(roles, time=None)
    is_quoted = source.plain_path(name) is None or (b'"' in head and dialect.quoted)
    for block, first_line in iter_text_blocks(source.blocks(name), size, is_quoted=is_quoted):
        if not block.strip():
            continue
        data, _ = decode(block, label, options.encoding, replace=skip, first_line=first_line)
        if first_line > 1:
            dialect = replace(dialect, header=False)
        if dialect.header and b"\n" not in data:
            continue
        table = read_block(data, dialect, roles, label, skip_bad_lines=skip, first_line=first_line)
        yield table, table.description


def iter_text_blocks(
    pieces: Iterator[bytes], size: int, *, is_quoted: bool = True
) -> Iterator[tuple[bytes, int]]:
    """Yield all lines in blocks of about so many bytes, each with the number of its first line.

    Args:
        pieces: The content of a file.
        size: Bytes of a block.
        is_quoted: Whether a line end between quotes does not end a line.
    """
    held, length, first_line = [b""], 0, 1
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            data = b"".join(held)
            end = _last_line_end(data) if is_quoted else data.rfind(b"\n") + 1
            if end:
                yield data[:end], first_line
                first_line += data.count(b"\n", 0, end)
                data = data[end:]
            held, length = [data], len(data)
    yield b"".join(held), first_line


def _last_line_end(data: bytes) -> int:
    """Return the place after the last newline that is outside of quotes."""
    end = data.rfind(b"\n") + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end
