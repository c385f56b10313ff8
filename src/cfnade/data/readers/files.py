"""Open a folder, a zip archive or one file, compressed or not, as named files.

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
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import zstandard

from cfnade.exceptions import DataError

T = TypeVar("T")

HEAD = 1 << 20
"""Bytes that `SourceFiles.head` returns at most: one whole block in every format."""

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
_SUFFIXES = (".gz", ".xz", ".zst", ".zstd", ".bz2", ".zip")
_WORKBOOKS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")  # members of xlsx, xlsb, ods
_DAMAGED = "the file may be truncated or damaged: fetch it again"


class SourceFiles:
    """Named files: those of a folder or of a zip archive, or a single one."""

    def __init__(
        self, path: Path, members: Mapping[str, Any], archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path, self.archive, self._members = path, archive, members
        self._heads: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the paths of the files with forward slashes, sorted."""
        return sorted(self._members)

    def label(self, name: str) -> str:
        """Return what messages call a file."""
        single = self.archive is None and self.path.is_file()
        return name if single else f"{self.path.name or self.path}/{name}"

    def plain_path(self, name: str) -> Path | None:
        """Return the path of an uncompressed file on disk, which can be mapped; else None."""
        if self.archive is not None or compression_of(self._members[name]):
            return None
        path: Path = self._members[name]
        return path

    def read(self, name: str) -> bytes:
        """Return the whole content, decompressed."""
        return _guard(self.label(name), lambda: b"".join(self._blocks(name)))

    def head(self, name: str) -> bytes:
        """Return the beginning of the content, decompressed: enough to recognize a format."""
        if name not in self._heads:
            self._heads[name] = _guard(self.label(name), lambda: _take(self._blocks(name), HEAD))
        return self._heads[name]

    def sibling(self, name: str, sibling_name: str) -> str | None:
        """Return the file in the same folder whose bare name is `other`."""
        folder = PurePosixPath(name).parent
        siblings = [sibling for sibling in self.names() if PurePosixPath(sibling).parent == folder]
        return next((sibling for sibling in siblings if bare(sibling) == sibling_name), None)

    def _blocks(self, name: str) -> Iterator[bytes]:
        member = self._members[name]
        if self.archive is not None:
            yield from _member_blocks(self.archive, member, _BLOCK)
            return
        if not member.is_file():  # reading a pipe would wait
            raise DataError("it is not a regular file")
        yield from _decompress(_file_blocks(member, _BLOCK))


def open_source(path: Path) -> SourceFiles:
    """Return the files at a path; raise one `DataError` if there is nothing to read."""
    try:
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder; check the path")
        if path.is_dir():
            source = SourceFiles(path, _walk(path))
        elif not path.is_file():
            raise DataError(
                f"{path}: is not a regular file; give a file, a folder or a zip, or send it to -"
            )
        elif compression_of(path) == "zip":
            archive = _guard(str(path), lambda: zipfile.ZipFile(path))
            if is_workbook(archive):
                return SourceFiles(path, {path.name: path})
            members = {member.filename: member for member in _members(archive)}
            source = SourceFiles(path, members, archive)
        else:
            source = SourceFiles(path, {path.name: path})
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise DataError(f"{path}: cannot be opened ({_reason(error)}); check it") from error
    if not source.names():
        raise DataError(f"{path}: holds no files; give the folder or archive with the ratings")
    return source


def is_workbook(archive: zipfile.ZipFile) -> bool:
    """Return whether a zip archive is a spreadsheet: xlsx, xlsb or ods."""
    names = set(archive.namelist())
    return bool(names & set(_WORKBOOKS)) and bool(names & {"[Content_Types].xml", "mimetype"})


def bare(name: str) -> str:
    """Return the last part of a name, in lower case, without a compression suffix."""
    last = PurePosixPath(name).name.lower()
    for suffix in _SUFFIXES:
        last = last.removesuffix(suffix)
    return last


def iter_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file, decompressed; `size` bytes of the file at a time."""
    blocks = _decompress(_file_blocks(path, size))
    while (block := _guard(str(path), lambda: next(blocks, None))) is not None:
        yield block


def iter_member_blocks(path: Path, member: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in a zip archive, decompressed; `size` bytes at a time."""
    archive = _guard(str(path), lambda: zipfile.ZipFile(path))
    with archive:
        blocks = _member_blocks(archive, archive.getinfo(member), size)
        label = f"{path.name}/{member}"
        while (block := _guard(label, lambda: next(blocks, None))) is not None:
            yield block


