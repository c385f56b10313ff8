"""Where bytes come from: a folder, a zip archive or one file, compressed or not.

Compression is told by the first bytes of a file, never by its name. Whatever is wrong with a file
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
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import zstandard

from cfnade.exceptions import DataError

T = TypeVar("T")

HEAD = 1 << 20
"""Bytes of the stored file that `head` looks at: at least one whole block in every format."""

_LAYERS = 3  # a.gz inside a.zip is common; deeper nesting is a mistake or a trap
_DEPTH = 4  # folders below the one that was given
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_STREAMS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(31)),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30)),
    b"\x28\xb5\x2f\xfd": ("zstd", lambda: zstandard.ZstdDecompressor().decompressobj()),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
}
_SUFFIXES = (".gz", ".xz", ".zst", ".zstd", ".bz2", ".zip")


class FileSource:
    """Named files that can be read whole: those of a folder or a zip archive, or some on disk."""

    def __init__(
        self, path: Path, members: Mapping[str, Any], archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path, self.archive, self._members = path, archive, members

    def names(self) -> list[str]:
        """The files in it, as paths with forward slashes, sorted."""
        return sorted(self._members)

    def label(self, name: str) -> str:
        """How messages call this file."""
        alone = self.archive is None and self.path.is_file()
        return name if alone else f"{self.path.name or self.path}/{name}"

    def plain_path(self, name: str) -> Path | None:
        """The file on disk if it is stored there as it is: it can be mapped into memory."""
        if self.archive is not None:
            return None
        start = _guarded(self.label(name), lambda: self._stored(name, 16))
        return None if _is_compressed(start) else self._members[name]

    def read(self, name: str) -> bytes:
        """The whole content, decompressed."""
        return _guarded(self.label(name), lambda: unpack(self._stored(name, -1)))

    def head(self, name: str) -> bytes:
        """The beginning of the content, decompressed: enough to recognise a format."""
        return _guarded(self.label(name), lambda: _unpack_head(self._stored(name, HEAD)))

    def beside(self, name: str, other: str) -> str | None:
        """The file in the same folder whose bare name is `other`."""
        folder = PurePosixPath(name).parent
        siblings = [one for one in self.names() if PurePosixPath(one).parent == folder]
        return next((one for one in siblings if bare(one) == other), None)

    def _stored(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes as they are stored; all if negative."""
        member = self._members[name]
        if self.archive is not None:
            return _zip_member(self.archive, member, limit)
        if not member.is_file():  # a pipe would be waited for
            raise DataError("it is not a regular file")
        with member.open("rb") as file:
            content: bytes = file.read(limit)
        return content


def open_source(path: Path) -> FileSource:
    """The files at a path. One `DataError` if there is nothing to read."""
    try:
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder; check the path")
        if path.is_dir():
            source = FileSource(path, _walk(path))
        elif not path.is_file():
            raise DataError(
                f"{path}: is not a regular file; give a file, a folder or a zip, or send it to -"
            )
        elif _starts_as_zip(path):
            archive = _guarded(str(path), lambda: zipfile.ZipFile(path))
            source = FileSource(path, {m.filename: m for m in _contents(archive)}, archive)
        else:
            source = FileSource(path, {path.name: path})
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise DataError(f"{path}: cannot be opened ({_reason(error)}); check it") from error
    if not source.names():
        raise DataError(f"{path}: holds no files; give the folder or archive with the ratings")
    return source


def _starts_as_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _ZIP


def bare(name: str) -> str:
    """The last part of a name, in lower case, without a compression suffix."""
    last = PurePosixPath(name).name.lower()
    for suffix in _SUFFIXES:
        last = last.removesuffix(suffix)
    return last


def unpack(data: bytes) -> bytes:
    """Undo every compression around the data; a truncated or damaged stream is an error."""
    for _ in range(_LAYERS):
        if not _is_compressed(data):
            return data
        data = _only_member(data) if data[:4] in _ZIP else _streams(data)
    if _is_compressed(data):
        raise DataError(f"it is compressed more than {_LAYERS} times")
    return data


