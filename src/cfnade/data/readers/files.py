"""Open a folder, a zip archive or one file as named files, and find the ratings among them.

The first bytes of a file tell its compression and its format, never its name. Whatever is wrong
with a file becomes one `DataError` that names it.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import zstandard

from cfnade.data.raw_table import RawTable
from cfnade.data.readers.tables import (
    ARROW,
    JSON_ARRAY,
    JSON_LINES,
    PARQUET,
    SPREADSHEET,
    read_table,
)
from cfnade.data.readers.text import decode, read_text, recognize
from cfnade.exceptions import DataError
from cfnade.utils.text import option

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions

NETFLIX = "the Netflix Prize's files"
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
SUFFIXES = (".gz", ".xz", ".zst", ".zstd", ".bz2", ".zip")
"""Endings of compressed files."""
_WORKBOOKS = {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}  # members of xlsx, xlsb, ods
_DAMAGED = "the file may be truncated or damaged: fetch it again"
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX(/|$)|$)")  # and folders

_TABLES = {
    b"PAR1": PARQUET,
    b"ARROW1": ARROW,
    b"PK\x03\x04": SPREADSHEET,
    b"\xd0\xcf\x11\xe0": SPREADSHEET,  # the old .xls
}
_FOREIGN = {
    b"\x89HDF": "HDF5; save the ratings as csv or Parquet",
    b"SQLite format 3": "an SQLite database; give it as sqlite:///PATH, with a query",
    b"FEA1": "Feather of the first version; write it again as Feather version 2 or Parquet",
    b"\x93NUMPY": "a NumPy array; save the ratings as csv or Parquet",
    b"[[": "a JSON array of arrays; give JSON Lines (an object a line) or an array of objects",
    b"<": "HTML or XML: perhaps an error page in place of the file; fetch it again",
}
_NOT_DATA = (
    *(".md", ".html", ".htm", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".log", ".part"),
    *(".py", ".sh", ".pl", ".r", ".ipynb", ".cfg", ".toml", ".yaml", ".yml", ".xml"),
)
_DOCUMENTS = (
    *("readme", "license", "licence", "copying", "changelog", "citation", "notice"),
    "movie_titles",  # of the Netflix Prize, whose ratings are in other files
)
_READABLE = (
    "MovieLens and Netflix files, delimited text, Parquet, Arrow, JSON Lines and spreadsheets can "
    "be read"
)
_NETFLIX_FILE = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.\w+)?")
_NETFLIX_OPENING = re.compile(rb"\d{1,9}:\r?\n\d{1,9},\d,\d{4}-\d\d-\d\d\r?(\n|$)")


@dataclass(frozen=True)
class Edition:
    """The files of an edition of MovieLens."""

    movies: str
    separator: str
    opening: re.Pattern[bytes]  # of the file of ratings; other sets use the same names
    header: bool = False


EDITIONS = {
    "u.data": Edition("u.item", "\t", re.compile(rb"\d+\t\d+\t[^\t\r\n]+\t\d+\r?(\n|$)")),
    "ratings.dat": Edition("movies.dat", "::", re.compile(rb"\d+::\d+::[^:\r\n]+(::|\r?\n|$)")),
    "ratings.csv": Edition(
        "movies.csv", ",", re.compile(rb"userId,movieId,rating,timestamp"), header=True
    ),
}
"""Editions of MovieLens by the name of their file of ratings."""


# -- ratings --------------------------------------------------------------------------------------


def read(path: Path, options: LoadOptions, companions: Sequence[Path] = ()) -> RawTable:
    """Return the ratings at a path, with a description of the recognized format.

    Args:
        path: A file or folder.
        options: How it is read; what is not given is recognized.
        companions: Files of titles beside a single file of ratings.
    """
    source = open_source(path)
    if companions:
        source = SourceFiles(path, {file.name: file for file in (path, *companions)})
    if not options.describes_file():
        published = published_files(source)
        if len(published) > 1:
            raise _ambiguous(source, published)
        if published:
            return _read_published(source, published[0], options)
    name = source.names[0] if len(source.names) == 1 else ratings_file(source, options)
    label, head = source.label(name), source.head(name)
    if kind := table_kind(head):
        return read_table(source.plain_path(name) or source.read(name), label, kind, options)
    if foreign := foreign_format(head):
        raise DataError(f"{label}: this is {foreign}")
    table = read_text(source.read(name), label, options)
    if bare(name).endswith(".inter"):  # RecBole
        items = source.sibling(name, bare(name).removesuffix(".inter") + ".item")
        if items is not None:
            from cfnade.data.item_table import read_items

            table = replace(table, item_table=read_items(source, items))
    return table


def ratings_file(source: SourceFiles, options: LoadOptions) -> str:
    """Return the one file of a source that holds the ratings."""
    names = source.names
    if len(names) == 1:
        return names[0]
    published = published_files(source)
    if len(published) == 1 and published != [NETFLIX] and not options.describes_file():
        return published[0]
    names = [name for name in names if not is_document(name)]
    recbole = [name for name in names if bare(name).endswith(".inter")]
    if len(recbole) == 1:
        return recbole[0]
    # A file of ratings before one of interactions, which look like much else; one that can be read
    # before one that looks it, whose error names its fault.
    for rated, complete in product((True, False), repeat=2):
        likely = [name for name in names if _is_likely(source, name, options, complete, rated)]
        if len(likely) == 1:
            return likely[0]
        if likely:
            raise _ambiguous(source, likely)
    file_list = ", ".join(source.names[:10]) + (" …" if len(source.names) > 10 else "")
    raise DataError(
        f"{source.path}: none of its {len(source.names)} files is recognized as ratings: "
        f"{file_list}. {_READABLE}; give the path of one file, and its columns with "
        f"{option('user')}, {option('item')}, "
        f"{option('rating')}"
    )


def _is_likely(
    source: SourceFiles, name: str, options: LoadOptions, complete: bool, rated: bool
) -> bool:
    """Return whether the first lines are recognized and, if `complete`, each can be read; if
    `rated`, there must be ratings.
    """
    try:
        head = source.head(name)
        if table_kind(head):
            return True
        lines = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
        if complete:
            table = read_text(lines, name, replace(options, skip_bad_lines=False))
            return not (rated and table.implicit)
        _, roles = recognize(decode(lines, name, options.encoding)[0], name, options)
        return not (rated and roles.rating is None)
    except DataError:
        return False


def _ambiguous(source: SourceFiles, names: list[str]) -> DataError:
    file_list = ", ".join(sorted(names)[:10]) + (" …" if len(names) > 10 else "")
    unpack = "unpack it and " if source.archive else ""
    return DataError(
        f"{source.path}: several files could be the ratings: {file_list}; "
        f"{unpack}give the path of one of them"
    )


def published_files(source: SourceFiles) -> list[str]:
    """Return the names of files of MovieLens ratings, and `NETFLIX` for those of its prize."""
    names, is_netflix = [], False
    for name in source.names:
        is_netflix |= bool(_NETFLIX_FILE.fullmatch(PurePosixPath(name).name))
        edition = EDITIONS.get(bare(name))
        start = source.head(name).removeprefix(codecs.BOM_UTF8) if edition else b""
        if not edition or not edition.opening.match(start):
            continue
        if not edition.header or source.sibling(name, edition.movies):
            names.append(name)
    if len(source.names) == 1 and not names:
        is_netflix |= bool(_NETFLIX_OPENING.match(source.head(source.names[0])))
    return [*names, NETFLIX] if is_netflix else names


def _read_published(source: SourceFiles, name: str, options: LoadOptions) -> RawTable:
    if name != NETFLIX:
        from cfnade.data.readers import movielens

        return movielens.read(source, name, options)
    from cfnade.data.readers import netflix  # it imports numba

    table = netflix.read(source, skip_bad_lines=options.skip_bad_lines)
    dropped = ["time"] if options.time is False else []
    dropped += ["rating"] if options.implicit else []
    return replace(table, frame=table.frame.drop(dropped))


# -- formats --------------------------------------------------------------------------------------


def table_kind(head: bytes) -> str | None:
    """Return which kind of table a file is by its first bytes, None if it is none."""
    for magic, kind in _TABLES.items():
        if head.startswith(magic):
            return kind
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if start[:1] == b"{" and start[1:].lstrip()[:1] in (b'"', b"}"):
        return JSON_LINES
    if start[:1] == b"[" and start[1:].lstrip()[:1] in (b"{", b"]"):  # no header "[user],[item]"
        return JSON_ARRAY
    return None


def foreign_format(head: bytes) -> str | None:
    """Return what a file is that cannot be read, by its first bytes; None if it may be read."""
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it and give the folder"
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    for magic, reason in _FOREIGN.items():
        if start.startswith(magic):
            return reason
    return None


def is_document(name: str) -> bool:
    """Return whether a file is documentation beside the data."""
    plain = bare(name)
    return plain.endswith(_NOT_DATA) or plain.split(".")[0] in _DOCUMENTS


def bare(name: str) -> str:
    """Return the last part of a name, in lower case, without a compression suffix."""
    last = PurePosixPath(name).name.lower()
    for suffix in SUFFIXES:
        last = last.removesuffix(suffix)
    return last


# -- files ----------------------------------------------------------------------------------------


class SourceFiles:
    """Named files: those of a folder or of a zip archive, or a single one.

    Attributes:
        path: What was opened.
        names: Paths of the files in it with forward slashes, sorted.
    """

    def __init__(
        self, path: Path, members: Mapping[str, Any], archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path, self.archive, self.names = path, archive, sorted(members)
        self._members, self._heads = members, dict[str, bytes]()

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

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content, decompressed; only its beginning if there is a limit."""
        member, parts, length = self._members[name], list[bytes](), 0
        with _explain_errors(self.label(name)):
            if self.archive is not None:
                blocks = _member_blocks(self.archive, member, _BLOCK)
            elif member.is_file():
                blocks = _decompress(_file_blocks(member, _BLOCK))
            else:  # reading a pipe would wait
                raise DataError("it is not a regular file")
            for block in blocks:
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
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder; check the path")
        if path.is_dir():
            source = SourceFiles(path, _walk(path))
        elif not path.is_file():
            raise DataError(
                f"{path}: is not a regular file; give a file, a folder or a zip, or send it to -"
            )
        elif compression_of(path) == "zip" and not is_spreadsheet(path):
            with _explain_errors(str(path)):
                archive = zipfile.ZipFile(path)
            members = {member.filename: member for member in _members(archive)}
            source = SourceFiles(path, members, archive)
        else:
            source = SourceFiles(path, {path.name: path})
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise DataError(f"{path}: cannot be opened ({_reason(error)}); check it") from error
    if not source.names:
        raise DataError(f"{path}: holds no files; give the folder or archive with the ratings")
    return source


