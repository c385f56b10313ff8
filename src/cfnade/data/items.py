"""A table of items beside the ratings: an id, a title, genres."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.characters import clean
from cfnade.data.columns import Where, titles, typed_ids
from cfnade.data.dataset import Dataset
from cfnade.data.fields import BadLines, cut_fields
from cfnade.data.roles import PLAIN, TEXTS, USUAL, find_name
from cfnade.data.sources import open_source
from cfnade.data.text import shape_of
from cfnade.data.typed_tables import frame_columns, is_table, table_columns
from cfnade.exceptions import DataError

log = logging.getLogger(__name__)

_IDS = [*(name for name in USUAL["item"] if not name.startswith("title")), "id"]
_NAMES = [*TEXTS["titles"], "name"]


@dataclass(frozen=True)
class _Items:
    """Columns of a table of items; `names` is None if it has no header."""

    columns: list[pl.Series]
    names: list[str] | None
    label: str
    where: Where

    def place(self, usual: list[str], position: int) -> int | None:
        """Where a column stands, by its name or, without names, by its usual position."""
        if self.names is not None:
            return find_name(usual, self.names)
        return position if position < len(self.columns) else None


def with_items(ratings: Dataset, items: Any) -> Dataset:
    """The ratings with titles and genres of a file or frame; as they are if it is None."""
    if items is None:
        return ratings
    table = _read_file(Path(items).expanduser()) if isinstance(items, str | Path) else _of(items)
    ids, indices = _ids(table), {str(raw): place for place, raw in enumerate(ratings.item_ids)}
    places = np.array([indices.get(text, -1) for text in ids], np.int64)
    if not (places >= 0).any():
        raise DataError(
            f"{table.label}: no item of the ratings is in it: its ids are like {ids[0]!r}, those "
            f"of the ratings like {str(ratings.item_ids[0])!r}; give the file that belongs to them"
        )
    texts = {"titles": table.place(_NAMES, 1), "genres": table.place(TEXTS["genres"], 2)}
    if table.names is None and len(table.columns) != 3:
        texts["genres"] = None  # without names, more columns may be anything
    if all(place is None for place in texts.values()):
        raise DataError(
            f"{table.label}: has neither titles nor genres; name a column title or genres "
            f"(there are {_listed(table)})"
        )
    filled: dict[str, Any] = {
        kind: _filled(getattr(ratings, kind), table.columns[place], places, ratings.n_items)
        for kind, place in texts.items()
        if place is not None
    }
    count = len(np.unique(places[places >= 0]))
    log.info("%s: %s of %s items are in it", table.label, f"{count:,}", f"{ratings.n_items:,}")
    return ratings.replace(**filled)


def _ids(table: _Items) -> list[str]:
    """The ids as texts: each once."""
    place = table.place(_IDS, 0)
    if place is None:
        raise DataError(
            f"{table.label}: which column holds the ids of items? There are {_listed(table)}; name "
            "it item, or id"
        )
    ids = typed_ids(table.columns[place], "item", table.where).cast(pl.String).str.strip_chars()
    repeats = ids.is_first_distinct().not_().arg_true()
    if len(repeats):
        again = int(repeats[0])
        raise DataError(
            f"{table.where(again)}: item {ids[again]} is listed again ({len(repeats):,} "
            "repeated in all); keep one row of each item"
        )
    texts: list[str] = ids.to_list()
    return texts


def _filled(
    before: npt.NDArray[np.object_] | None,
    column: pl.Series,
    places: npt.NDArray[np.int64],
    n_items: int,
) -> npt.NDArray[np.object_] | None:
    """What was known, and over it what the column says. Returns (M,)."""
    texts = np.full(n_items, "", object) if before is None else before.copy()
    told = titles(column)
    for place, text in zip(places, () if told is None else told.to_list(), strict=False):
        if place >= 0 and text:
            texts[place] = text
    return texts if any(texts) else None


def _read_file(path: Path) -> _Items:
    source = open_source(path)
    if len(source.names()) != 1:
        raise DataError(f"{path}: holds {len(source.names())} files; give the one of the items")
    name = source.names()[0]
    label, head = source.label(name), source.head(name)
    if is_table(head):
        return _typed(table_columns(source.read(name), label), label)
    data, _ = clean(source.read(name), label)
    shape, names = shape_of(data, label, PLAIN, least=2)
    table = cut_fields(data, shape, BadLines(label))
    where = lambda row: f"{label}:{table.line(row)}"  # noqa: E731
    return _Items(table.frame.get_columns(), list(names) if names else None, label, where)


def _of(frame: Any) -> _Items:
    return _typed(frame_columns(frame), "items=")


def _typed(columns: dict[str, pl.Series], label: str) -> _Items:
    return _Items(list(columns.values()), list(columns), label, lambda row: f"{label}, row {row}")


def _listed(table: _Items) -> str:
    if table.names is None:
        return f"{len(table.columns)} columns without names"
    return "columns " + ", ".join(repr(name[:30]) for name in table.names[:20])
