"""Read typed tables: frames, and files of Parquet, Arrow (Feather), JSON and Excel.

`write_parquet` saves ratings as a plain table (user, item, rating, timestamp, title, genres;
interactions have no rating and perhaps a weight). The metadata of the file holds what a table
cannot say, so that reading it gives the same ratings again:

    cfnade.scale    JSON: the values of the levels, also of those without ratings
    cfnade.edges    JSON: the inner bounds if ratings were binned, else null
    cfnade.source   JSON: the name of the published data set
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfnade.data.column_roles import ColumnRoles, assign_roles
from cfnade.data.raw_table import Locate, RawTable, describe_items, parse_or_raise
from cfnade.data.readers.frames import to_polars
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write
from cfnade.utils.text import option

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset
    from cfnade.data.load import LoadOptions

PARQUET, ARROW, SPREADSHEET = "Parquet", "Arrow (Feather)", "spreadsheet"
JSON_LINES, JSON_ARRAY = "JSON Lines", "JSON"


def read_frame(data: Any, options: LoadOptions, label: str = "the frame") -> RawTable:
    """Return the ratings of any table in memory."""
    options.check_not_text(label)
    frame = to_polars(data, options)
    roles = assign_roles(_header(frame.columns), frame.width, options, label)
    return _to_raw(frame, frame.columns, roles, label, "row {}".format)


def read_table(data: bytes | Path, label: str, kind: str, options: LoadOptions) -> RawTable:
    """Return the ratings of a file of tables, given by its path or content."""
    options.check_not_text(f"{label}: a {kind} table")
    if kind in (PARQUET, ARROW):
        table = read_columnar(data, label, kind, options)
    else:
        frame = read_whole(data, label, kind)
        roles = assign_roles(frame.columns, frame.width, options, label)
        first = 2 if kind == SPREADSHEET else 0  # its rows count from 1, with the header
        table = _to_raw(
            frame, frame.columns, roles, label, lambda row: f"{label}, row {first + row}"
        )
    words = (f"{kind} table", table.description)
    return replace(table, description="; ".join(filter(None, words)))


def read_columnar(
    data: bytes | Path,
    label: str,
    kind: str,
    options: LoadOptions,
    rows: tuple[int, int] | None = None,
) -> RawTable:
    """Return the ratings of a Parquet or Arrow file, or of its rows first ≤ i < last alone.

    Only the columns that are needed are read; of some rows also no titles.
    """
    is_parquet = kind == PARQUET
    with _explain_errors(label):
        lazy = (pl.scan_parquet if is_parquet else pl.scan_ipc)(_file(data))
        names = list(lazy.collect_schema())
        metadata = pl.read_parquet_metadata(_file(data)) if is_parquet else {}
    roles = assign_roles(_header(names), len(names), options, label)
    if not roles.implicit_assumed:  # otherwise any column may be the rating
        needed = {*roles.positions().values()}
        needed |= set() if rows else {*roles.item_columns(names).values()}
        lazy = lazy.select([names[i] for i in sorted(needed)])
    first, last = rows or (0, None)
    with _explain_errors(label):
        frame = lazy.slice(first, None if last is None else last - first).collect()
    assert isinstance(frame, pl.DataFrame)
    scale, source = (None, "") if options.names_columns() else _own_metadata(metadata, label)
    table = _to_raw(
        frame, names, roles, label, lambda row: f"{label}, row {first + row}", scale=scale
    )
    return replace(table, source=source)


def read_whole(data: bytes | Path, label: str, kind: str) -> pl.DataFrame:
    """Return all columns of a file of tables."""
    if kind == SPREADSHEET:
        return _read_spreadsheet(data, label)
    readers: dict[str, Callable[[Any], pl.DataFrame]] = {
        PARQUET: pl.read_parquet,
        ARROW: pl.read_ipc,
        JSON_LINES: lambda file: pl.read_ndjson(file, infer_schema_length=None),
        JSON_ARRAY: lambda file: pl.read_json(file, infer_schema_length=None),
    }
    with _explain_errors(label):
        frame = readers[kind](_file(data))
    nested = any(isinstance(dtype, pl.Struct | pl.List) for dtype in frame.dtypes)
    if kind == JSON_LINES and frame.height == 1 and (nested or frame.width == 1):
        raise DataError(
            f"{label}: is a JSON object; give JSON Lines (an object a line) or an array of objects"
        )
    return frame


def _read_spreadsheet(data: bytes | Path, label: str) -> pl.DataFrame:
    try:
        import fastexcel
    except ImportError:
        raise DataError(
            f"{label}: is a spreadsheet, which needs a package; install it with: "
            "pip install 'cfnade[excel]', or save the sheet as csv"
        ) from None
    with _explain_errors(label, Exception):  # of damaged files, a dozen kinds
        book = fastexcel.read_excel(data if isinstance(data, bytes) else str(data))
        frame = book.load_sheet(0).to_polars()
    assert isinstance(frame, pl.DataFrame)
    if not frame.width:
        raise DataError(f"{label}: its first sheet is empty; move the ratings there")
    while frame.height and all(value is None for value in frame.row(-1)):
        frame = frame.head(-1)  # rows that were cleared
    return frame


def _file(data: bytes | Path) -> Any:
    return io.BytesIO(data) if isinstance(data, bytes) else data


@contextmanager
def _explain_errors(label: str, kinds: Any = (*POLARS_ERRORS, OSError)) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{label}: cannot be read as a table ({reason}); the file may be truncated or damaged: "
            "fetch or write it again"
        ) from error


def _header(names: list[str]) -> list[str] | None:
    """Return the names, None if columns are only numbered."""
    return None if names == [str(i) for i in range(len(names))] else names


def _to_raw(
    frame: pl.DataFrame,
    names: list[str],
    roles: ColumnRoles,
    label: str,
    locate: Locate,
    scale: Scale | None = None,
) -> RawTable:
    """Return the ratings of a frame, which may lack columns of `names` that are not read."""
    if not frame.height:
        raise DataError(f"{label}: has columns but no rows; there are no ratings")

    def column(place: int) -> pl.Series:
        return frame[names[place]]

    header, assumed = _header(names), ""
    if roles.implicit_assumed and scale != INTERACTIONS:
        assumed = roles.check_no_rating_ignored(header, column, len(names), label)
    places = roles.positions()
    values, note = parse_or_raise(
        {role: column(place) for role, place in places.items()},
        lambda row, role: f"{locate(row)}, column {names[places[role]]!r}",
        exact_times=scale is not None,
        time_required=not roles.time_assumed,
    )
    texts = {
        kind: column(place)
        for kind, place in roles.item_columns(names).items()
        if names[place] in frame.columns
    }
    return RawTable(
        frame=values,
        locate=locate,
        label=label,
        description=note,
        assumed=assumed,
        scale=scale,
        item_table=describe_items(values, texts, trusted=scale is not None),
        rating_column=roles.rating if roles.rating is None or not header else header[roles.rating],
    )


def _own_metadata(metadata: dict[str, str], label: str) -> tuple[Scale | None, str]:
    if "cfnade.scale" not in metadata:
        return None, ""
    try:
        edges, values = json.loads(metadata["cfnade.edges"]), json.loads(metadata["cfnade.scale"])
        return Scale.saved(values, edges), str(json.loads(metadata["cfnade.source"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{label}: its cfnade.* metadata is damaged ({error}); write it again, or name the "
            f"columns ({option('user')}, {option('item')}, {option('rating')}) to read it as "
            "any table"
        ) from error


def dataset_frame(ratings: Dataset) -> pl.DataFrame:
    """Return ratings as a table with a row for each; ids without a rating have no row in it."""
    columns = {
        "user": pl.Series(ratings.user_ids.tolist()).gather(ratings.users),
        "item": pl.Series(ratings.item_ids.tolist()).gather(ratings.items),
    }
    if not ratings.implicit:
        columns["rating"] = pl.Series(ratings.values)
    if ratings.weights is not None:
        columns["weight"] = pl.Series(np.asarray(ratings.weights))
    if ratings.times is not None:
        columns["timestamp"] = pl.Series(np.asarray(ratings.times))
    for name, texts in (("title", ratings.titles), ("genres", ratings.genres)):
        if texts is not None:
            columns[name] = pl.Series(texts.tolist(), dtype=pl.String).gather(ratings.items)
    return pl.DataFrame(columns)


def write_parquet(ratings: Dataset, path: Path) -> None:
    """Save the table of `dataset_frame`, with the scale as metadata."""
    metadata = {
        "cfnade.scale": json.dumps(ratings.scale.values),
        "cfnade.edges": json.dumps(ratings.scale.edges),
        "cfnade.source": json.dumps(ratings.source),
    }
    with atomic_write(path) as file:
        dataset_frame(ratings).write_parquet(file, metadata=metadata)