def is_spreadsheet(path: Path) -> bool:
    """Return whether a zip archive on disk is a spreadsheet."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _is_workbook(archive)
    except (OSError, zipfile.BadZipFile):
        return False


def iter_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file, decompressed; `size` bytes of the file at a time."""
    with _explain_errors(str(path)):
        yield from _decompress(_file_blocks(path, size))


def iter_member_blocks(path: Path, member: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in a zip archive, decompressed; `size` bytes at a time."""
    with _explain_errors(str(path)):
        archive = zipfile.ZipFile(path)
    with archive, _explain_errors(f"{path.name}/{member}"):
        yield from _member_blocks(archive, archive.getinfo(member), size)


def compression_of(start: bytes | Path) -> str | None:
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


def _is_workbook(archive: zipfile.ZipFile) -> bool:
    """Return whether a zip archive is a spreadsheet: xlsx, xlsb or ods."""
    names = set(archive.namelist())
    return bool(names & _WORKBOOKS) and bool(names & {"[Content_Types].xml", "mimetype"})


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
    return [member for member in archive.infolist() if not _HIDDEN.search(member.filename)]


def _member_blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> Iterator[bytes]:
    if member.flag_bits & 1:
        raise DataError("it is encrypted; unpack the archive with its password")
    with archive.open(member) as file:
        yield from _decompress(iter(lambda: file.read(size), b""))


def _file_blocks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(size), b"")


def _decompress(blocks: Iterator[bytes], layers: int = _LAYERS) -> Iterator[bytes]:
    """Yield the content of a file, with every compression around it undone."""
    start = b""
    while len(start) < _MAGIC and (block := next(blocks, b"")):
        start += block
    kind = compression_of(start)
    blocks = chain([start], blocks)
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
    if _is_workbook(archive):
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
        name = compression_of(data)
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


@contextmanager
def _explain_errors(label: str) -> Iterator[None]:
    """Decoders of damaged data raise a dozen kinds of error: all of them mean the same."""
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
