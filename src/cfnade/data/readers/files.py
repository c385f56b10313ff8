"""Open a folder, a zip archive or a single file as named files, decompressed.

The first bytes of a file tell its compression, never its name. Whatever is wrong with a file
becomes one `DataError` that names it.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import zstandard

from cfnade.exceptions import DataError

HEAD = 1 << 20
"""Bytes that `SourceFiles.head` returns at most: one whole block in every format."""
SUFFIXES = (".gz", ".xz", ".zst", ".zstd", ".bz2", ".zip")
"""Endings of compressed files."""

_BLOCK = 1 << 20
_LAYERS = 3  # a.gz inside a.zip is common; deeper nesting is a mistake or a trap
_DEPTH = 4  # folders below the given one
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_MAGIC = 16  # bytes that tell a compression
# Not gzip.open and its like: bz2 and lzma ignore what follows a stream, zstandard a missing end.
_DECOMPRESSORS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(31)),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30)),
    b"\x28\xb5\x2f\xfd": ("zstd", lambda: zstandard.ZstdDecompressor().decompressobj()),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
}
_WORKBOOKS = {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}  # members of xlsx, xlsb, ods
_DAMAGED = "the file may be truncated or damaged: fetch it again"
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX(/|$)|$)")  # and folders


class SourceFiles:
    """Named files: those of a folder or of a zip archive, or a single one.

    Attributes:
        path: What was opened.
        archive: The zip archive, None for files on disk.
        names: Paths of the files in it with forward slashes, sorted.
    """

    def __init__(
        self, path: Path, members: Mapping[str, Any], archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path, self.archive, self.names = path, archive, sorted(members)
        self._members = members
        self._heads: dict[str, bytes] = {}

    def label(self, name: str) -> str:
        """Return what messages call a file."""
        single = self.archive is None and self.path.is_file()
        return name if single else f"{self.path.name or self.path}/{name}"

    def plain_path(self, name: str) -> Path | None:
        """Return the path of an uncompressed file on disk, which can be mapped; else None."""
        path = self._members[name]
        if self.archive is not None or _compression_of(path):
            return None
        return Path(path)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content, decompressed, block by block."""
        member = self._members[name]
        with _explain_errors(self.label(name)):
            if self.archive is not None:
                if member.flag_bits & 1:
                    raise DataError("it is encrypted; unpack the archive with its password")
                file = self.archive.open(member)
            elif member.is_file():
                file = member.open("rb")
            else:  # reading a pipe would wait
                raise DataError("it is not a regular file")
            with file:
                yield from _decompress(iter(partial(file.read, _BLOCK), b""))

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content, decompressed; only its beginning if there is a limit."""
        parts, length = [], 0
        for block in self.blocks(name):
            parts.append(block)
            length += len(block)
            if limit is not None and length >= limit:
                break
        return b"".join(parts)[:limit]

    def head(self, name: str) -> bytes:
        """Return the beginning of the content: enough to recognize a format."""
        if name not in self._heads:
            self._heads[name] = self.read(name, HEAD)
        return self._heads[name]

    def sibling(self, name: str, sibling_name: str) -> str | None:
        """Return the file in the same folder that has this bare name."""
        folder = PurePosixPath(name).parent
        siblings = [sibling for sibling in self.names if PurePosixPath(sibling).parent == folder]
        return next((sibling for sibling in siblings if bare(sibling) == sibling_name), None)


def open_source(path: Path) -> SourceFiles:
    """Return the files at a path; raise one `DataError` if there is nothing to read."""
    try:
        if path.is_dir():
            source = SourceFiles(path, _walk(path))
        elif path.is_file():
            source = SourceFiles(path, {path.name: path})
            if _compression_of(path) == "zip":
                with _explain_errors(str(path)):
                    archive = zipfile.ZipFile(path)
                if not _is_workbook(archive):
                    source = SourceFiles(path, {m.filename: m for m in _members(archive)}, archive)
        elif path.exists():
            raise DataError(
                f"{path}: is not a regular file; give a file, a folder or a zip, or send it to -"
            )
        else:
            raise DataError(f"{path}: there is no such file or folder; check the path")
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise DataError(f"{path}: cannot be opened ({_reason(error)}); check it") from error
    if not source.names:
        raise DataError(f"{path}: holds no files; give the folder or archive with the ratings")
    return source


def bare(name: str) -> str:
    """Return the last part of a name, in lower case, without a compression suffix."""
    last = PurePosixPath(name).name.lower()
    for suffix in SUFFIXES:
        last = last.removesuffix(suffix)
    return last


def _walk(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    level = [folder]
    for _ in range(_DEPTH):
        entries = [entry for parent in level for entry in parent.iterdir() if entry.name[0] != "."]
        files |= {e.relative_to(folder).as_posix(): e for e in entries if e.is_file()}
        level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    return files


def _is_workbook(archive: zipfile.ZipFile) -> bool:
    """Return whether a zip archive is a spreadsheet: xlsx, xlsb or ods."""
    names = set(archive.namelist())
    return bool(names & _WORKBOOKS) and bool(names & {"[Content_Types].xml", "mimetype"})


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without folders and hidden files."""
    return [member for member in archive.infolist() if not _HIDDEN.search(member.filename)]


