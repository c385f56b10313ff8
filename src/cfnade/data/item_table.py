"""Join a table of items to ratings by id: titles, genres and feature columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES, ITEM_COLUMN_NAMES, find_name
from cfnade.data.dataset import Dataset
from cfnade.data.raw_table import parse_or_raise, to_numbers
from cfnade.data.readers import table_kind
from cfnade.data.readers.files import SourceFiles, open_source
from cfnade.data.readers.frames import to_polars
from cfnade.data.readers.tables import read_whole
from cfnade.data.readers.text import decode, read_fields, sniff
from cfnade.exceptions import DataError
from cfnade.utils.text import option

log = logging.getLogger(__name__)

_NAMES = {
    "item": [*(name for name in COLUMN_NAMES["item"] if not name.startswith("title")), "id"],
    "title": [*ITEM_COLUMN_NAMES["title"], "name"],
    "genres": [*ITEM_COLUMN_NAMES["genres"], "class"],  # RecBole's name of genres
}


def read_items(source: SourceFiles, name: str) -> pl.DataFrame:
    """Return the columns item, title and genres of a file, as far as it has them."""
    return _read_file(source, name).select(pl.col("^(item|title|genres)$"))


def join_item_table(ratings: Dataset, items: Any) -> Dataset:
    """Return the ratings with titles, genres and features of a file or a table in memory."""
    if isinstance(items, str | Path):
        source, label = open_source(Path(items).expanduser()), str(items)
        if len(source.names) != 1:
            raise DataError(f"{label}: holds {len(source.names)} files; give the one of the items")
        frame = _read_file(source, source.names[0])
    else:
        label = option("item_features")
        frame = _item_frame(to_polars(items), label)
    if frame.width == 1:
        raise DataError(
            f"{label}: has no titles, genres or other columns with a name; name a column title or "
            "genres"
        )
    matched = align_items(frame, ratings.item_ids)
    count = matched["is_known"].sum()
    if not count:
        raise DataError(
            f"{label}: no item of the ratings is in it: its ids are like {frame['item'][0]!r}, "
            f"those of the ratings like {str(ratings.item_ids[0])!r}; give the file that belongs "
            "to them"
        )
    log.info("%s: %s of %s items are in it", label, f"{count:,}", f"{ratings.n_items:,}")
    changed: dict[str, Any] = {
        field: _fill(getattr(ratings, field), matched[kind])
        for kind, field in (("title", "titles"), ("genres", "genres"))
        if kind in matched.columns
    }
    features = matched.drop("item", "title", "genres", "is_known", strict=False)
    if features.width:
        before = ratings.item_features
        if before is not None:
            features = before.drop(features.columns, strict=False).hstack(features)
        changed["item_features"] = features
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


def _read_file(source: SourceFiles, name: str) -> pl.DataFrame:
    label = source.label(name)
    if kind := table_kind(source.head(name)):
        return _item_frame(read_whole(source.read(name), label, kind), label)
    data, _ = decode(source.read(name), label)
    dialect = sniff(data, label, min_columns=2)
    table = read_fields(data, dialect, label)
    names = dialect.names
    if names is None:  # with a fourth column, the third could be anything
        names = ("item", "title", "genres") if dialect.width == 3 else ("item", "title")
    frame = table.frame.select(table.frame.columns[: len(names)])
    frame.columns = list(names)
    lists = [name for name in dialect.sequences if find_name(_NAMES["genres"], [name]) == 0]
    frame = frame.with_columns(pl.col(lists).str.replace_all(" ", "|", literal=True))
    return _item_frame(frame, label, table.lines)


def _item_frame(
    frame: pl.DataFrame, label: str, lines: Sequence[int] | None = None
) -> pl.DataFrame:
    """Return ids as texts, each once, titles, genres and other columns of a table.

    `lines` are the lines of the rows, if the table is text.
    """
    places = {kind: find_name(names, frame.columns) for kind, names in _NAMES.items()}

    def locate(row: int) -> str:
        return f"{label}, row {row}" if lines is None else f"{label}:{lines[row]}"

    if places["item"] is None:
        names = ", ".join(repr(name[:30]) for name in frame.columns[:20])
        raise DataError(
            f"{label}: which column holds the ids of items? There are columns {names}; name it "
            "item, or id"
        )
    parsed, _ = parse_or_raise(
        {"item": frame.to_series(places["item"])},
        lambda row, _: locate(row),
        is_text=lines is not None,
    )
    columns = {"item": parsed["item"].cast(pl.String).str.strip_chars()}
    repeats = columns["item"].is_first_distinct().not_().arg_true()
    if len(repeats):
        raise DataError(
            f"{locate(repeats[0])}: item {columns['item'][repeats[0]]} is listed again "
            f"({len(repeats):,} repeated in all); keep one row of each item"
        )
    for kind in ("title", "genres"):
        if (place := places[kind]) is not None:
            column = frame.to_series(place)
            if isinstance(column.dtype, pl.Categorical | pl.Enum):
                column = column.cast(pl.String)
            if column.dtype == pl.String:
                columns[kind] = column.fill_null("")
            else:
                places[kind] = None  # a feature
    for place, column in enumerate(frame):
        if place not in places.values() and column.name not in columns:
            numbers = to_numbers(column) if column.dtype == pl.String else column
            is_number = numbers.null_count() == column.null_count()
            columns[column.name] = numbers if is_number else column
    return pl.DataFrame(columns)
