"""Join a table of items to ratings by id: titles, genres and feature columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, ITEM_COLUMN_NAMES, find_name
from cfnade.data.dataset import Dataset
from cfnade.data.raw_table import Locate, parse_or_raise, to_numbers
from cfnade.data.readers.files import SourceFiles, open_source, table_kind
from cfnade.data.readers.frames import to_polars
from cfnade.data.readers.tables import read_whole
from cfnade.data.readers.text import BadLines, decode, read_fields, sniff
from cfnade.exceptions import DataError
from cfnade.utils.text import option

log = logging.getLogger(__name__)

_ID_NAMES = [*(name for name in COLUMN_NAMES["item"] if not name.startswith("title")), "id"]
_NAMES = {
    "title": [*ITEM_COLUMN_NAMES["title"], "name"],
    "genres": [*ITEM_COLUMN_NAMES["genres"], "class"],  # RecBole's name of genres
}


@dataclass(frozen=True)
class _Table:
    frame: pl.DataFrame
    names: tuple[str, ...] | None  # None if it has no header
    label: str
    locate: Locate
    is_text: bool
    types: tuple[str, ...] = ()  # of RecBole's columns

    def place(self, candidates: Sequence[str], position: int) -> int | None:
        """Return the place of a column by its name or, without names, its usual position."""
        if self.names is not None:
            return find_name(candidates, self.names)
        return position if position < self.frame.width else None


def read_items(source: SourceFiles, name: str) -> pl.DataFrame:
    """Return the columns item, title and genres of a file, as far as it has them."""
    return _item_frame(_read_file(source, name)).select(pl.col("^(item|title|genres)$"))


def join_item_table(ratings: Dataset, items: Any) -> Dataset:
    """Return the ratings with titles, genres and features of a file or a table in memory."""
    table = _read_path(Path(items).expanduser()) if isinstance(items, str | Path) else _read(items)
    frame = _item_frame(table)
    if frame.width == 1:
        raise DataError(
            f"{table.label}: has no titles, genres or other columns with a name; name a column "
            f"title or genres (there are {_listed(table)})"
        )
    matched = align_items(frame, ratings.item_ids)
    count = matched["is_known"].sum()
    if not count:
        raise DataError(
            f"{table.label}: no item of the ratings is in it: its ids are like "
            f"{frame['item'][0]!r}, those of the ratings like {str(ratings.item_ids[0])!r}; give "
            "the file that belongs to them"
        )
    log.info("%s: %s of %s items are in it", table.label, f"{count:,}", f"{ratings.n_items:,}")
    changed: dict[str, Any] = {
        field: _fill(getattr(ratings, field), matched[kind])
        for kind, field in (("title", "titles"), ("genres", "genres"))
        if kind in matched.columns
    }
    features = matched.drop("item", "title", "genres", "is_known", strict=False)
    if features.width:
        before = ratings.item_features
        other_features = features if before is None else before.drop(features.columns, strict=False)
        changed["item_features"] = features if before is None else other_features.hstack(features)
    return ratings.replace(**changed)


def align_items(table: pl.DataFrame, item_ids: npt.NDArray[Any]) -> pl.DataFrame:
    """Return the rows of an item table in the order of the ids.

    Unknown titles and genres are "", unknown features null. The boolean column `is_known` marks the
    ids that the table has.
    """
    ids = pl.Series("item", [str(raw) for raw in item_ids.tolist()], dtype=pl.String)
    rows = table.with_columns(pl.col("item").cast(pl.String), is_known=pl.lit(value=True))
    joined = ids.to_frame().join(rows, on="item", how="left", maintain_order="left")
    texts = pl.col("^(title|genres)$").fill_null("")
    aligned: pl.DataFrame = joined.with_columns(pl.col("is_known").fill_null(value=False), texts)
    return aligned


def texts_or_none(column: pl.Series) -> npt.NDArray[np.object_] | None:
    """Return texts as an array of objects, None if all are empty."""
    texts = np.empty(len(column), object)
    texts[:] = column.to_list()
    return texts if any(texts) else None


def _fill(
    before: npt.NDArray[np.object_] | None, column: pl.Series
) -> npt.NDArray[np.object_] | None:
    """Return the texts of the column, and where it has none those that were known before."""
    if before is not None:
        before_texts = pl.Series(before.tolist(), dtype=pl.String)
        column = column.zip_with(column != "", before_texts)
    return texts_or_none(column)


def _item_frame(table: _Table) -> pl.DataFrame:
    columns, used = {"item": _ids(table)}, {table.place(_ID_NAMES, 0)}
    for kind, position in (("title", 1), ("genres", 2)):
        place = table.place(_NAMES[kind], position)
        if place is None or (kind == "genres" and not _is_genres(table, place)):
            continue
        column = table.frame.to_series(place)
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = column.cast(pl.String)
        if column.dtype == pl.String:
            if table.types and kind == "genres":
                column = column.str.replace_all(" ", "|", literal=True)
            columns[kind] = column.fill_null("")
            used.add(place)
    for place, name in enumerate(table.names or ()):
        if place not in used and name not in columns:
            columns[name] = _feature(table.frame.to_series(place))
    return pl.DataFrame(columns)


def _feature(column: pl.Series) -> pl.Series:
    """Return a column of texts as numbers if each is one."""
    if column.dtype != pl.String:
        return column
    numbers = to_numbers(column)
    return numbers if numbers.null_count() == column.null_count() else column


def _is_genres(table: _Table, place: int) -> bool:
    """Return whether a column holds genres: RecBole gives them as a sequence of tokens; without
    names, a fourth column may make any column anything.
    """
    if table.types:
        return table.types[place] == "token_seq"
    return table.names is not None or table.frame.width == 3


def _ids(table: _Table) -> pl.Series:
    """Return the ids as texts, each once."""
    place = table.place(_ID_NAMES, 0)
    if place is None:
        raise DataError(
            f"{table.label}: which column holds the ids of items? There are {_listed(table)}; name "
            "it item, or id"
        )
    column = {"item": table.frame.to_series(place)}
    parsed = parse_or_raise(column, lambda row, _: table.locate(row), is_text=table.is_text)
    ids = parsed.frame["item"].cast(pl.String).str.strip_chars()
    repeats = ids.is_first_distinct().not_().arg_true()
    if len(repeats):
        repeat = int(repeats[0])
        raise DataError(
            f"{table.locate(repeat)}: item {ids[repeat]} is listed again ({len(repeats):,} "
            "repeated in all); keep one row of each item"
        )
    return ids


def _read_path(path: Path) -> _Table:
    source = open_source(path)
    if len(source.names) != 1:
        raise DataError(f"{path}: holds {len(source.names)} files; give the one of the items")
    return _read_file(source, source.names[0])


def _read_file(source: SourceFiles, name: str) -> _Table:
    label = source.label(name)
    if kind := table_kind(source.head(name)):
        return _typed(read_whole(source.read(name), label, kind), label)
    data, _ = decode(source.read(name), label)
    dialect = sniff(data, label, min_columns=2)
    table = read_fields(data, dialect, BadLines(label))
    return _Table(
        table.frame,
        dialect.names,
        label,
        lambda row: f"{label}:{table.line(row)}",
        is_text=True,
        types=dialect.types,
    )


def _read(items: Any) -> _Table:
    return _typed(to_polars(items), option("item_features"))


def _typed(frame: pl.DataFrame, label: str) -> _Table:
    names = tuple(frame.columns)
    return _Table(frame, names, label, lambda row: f"{label}, row {row}", is_text=False)


def _listed(table: _Table) -> str:
    if table.names is None:
        return f"{table.frame.width} columns without names"
    return "columns " + ", ".join(repr(name[:30]) for name in table.names[:20])