def is_spreadsheet(path: Path) -> bool:
    """Return whether a zip archive on disk is a spreadsheet."""
    try:
        with zipfile.ZipFile(path) as archive:
            return is_workbook(archive)
    except (OSError, zipfile.BadZipFile):
        return False


def compression_of(path: Path) -> str | None:
    """Return how a file is compressed: "gzip", "zip" and so on, or None."""
    with path.open("rb") as file:
        return _kind(file.read(_MAGIC))


def _member_blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> Iterator[bytes]:
    if member.flag_bits & 1:
        raise DataError("it is encrypted; unpack the archive with its password")
    with archive.open(member) as file:
        yield from _decompress(iter(lambda: file.read(size), b""))


def _file_blocks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(size), b"")


def _kind(start: bytes) -> str | None:
    if start[:4] in _ZIP:
        return "zip"
    for magic, (name, _) in _DECOMPRESSORS.items():
        # "BZh" might open a text; the mark of the first block after it does not
        if start.startswith(magic) and (magic != b"BZh" or start[4:10] == b"1AY&SY"):
            return name
    return None


def _decompress(blocks: Iterator[bytes], layers: int = _LAYERS) -> Iterator[bytes]:
    """Yield the content of a file, with every compression around it undone."""
    start = _take(blocks, _MAGIC, whole_blocks=True)
    blocks = chain([start], blocks)
    kind = _kind(start)
    if kind is None:
        yield from blocks
        return
    if layers == 0:
        raise DataError(f"it is compressed more than {_LAYERS} times")
    if kind != "zip":
        yield from _decompress(_inflate(blocks), layers - 1)
        return
    data = b"".join(blocks)
    archive = zipfile.ZipFile(io.BytesIO(data))
    if is_workbook(archive):
        yield data
        return
    members = _members(archive)
    if len(members) != 1:
        raise DataError(f"it is a zip archive of {len(members)} files; unpack it")
    with archive.open(members[0]) as file:
        yield from _decompress(iter(lambda: file.read(_BLOCK), b""), layers - 1)


def _inflate(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the content of all streams of a file: some tools write several, or pad with zeros."""
    data = next(blocks, b"")
    while data:
        name = _kind(data)
        kind = next((sibling for sibling in _DECOMPRESSORS.values() if sibling[0] == name), None)
        if kind is None:
            raise DataError("something else follows the compressed data")
        stream = kind[1]()
        yield stream.decompress(data)
        while not stream.eof:
            data = next(blocks, b"")
            if not data:
                raise DataError(f"the {name} data ends too early")
            yield stream.decompress(data)
        data = stream.unused_data.lstrip(b"\0")
        while len(data) < _MAGIC and (more := next(blocks, b"")):
            data = (data + more).lstrip(b"\0")


def _take(blocks: Iterator[bytes], size: int, *, whole_blocks: bool = False) -> bytes:
    """Return the first bytes, or the first blocks that hold as many."""
    parts, length = [], 0
    for block in blocks:
        parts.append(block)
        length += len(block)
        if length >= size:
            break
    data = b"".join(parts)
    return data if whole_blocks else data[:size]


def _walk(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    level = [folder]
    for _ in range(_DEPTH):
        entries = [entry for parent in level for entry in parent.iterdir() if entry.name[0] != "."]
        files |= {e.relative_to(folder).as_posix(): e for e in entries if e.is_file()}
        level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    return files


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without folders and hidden files."""
    hidden = re.compile(r"(^|/)(\.|__MACOSX(/|$)|$)")
    return [member for member in archive.infolist() if not hidden.search(member.filename)]


def _guard(label: str, action: Callable[[], T]) -> T:
    """Decoders of damaged data raise a dozen kinds of error: all of them mean the same."""
    try:
        return action()
    except DataError as error:
        raise DataError(f"{label}: {error}; {_DAMAGED}") from error
    except Exception as error:
        raise DataError(f"{label}: cannot be read ({_reason(error)}); {_DAMAGED}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
