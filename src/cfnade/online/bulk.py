"""Import tables of ratings into a store, and read its current ratings as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import polars as pl
from sqlalchemy import Connection, select

from cfnade.exceptions import StoreError
from cfnade.online.event_store import (
    ERASED_USERS,
    ITEMS,
    MAX_ID_LENGTH,
    EventStore,
    digest_of,
    get_metadata,
    set_metadata,
    validate_id,
)

_INSERT_ROWS, _READ_ROWS = 50_000, 5_000
_SCALE = "scale"
_IDENTITY = ["user_id", "item_id", "type", "rating", "timestamp"]
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


def import_events(
    store: EventStore, table: pl.DataFrame, *, source: str, scale: Sequence[float] = ()
) -> int:
    """Import a table, all of it or nothing, and return the number of new events.

    Events that are stored already, and those of erased users up to their erasure, are skipped.

    Args:
        store: The store.
        table: Columns user_id and item_id, and rating, timestamp, title and genres if known.
        source: Where the events come from, for `cfnade store info`.
        scale: Possible ratings, added to those of the store in the same transaction.
    """
    table = _events(table, source)
    with store.write() as connection:
        table = _without_erased(connection, table)
        stored = _read_events(connection)
        if stored.height:
            table = table.join(stored, _IDENTITY, "anti", nulls_equal=True, maintain_order="left")
        rows = table.select(*_IDENTITY, "source")
        for part in rows.iter_slices(_INSERT_ROWS):
            _insert(connection, store, part)
        _add_items(connection, table)
        if scale:
            values = {*(_get_scale(connection) or []), *scale}
            set_metadata(connection, _SCALE, json.dumps(sorted(values)))
    return table.height


def _events(table: pl.DataFrame, source: str) -> pl.DataFrame:
    """Return a table with all columns of events and valid ids."""
    for name in ("user_id", "item_id"):
        table = table.with_columns(pl.col(name).cast(pl.String))
        is_invalid = (
            ~pl.col(name).str.len_chars().is_between(1, MAX_ID_LENGTH)
            | pl.col(name).str.contains(r"[\x00-\x1f]")
            | pl.col(name).is_null()
        )
        invalid = table.filter(is_invalid)
        if invalid.height:
            validate_id(str(invalid[name][0] or ""), name.removesuffix("_id"))
    has_ratings, has_times = "rating" in table.columns, "timestamp" in table.columns
    rating = pl.col("rating") if has_ratings else pl.lit(None)
    timestamp = pl.col("timestamp") if has_times else pl.lit(int(time.time()))
    return table.with_columns(
        rating.cast(pl.Float64).alias("rating"),
        timestamp.cast(pl.Int64).alias("timestamp"),
        type=pl.lit("rating" if has_ratings else "interaction"),
        source=pl.lit(source),
    )


def _without_erased(connection: Connection, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table without events from before the erasure of their user."""
    rows = connection.execute(select(ERASED_USERS))
    erased = {row.digest: row.time for row in rows}
    if not erased:
        return table
    digests = {user: digest_of(connection, user) for user in table["user_id"].unique()}
    times = {user: erased[digest] for user, digest in digests.items() if digest in erased}
    time = pl.col("user_id").replace_strict(times, default=None, return_dtype=pl.Int64)
    return table.filter((pl.col("timestamp") > time) | time.is_null())


def _insert(connection: Connection, store: EventStore, rows: pl.DataFrame) -> None:
    """Insert rows by the driver: SQLAlchemy needs a quarter more time."""
    names = ", ".join(f'"{name}"' for name in rows.columns)
    if store.is_sqlite:
        marks = ", ".join("?" * rows.width)
        connection.exec_driver_sql(f"insert into events ({names}) values ({marks})", rows.rows())
        return
    cursor: Any = connection.connection.cursor()
    with cursor, cursor.copy(f"copy events ({names}) from stdin") as copy:
        for row in rows.iter_rows():
            copy.write_row(row)


def _add_items(connection: Connection, table: pl.DataFrame) -> None:
    """Register the items of a table; titles of registered items stay."""
    columns = [name for name in ("title", "genres") if name in table.columns]
    items = table.select("item_id", *columns).unique("item_id", keep="first", maintain_order=True)
    registered = set(connection.execute(select(ITEMS.c.item_id)).scalars())
    rows = [row for row in items.iter_rows(named=True) if row["item_id"] not in registered]
    for first in range(0, len(rows), _INSERT_ROWS):
        connection.execute(ITEMS.insert(), rows[first : first + _INSERT_ROWS])


def scale_of(store: EventStore) -> list[float] | None:
    """Return the possible ratings of a store, None if it has no scale."""
    with store.read() as connection:
        return _get_scale(connection)


def _get_scale(connection: Connection) -> list[float] | None:
    values = get_metadata(connection, _SCALE)
    return None if values is None else json.loads(values)


# -- reading --------------------------------------------------------------------------------------


def ratings_frame(store: EventStore, *, implicit: bool = False) -> pl.DataFrame:
    """Return user, item, rating, timestamp (and title, genres) of all current ratings, by time.

    Ids become integers if all of a column are written as integers. `implicit` returns interactions
    without ratings.
    """
    with store.read() as connection:
        items = pl.DataFrame(
            [tuple(row) for row in connection.execute(select(ITEMS))],
            {column.name: pl.String for column in ITEMS.c},
            orient="row",
        )
        events = _read_events(connection)
    current = (
        events.sort("timestamp", "id")
        .unique(["user_id", "item_id"], keep="last", maintain_order=True)
        .filter(pl.col("type") == ("interaction" if implicit else "rating"))
    )
    if not current.height:
        missing = "ratings or interactions" if implicit else "ratings"
        raise StoreError(
            f"{store.name}: there are no {missing} in the store yet; import some with: "
            "cfnade store import"
        )
    table = current.select(
        _ids(current["user_id"]).alias("user"),
        _ids(current["item_id"]).alias("item"),
        *([] if implicit else ["rating"]),
        "timestamp",
        "item_id",
    )
    for column in ("title", "genres"):
        if items[column].null_count() < items.height:
            texts = items.select("item_id", pl.col(column).fill_null(""))
            table = table.join(texts, "item_id", "left", maintain_order="left")
    return table.drop("item_id")


def _read_events(connection: Connection) -> pl.DataFrame:
    """Read all events by columns, in a quarter of the memory of rows as objects."""
    types = [pl.Int64, pl.String, pl.String, pl.String, pl.Float64, pl.Int64]
    schema = dict(zip(("id", *_IDENTITY), types, strict=True))
    # Only a named cursor of PostgreSQL leaves the rows on the server.
    name = () if connection.dialect.name == "sqlite" else ("events",)
    cursor: Any = connection.connection.cursor(*name)
    parts = [pl.DataFrame(schema=schema)]
    with closing(cursor):
        cursor.execute(f"select {', '.join(schema)} from events")
        while rows := cursor.fetchmany(_READ_ROWS):
            parts.append(pl.DataFrame(list(zip(*rows, strict=True)), schema, orient="col"))
    return pl.concat(parts)


def _ids(texts: pl.Series) -> pl.Series:
    return texts.cast(pl.Int64) if texts.str.contains(_INTEGER).all() else texts