# -- compression ----------------------------------------------------------------------------------


def _compression_of(start: bytes | Path) -> str | None:
    """Return how a file is compressed, "gzip", "zip" and so on, or None; by its first bytes."""
    if isinstance(start, Path):
        with start.open("rb") as file:
            start = file.read(_MAGIC)
    if start[:4] in _ZIP:
        return "zip"
    for magic, (name, _) in _DECOMPRESSORS.items():
        # "BZh" might open a text; the mark of the first block after it does not
        if start.startswith(magic) and (magic != b"BZh" or start[4:10] == b"1AY&SY"):
            return name
    return None


def _decompress(blocks: Iterator[bytes], layers: int = _LAYERS) -> Iterator[bytes]:
    """Yield the content of a file, with every compression around it undone."""
    start = b""
    while len(start) < _MAGIC and (block := next(blocks, b"")):
        start += block
    kind = _compression_of(start)
    blocks = chain([start], blocks)
    if kind is None:
        yield from blocks
    elif layers == 0:
        raise DataError(f"it is compressed more than {_LAYERS} times")
    elif kind != "zip":
        yield from _decompress(_inflate(blocks), layers - 1)
    else:
        data = b"".join(blocks)
        archive = zipfile.ZipFile(io.BytesIO(data))
        if _is_workbook(archive):
            yield data
            return
        members = _members(archive)
        if len(members) != 1:
            raise DataError(f"it is a zip archive of {len(members)} files; unpack it")
        with archive.open(members[0]) as file:
            yield from _decompress(iter(partial(file.read, _BLOCK), b""), layers - 1)


def _inflate(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the content of all streams of a file: some tools write several, or pad with zeros."""
    data = next(blocks, b"")
    while data:
        name = _compression_of(data)
        make = dict(_DECOMPRESSORS.values()).get(name or "")
        if make is None:
            raise DataError("something else follows the compressed data")
        stream = make()
        yield stream.decompress(data)
        while not stream.eof:
            data = next(blocks, b"")
            if not data:
                raise DataError(f"the {name} data ends too early")
            yield stream.decompress(data)
        data = stream.unused_data.lstrip(b"\0")
        while len(data) < _MAGIC and (more := next(blocks, b"")):
            data = (data + more).lstrip(b"\0")


@contextmanager
def _explain_errors(label: str) -> Iterator[None]:
    """Turn the errors of decoders of damaged data, of a dozen kinds, into `DataError`."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{label}: {error}; {_DAMAGED}") from error
    except Exception as error:
        raise DataError(f"{label}: cannot be read ({_reason(error)}); {_DAMAGED}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
