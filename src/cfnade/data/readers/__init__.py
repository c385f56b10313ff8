"""Find the ratings among files, recognize their format, and read them.

The first bytes of a file tell its format; only published data sets are known by name as well.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cfnade.data.raw_table import RawTable
from cfnade.data.readers import movielens
from cfnade.data.readers.files import HEAD, SourceFiles, bare, open_source
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
NETFLIX_FILE = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.\w+)?")
_NETFLIX_OPENING = re.compile(rb"\d{1,9}:\r?\n\d{1,9},\d,\d{4}-\d\d-\d\d\r?(\n|$)")


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
    name = path.name if companions else ratings_file(source, options)
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
        f"{file_list}. MovieLens and Netflix files, delimited text, Parquet, Arrow, JSON Lines and "
        "spreadsheets can be read; give the path of one file, and its columns with "
        f"{option('user')}, {option('item')}, {option('rating')}"
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
    names = []
    for name in source.names:
        edition = movielens.EDITIONS.get(bare(name))
        start = source.head(name).removeprefix(codecs.BOM_UTF8) if edition else b""
        if not edition or not edition.opening.match(start):
            continue
        if not edition.header or source.sibling(name, edition.movies):
            names.append(name)
    is_netflix = any(NETFLIX_FILE.fullmatch(PurePosixPath(name).name) for name in source.names)
    if len(source.names) == 1 and not names:
        is_netflix |= bool(_NETFLIX_OPENING.match(source.head(source.names[0])))
    return [*names, NETFLIX] if is_netflix else names


def _read_published(source: SourceFiles, name: str, options: LoadOptions) -> RawTable:
    if name != NETFLIX:
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
    return next((text for magic, text in _FOREIGN.items() if start.startswith(magic)), None)


def is_document(name: str) -> bool:
    """Return whether a file is documentation beside the data."""
    plain = bare(name)
    return plain.endswith(_NOT_DATA) or plain.split(".")[0] in _DOCUMENTS
