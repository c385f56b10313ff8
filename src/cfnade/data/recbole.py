"""RecBole's atomic files: tab-separated, each column's type in the header (`rating:float`)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

from cfnade.data.characters import clean
from cfnade.data.columns import Columns, refuse_missing
from cfnade.data.fields import BadLines, TextShape, cut_fields
from cfnade.data.roles import PLAIN, TEXTS, ReadOptions, choose, find_name
from cfnade.data.sources import FileSource, bare
from cfnade.data.text import Layout, read_columns
from cfnade.exceptions import DataError

_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[^\t\r\n]+:(?:token|float)(?:_seq)?(?:\t|\r?\n|$)")


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
    data, names, types = _atomic(source, name, options.skip_bad_lines)
    roles = choose(names, len(names), options, label)
    for position in roles.positions():
        if types[position].endswith("_seq"):
            raise DataError(
                f"{label}:1: column {names[position]!r} is of type {types[position]}; a user, an "
                "item, a rating or a time is one token or one float"
            )
    layout, bad = Layout(_shape(names), None, roles), BadLines(label, options.skip_bad_lines)
    columns, skipped = read_columns(data, layout, bad)
    columns = replace(columns, assumed=roles.notice(names))
    used = PurePosixPath(name).name
    items = source.beside(name, bare(name).removesuffix(".inter") + ".item")
    if items is not None:
        columns = _with_items(columns, source, items)
        used += f", {PurePosixPath(items).name}"
    chosen = ", ".join(names[position] for position in roles.positions())
    return columns, f"RecBole ({used}): {chosen}" + (f"; {skipped}" if skipped else "")


def _atomic(
    source: FileSource, name: str, forgiving: bool = False
) -> tuple[bytes, list[str], list[str]]:
    """The clean text, and the names and types of its columns."""
    label = source.label(name)
    data, _ = clean(source.read(name), label, forgiving=forgiving)
    header = data[: data.find(b"\n") if b"\n" in data else None].decode().split("\t")
    pairs = [field.rpartition(":") for field in header]
    for title, colon, kind in pairs:
        if not colon or kind not in ("token", "token_seq", "float", "float_seq"):
            raise DataError(
                f"{label}:1: {title + colon + kind!r} is no column of a RecBole file; the header "
                "gives each column as name:type, the type token, token_seq, float or float_seq"
            )
    return data, [pair[0] for pair in pairs], [pair[2] for pair in pairs]


def _shape(names: list[str]) -> TextShape:
    return TextShape("\t", quoted=False, width=len(names), header=True)


def _with_items(columns: Columns, source: FileSource, name: str) -> Columns:
    label = source.label(name)
    data, names, types = _atomic(source, name)
    if "item_id" not in names:
        raise DataError(f"{label}:1: there is no column item_id:token, only {', '.join(names)}")
    table = cut_fields(data, _shape(names), BadLines(label))
    column = table.frame.to_series
    keys = column(names.index("item_id"))
    refuse_missing(keys, "item id", lambda row: f"{label}:{table.line(row)}")
    titles = find_name([*TEXTS["titles"], "name"], names)
    genres = find_name(["class", *TEXTS["genres"]], names)
    # a list of genres is a sequence of tokens; a single token with blanks in it is not one
    if genres is not None and types[genres] != "token_seq":
        genres = None
    return columns.with_texts(
        keys.to_list(),
        () if titles is None else column(titles),
        () if genres is None else column(genres).str.replace_all(" ", "|", literal=True),
    )
