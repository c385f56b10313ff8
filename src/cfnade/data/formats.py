"""One door for every file: which format it is, and its columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from cfnade.data import movielens, netflix, recbole
from cfnade.data.characters import clean
from cfnade.data.columns import Columns
from cfnade.data.parquet_check import MAGIC as PARQUET
from cfnade.data.roles import PLAIN, ReadOptions
from cfnade.data.sources import HEAD, FileSource, bare, open_source
from cfnade.data.text import read_text, recognise
from cfnade.data.typed_tables import is_table, read_table
from cfnade.exceptions import DataError

_READERS = (movielens, recbole, netflix)  # of published sets
_NOT_DATA = (
    *(".md", ".html", ".htm", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".log", ".part"),
    *(".py", ".sh", ".pl", ".r", ".ipynb", ".cfg", ".toml", ".yaml", ".yml", ".xml"),
)
_DOCUMENTS = (
    *("readme", "license", "licence", "copying", "changelog", "citation", "notice"),
    "movie_titles",  # of the Netflix Prize, whose ratings are other files
)
_FOREIGN = {
    b"\x89HDF": "HDF5; save the ratings as csv or Parquet",
    b"SQLite format 3": "an SQLite database; give it as sqlite:///PATH with query=",
    b"FEA1": "Feather of the first version; write it again as Feather version 2 or Parquet",
    b"\x93NUMPY": "a NumPy array; save the ratings as csv or Parquet",
    b"<": "HTML or XML: perhaps an error page in place of the file; fetch it again",
    b"{": "JSON; save the ratings as csv or Parquet",
    b"[": "JSON; save the ratings as csv or Parquet",
}
_READABLE = (
    "MovieLens and Netflix files, RecBole .inter, delimited text, Parquet and Arrow can be read"
)


def read(path: Path, options: ReadOptions = PLAIN) -> tuple[Columns, str]:
    """The ratings at a path, and in words what they were recognised as."""
    source = open_source(path)
    if siblings := companions(path):
        source = FileSource(path, {file.name: file for file in (path, *siblings)})
    absent = options.absent()
    rest: dict[str, Any] = dict.fromkeys(absent)
    alone = replace(options, **rest) == ReadOptions(skip_bad_lines=options.skip_bad_lines)
    if alone and (published := _published(source, options)) is not None:
        columns, recognised = published
        columns = replace(columns, times=None) if "time" in absent else columns
        return (columns.as_interactions() if "rating" in absent else columns), recognised
    return _read_file(source, _only_candidate(source, options), options)


def rating_file(source: FileSource, options: ReadOptions = PLAIN) -> str:
    """Return the name of the file in a folder or archive that `read` takes the ratings from."""
    names = [name for reader in (movielens, recbole) for name in reader.find(source)]
    if len(names) > 1:
        raise DataError(_several(source, names))
    return names[0] if names else _only_candidate(source, options)


def companions(path: Path) -> list[Path]:
    """Files of titles beside a single rating file of a known set, read together with it."""
    if not path.is_file():
        return []
    plain, others = bare(path.name), []
    if edition := movielens.EDITIONS.get(plain):
        others = [edition.movies, "u.genre"]
    elif plain.endswith(".inter"):
        others = [plain.removesuffix(".inter") + ".item"]
    try:
        beside = sorted(path.parent.iterdir()) if others else []
        return [other for other in beside if bare(other.name) in others and other.is_file()]
    except OSError:
        return []  # a folder that may not be listed: the ratings can still be read


def _published(source: FileSource, options: ReadOptions) -> tuple[Columns, str] | None:
    """The published set in the source, if it holds exactly one, and what it is."""
    sets = {name: reader.read for reader in _READERS for name in reader.find(source)}
    if len(sets) > 1:
        raise DataError(_several(source, list(sets)))
    return next((read(source, name, options) for name, read in sets.items()), None)


def _only_candidate(source: FileSource, options: ReadOptions) -> str:
    names = source.names()
    if len(names) == 1:
        return names[0]
    names = [name for name in names if not is_document(name)]
    # one of ratings before one of interactions, which look like much else; one that can be read,
    # else one that looks it: its error will say what is wrong with it
    for rated, whole in product((True, False), repeat=2):
        likely = [name for name in names if _is_likely(source, name, options, whole, rated)]
        if len(likely) == 1:
            return likely[0]
        if likely:
            raise DataError(_several(source, likely))
    shown = ", ".join(source.names()[:10]) + (" …" if len(source.names()) > 10 else "")
    raise DataError(
        f"{source.path}: none of its {len(source.names())} files is recognised as ratings: "
        f"{shown}. {_READABLE}; give the path of one file, and its columns with user=, item=, "
        "rating="
    )


def is_document(name: str) -> bool:
    """Whether a file beside the data says something of it."""
    plain = bare(name)
    return plain.endswith(_NOT_DATA) or plain.split(".")[0] in _DOCUMENTS


def _is_likely(
    source: FileSource, name: str, options: ReadOptions, whole: bool, rated: bool
) -> bool:
    """Whether the first lines are recognised and, if `whole`, each can be read; if `rated`, there
    must be ratings.
    """
    try:
        head = source.head(name)
        if is_table(head):
            return True
        lines = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
        if whole:
            columns, _ = read_text(lines, name, replace(options, skip_bad_lines=False))
            return not (rated and columns.implicit)
        layout = recognise(clean(lines, name, options.encoding)[0], name, options)
        return not (rated and layout.roles.rating is None)
    except DataError:
        return False


def _read_file(source: FileSource, name: str, options: ReadOptions) -> tuple[Columns, str]:
    label = source.label(name)
    head = source.head(name)
    if is_table(head):
        data = source.plain_path(name) or source.read(name)
        kind = "Parquet" if head.startswith(PARQUET) else "Arrow (Feather)"
        if options.of_text():
            raise DataError(
                f"{label}: a {kind} table takes no separator=, header=, encoding= or "
                "skip_bad_lines=; leave them out"
            )
        return read_table(data, label, options), f"{kind} table"
    if bare(name).endswith(".inter") and options.of_text() in ([], ["skip_bad_lines"]):
        return recbole.read(source, name, options)
    if foreign := foreign_kind(head):
        raise DataError(f"{label}: this is {foreign}")
    return read_text(source.read(name), label, options)


def foreign_kind(head: bytes) -> str | None:
    """In words what a file is that cannot be read, by its first bytes; None of one that may be."""
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it and give the folder"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((what for magic, what in _FOREIGN.items() if start.startswith(magic)), None)


def _several(source: FileSource, names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:10]) + (" …" if len(names) > 10 else "")
    unpack = "unpack it and " if source.archive else ""
    return (
        f"{source.path}: several files could be the ratings: {shown}; "
        f"{unpack}give the path of one of them"
    )
