"""RecBole's atomic files: tab-separated, each column's type in the header (`rating:float`)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from cfnade.data.columns import Columns, refuse_missing
from cfnade.data.roles import PLAIN, ReadOptions, choose
from cfnade.data.sources import FileSource, bare
from cfnade.data.text import Table, TextShape, clean, columns_of, cut_fields
from cfnade.errors import DataError

_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[^\t\r\n]+:(?:token|float)(?:_seq)?(?:\t|\r?\n|$)")
_TITLES = ("movie_title", "title", "item_title", "item_name", "name")
_GENRES = ("class", "genre", "genres", "categories", "category")


def find(source: FileSource) -> list[str]:
    """The interaction files in it."""
    return [
        name
        for name in source.names()
        if bare(name).endswith(".inter") and _HEADER.match(source.head(name))
    ]


def read(source: FileSource, name: str, options: ReadOptions = PLAIN) -> tuple[Columns, str]:
    """Ratings, titles and genres if a `.item` file of the same name is there."""
    label = source.label(name)
    names, types, table = _atomic(source, name)
    roles = choose(names, len(names), options, label)
    for position in roles.positions():
        if types[position].endswith("_seq"):
            raise DataError(
                f"{label}:1: column {names[position]!r} is of type {types[position]}; a user, an "
                "item, a rating or a time is one token or one float"
            )
    columns = columns_of(table, roles, label)
    used = PurePosixPath(name).name
    items = source.beside(name, bare(name).removesuffix(".inter") + ".item")
    if items is not None:
        columns = _with_items(columns, source, items)
        used += f", {PurePosixPath(items).name}"
    chosen = ", ".join(names[position] for position in roles.positions())
    return columns, f"RecBole ({used}): {chosen}"


def _atomic(source: FileSource, name: str) -> tuple[list[str], list[str], Table]:
    label = source.label(name)
    data = clean(source.read(name), label)
    header = data[: data.find(b"\n") if b"\n" in data else None].decode().split("\t")
    pairs = [field.rpartition(":") for field in header]
    for title, colon, kind in pairs:
        if not colon or kind not in ("token", "token_seq", "float", "float_seq"):
            raise DataError(
                f"{label}:1: {title + colon + kind!r} is no column of a RecBole file; the header "
                "gives each column as name:type, the type token, token_seq, float or float_seq"
            )
    shape = TextShape("\t", quoted=False, width=len(pairs), header=True)
    return [pair[0] for pair in pairs], [pair[2] for pair in pairs], cut_fields(data, shape, label)


def _with_items(columns: Columns, source: FileSource, name: str) -> Columns:
    label = source.label(name)
    names, types, table = _atomic(source, name)
    if "item_id" not in names:
        raise DataError(f"{label}:1: there is no column item_id:token, only {', '.join(names)}")
    keys = table.frame.to_series(names.index("item_id"))
    refuse_missing(keys, "item id", lambda row: f"{label}:{table.line(row) + 1}")
    titles = [i for i, title in enumerate(names) if title in _TITLES]
    genres = [i for i, title in enumerate(names) if title in _GENRES]
    # a list of genres is a sequence of tokens; a single token with blanks in it is not one
    genres = [i for i in genres if types[i] == "token_seq"]
    return columns.with_texts(
        keys.to_list(),
        table.frame.to_series(titles[0]) if titles else (),
        table.frame.to_series(genres[0]).str.replace_all(" ", "|", literal=True) if genres else (),
    )