def unpacked_blocks(path: Path, size: int) -> Iterator[bytes]:
    """The content of a file, decompressed if need be; `size` bytes of the file at a time."""
    blocks = _unpacked_blocks(path, size)
    while (block := _guarded(str(path), lambda: next(blocks, None))) is not None:
        yield block


def _unpacked_blocks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        data = file.read(size)
        if _stream_kind(data) is None:
            yield data
            yield from iter(lambda: file.read(size), b"")
            return
        while data:  # streams may follow one another, with zeros between them
            kind = _stream_kind(data)
            if kind is None:
                raise DataError("something else follows the compressed data")
            stream = kind[1]()
            yield stream.decompress(data)
            while not stream.eof:
                if not (data := file.read(size)):
                    raise DataError(f"the {kind[0]} data ends too early")
                yield stream.decompress(data)
            data = stream.unused_data.lstrip(b"\0") or file.read(size).lstrip(b"\0")


def member_blocks(path: Path, member: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in a zip archive, `size` bytes at a time."""
    blocks = _member_blocks(path, member, size)
    while (block := _guarded(f"{path.name}/{member}", lambda: next(blocks, None))) is not None:
        yield block


def _member_blocks(path: Path, member: str, size: int) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(member).flag_bits & 1:
            raise DataError("it is encrypted; unpack the archive with its password")
        with archive.open(member) as file:
            block = file.read(size)
            if _is_compressed(block):
                raise DataError("it is compressed inside the archive; unpack the archive")
            while block:
                yield block
                block = file.read(size)


def packing(path: Path) -> str | None:
    """How a file is packed: "gzip", "zip" and so on, or None."""
    with path.open("rb") as file:
        start = file.read(16)
    kind = _stream_kind(start)
    return "zip" if start[:4] in _ZIP else kind and kind[0]


def _walk(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    level = [folder]
    for _ in range(_DEPTH):
        entries = [entry for parent in level for entry in parent.iterdir() if entry.name[0] != "."]
        files |= {e.relative_to(folder).as_posix(): e for e in entries if e.is_file()}
        level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    return files


def _contents(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Its files, but for folders and what systems hide in it."""
    hidden = re.compile(r"(^|/)(\.|__MACOSX(/|$)|$)")
    return [member for member in archive.infolist() if not hidden.search(member.filename)]


def _is_compressed(start: bytes) -> bool:
    return start[:4] in _ZIP or _stream_kind(start) is not None


def _stream_kind(start: bytes) -> tuple[str, Callable[[], Any]] | None:
    for magic, kind in _STREAMS.items():
        # "BZh" might open a text; the first block's mark after it does not
        if start.startswith(magic) and (magic != b"BZh" or start[4:10] == b"1AY&SY"):
            return kind
    return None


def _streams(data: bytes) -> bytes:
    """All streams that follow one another: tools write several, some pad with zeros."""
    parts = []
    while data:
        kind = _stream_kind(data)
        if kind is None:
            raise DataError("something else follows the compressed data")
        stream = kind[1]()
        parts.append(stream.decompress(data))
        if not stream.eof:
            raise DataError(f"the {kind[0]} data ends too early")
        data = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _unpack_head(data: bytes) -> bytes:
    for _ in range(_LAYERS):
        if (kind := _stream_kind(data)) is None:
            break
        data = kind[1]().decompress(data)
    return data[:HEAD]


def _only_member(data: bytes) -> bytes:
    archive = zipfile.ZipFile(io.BytesIO(data))
    members = _contents(archive)
    if len(members) != 1:
        raise DataError(f"it is a zip archive of {len(members)} files; unpack it")
    return _zip_member(archive, members[0], -1)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.flag_bits & 1:
        raise DataError("it is encrypted; unpack the archive with its password")
    with archive.open(info) as file:
        return file.read(limit)


def _guarded(label: str, action: Callable[[], T]) -> T:
    """Decoders of damaged data raise a dozen kinds of error: all of them mean the same."""
    try:
        return action()
    except DataError as error:
        raise DataError(f"{label}: {error}; {_AGAIN}") from error
    except Exception as error:
        raise DataError(f"{label}: cannot be read ({_reason(error)}); {_AGAIN}") from error


_AGAIN = "the file may be truncated or damaged: fetch it again"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
