"""Recognize the format of a file and read it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cfnade.data.raw_table import RawTable
from cfnade.data.readers import movielens
from cfnade.data.readers.encoding import decode
from cfnade.data.readers.files import HEAD, SourceFiles, bare, open_source
from cfnade.data.readers.tables import read_table, table_kind
from cfnade.data.readers.text import read_text, recognize
from cfnade.exceptions import DataError
from cfnade.utils.text import option

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions

_NOT_DATA = (
    *(".md", ".html", ".htm", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".log", ".part"),
    *(".py", ".sh", ".pl", ".r", ".ipynb", ".cfg", ".toml", ".yaml", ".yml", ".xml"),
)
_DOCUMENTS = (
    *("readme", "license", "licence", "copying", "changelog", "citation", "notice"),
    "movie_titles",  # of the Netflix Prize, whose ratings are in other files
)
_FOREIGN = {
    b"\x89HDF": "HDF5; save the ratings as csv or Parquet",
    b"SQLite format 3": "an SQLite database; give it as sqlite:///PATH, with a query",
    b"FEA1": "Feather of the first version; write it again as Feather version 2 or Parquet",
    b"\x93NUMPY": "a NumPy array; save the ratings as csv or Parquet",
    b"[[": "a JSON array of arrays; give JSON Lines (an object a line) or an array of objects",
    b"<": "HTML or XML: perhaps an error page in place of the file; fetch it again",
}
_READABLE = (
    "MovieLens and Netflix files, delimited text, Parquet, Arrow, JSON Lines and spreadsheets can "
    "be read"
)
_NETFLIX_FILE = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.\w+)?")
_NETFLIX_OPENING = re.compile(rb"\d{1,9}:\r?\n\d{1,9},\d,\d{4}-\d\d-\d\d\r?(\n|$)")


def read(path: Path, options: LoadOptions) -> RawTable:
    """Return the ratings at a path, with a description of the recognized format."""
    source = open_source(path)
    if companions := companion_files(path):
        source = SourceFiles(path, {file.name: file for file in (path, *companions)})
    if not options.describes_file():
        published = movielens.find(source)
        if holds_netflix(source):
            published.append("the Netflix Prize's files")
        if len(published) > 1:
            raise _ambiguous(source, published)
        if published:
            return _read_published(source, published[0], options)
    return _read_file(source, ratings_file(source, options), options)


def companion_files(path: Path) -> list[Path]:
    """Return the files of titles beside a single file of ratings, which are read with it."""
    if not path.is_file():
        return []
    name, sibling_names = bare(path.name), []
    if edition := movielens.EDITIONS.get(name):
        sibling_names = [edition.movies, "u.genre"]
    elif name.endswith(".inter"):  # RecBole
        sibling_names = [name.removesuffix(".inter") + ".item"]
    try:
        siblings = sorted(path.parent.iterdir()) if sibling_names else []
        return [
            sibling
            for sibling in siblings
            if bare(sibling.name) in sibling_names and sibling.is_file()
        ]
    except OSError:
        return []  # a folder that may not be listed: the ratings can still be read


def is_document(name: str) -> bool:
    """Return whether a file is documentation beside the data."""
    plain = bare(name)
    return plain.endswith(_NOT_DATA) or plain.split(".")[0] in _DOCUMENTS


def foreign_format(head: bytes) -> str | None:
    """Return what a file is that cannot be read, by its first bytes; None if it may be read."""
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it and give the folder"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((reason for magic, reason in _FOREIGN.items() if start.startswith(magic)), None)


def holds_netflix(source: SourceFiles) -> bool:
    """Return whether the files are the Netflix Prize's."""
    names = source.names()
    if any(_NETFLIX_FILE.fullmatch(PurePosixPath(name).name) for name in names):
        return True
    return len(names) == 1 and bool(_NETFLIX_OPENING.match(source.head(names[0])))


def _read_published(source: SourceFiles, name: str, options: LoadOptions) -> RawTable:
    if name in source.names():
        return movielens.read(source, name, options)
    from cfnade.data.readers import netflix  # it imports numba

    table = netflix.read(source, skip_bad_lines=options.skip_bad_lines)
    dropped = ["time"] if options.time is False else []
    dropped += ["rating"] if options.implicit else []
    return replace(table, frame=table.frame.drop(dropped))


def ratings_file(source: SourceFiles, options: LoadOptions) -> str:
    """Return the one file of a source that holds the ratings."""
    names = source.names()
    if len(names) == 1:
        return names[0]
    published = movielens.find(source)
    if len(published) == 1 and not options.describes_file():
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
    file_list = ", ".join(source.names()[:10]) + (" …" if len(source.names()) > 10 else "")
    raise DataError(
        f"{source.path}: none of its {len(source.names())} files is recognized as ratings: "
        f"{file_list}. {_READABLE}; give the path of one file, and its columns with "
        f"{option('user')}, {option('item')}, "
        f"{option('rating')}"
    )


def _is_likely(
    source: SourceFiles, name: str, options: LoadOptions, complete: bool, rated: bool
) -> bool:
    """Return whether the first lines are recognized and, if `whole`, each can be read; if `rated`,
    there must be ratings.
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


def _read_file(source: SourceFiles, name: str, options: LoadOptions) -> RawTable:
    label = source.label(name)
    head = source.head(name)
    if kind := table_kind(head):
        data = source.plain_path(name) or source.read(name)
        return read_table(data, label, kind, options)
    if foreign := foreign_format(head):
        raise DataError(f"{label}: this is {foreign}")
    table = read_text(source.read(name), label, options)
    if bare(name).endswith(".inter"):
        items = source.sibling(name, bare(name).removesuffix(".inter") + ".item")
        if items is not None:
            from cfnade.data.item_table import read_items

            table = replace(table, item_table=read_items(source, items))
    return table


def _ambiguous(source: SourceFiles, names: list[str]) -> DataError:
    file_list = ", ".join(sorted(names)[:10]) + (" …" if len(names) > 10 else "")
    unpack = "unpack it and " if source.archive else ""
    return DataError(
        f"{source.path}: several files could be the ratings: {file_list}; "
        f"{unpack}give the path of one of them"
    )
