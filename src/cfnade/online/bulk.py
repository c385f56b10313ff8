"""The whole store: tables of ratings into it, and what counts of it out again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import polars as pl
from sqlalchemy import Connection, func, select

from cfnade.exceptions import StoreError
from cfnade.online.engine import Store
from cfnade.online.event_store import LONGEST, check_id, digest_of
from cfnade.online.schema import EVENTS, FORGOTTEN, ITEMS, fact, set_fact

_PIECE = 50_000
_READ = 5_000
_SCALE = "scale"
_SAME = ["person", "item", "kind", "rating", "at"]
_DIGITS = r"^(0|-?[1-9][0-9]{0,17})$"


def import_events(
    store: Store, table: pl.DataFrame, *, source: str, scale: Sequence[float] = ()
) -> int:
    """Add a table's events, all or none: person, item, and rating, at, title, genres if known.

    What is older than the moment at which its person was forgotten stays out, and so does what is
    there already: a file that is brought in again changes nothing. The store's scale gets the
    values of `scale` in the same transaction, so that a failed import leaves it as it was. Returns
    how many came in.
    """
    now = int(time.time())
    table = _checked(table, now, source)
    with store.writing() as connection:
        table = _without_forgotten(connection, table)
        if last_event(connection):
            there = _all_events(connection)
            table = table.join(there, _SAME, "anti", nulls_equal=True, maintain_order="left")
        rows = table.select("person", "item", "kind", "rating", "at", "source")
        for piece in rows.iter_slices(_PIECE):
            _insert(connection, store, piece)
        _name_items(connection, table)
        if scale:
            values = {*(_scale_in(connection) or []), *scale}
            set_fact(connection, _SCALE, json.dumps(sorted(values)))
    return table.height


def _checked(table: pl.DataFrame, now: int, source: str) -> pl.DataFrame:
    """With all columns, as they are kept."""
    for name in ("person", "item"):
        table = table.with_columns(pl.col(name).cast(pl.String))
        lengths = table[name].str.len_chars()
        odd = table.filter(
            (lengths == 0)
            | (lengths > LONGEST)
            | pl.col(name).str.contains(r"[\x00-\x1f]")
            | pl.col(name).is_null()
        )
        if odd.height:
            check_id(str(odd[name][0] or ""), name)
    rating = pl.col("rating") if "rating" in table.columns else pl.lit(None)
    at = pl.col("at") if "at" in table.columns else pl.lit(now)
    return table.with_columns(
        rating.cast(pl.Float64).alias("rating"),
        pl.lit("rate" if "rating" in table.columns else "pick").alias("kind"),
        at.cast(pl.Int64).alias("at"),
        pl.lit(source).alias("source"),
    )


def _without_forgotten(connection: Connection, table: pl.DataFrame) -> pl.DataFrame:
    rows = connection.execute(select(FORGOTTEN.c.digest, FORGOTTEN.c.at))
    gone = {row.digest: row.at for row in rows}
    if not gone:
        return table
    people = {person: digest_of(connection, person) for person in table["person"].unique()}
    left_out = {person: gone[digest] for person, digest in people.items() if digest in gone}
    since = pl.col("person").replace_strict(left_out, default=None, return_dtype=pl.Int64)
    return table.filter((pl.col("at") > since) | since.is_null())


def _insert(connection: Connection, store: Store, piece: pl.DataFrame) -> None:
    """Rows at the speed of the driver: the statement is made once."""
    names = ", ".join(f'"{name}"' for name in piece.columns)
    if store.is_file:
        marks = ", ".join("?" * piece.width)
        connection.exec_driver_sql(f"insert into events ({names}) values ({marks})", piece.rows())
        return
    cursor: Any = connection.connection.cursor()
    with cursor, cursor.copy(f"copy events ({names}) from stdin") as copy:
        for row in piece.iter_rows():
            copy.write_row(row)


def _name_items(connection: Connection, table: pl.DataFrame) -> None:
    """Items by name; a title that is known already stays."""
    told = [name for name in ("title", "genres") if name in table.columns]
    items = table.select("item", *told).unique("item", keep="first", maintain_order=True)
    names = set(connection.execute(select(ITEMS.c.item)).scalars())
    rows = [row for row in items.iter_rows(named=True) if row["item"] not in names]
    for first in range(0, len(rows), _PIECE):
        connection.execute(ITEMS.insert(), rows[first : first + _PIECE])


def scale_of(store: Store) -> list[float] | None:
    """The values that a rating may have, for whoever trains on them."""
    with store.reading() as connection:
        return _scale_in(connection)


def _scale_in(connection: Connection) -> list[float] | None:
    values = fact(connection, _SCALE)
    return None if values is None else json.loads(values)


# -- out -----------------------------------------------------------------------------------------


def ratings_frame(store: Store, *, picks: bool = False) -> pl.DataFrame:
    """user, item, rating, timestamp (and title, genres) of all that counts, the earliest first.

    Ids that are all written as whole numbers are whole numbers. `picks` gives interactions without
    ratings. What was forgotten or withdrawn is not in it.
    """
    with store.reading() as connection:
        items = pl.DataFrame(
            [tuple(row) for row in connection.execute(select(ITEMS))],
            {"item": pl.String, "title": pl.String, "genres": pl.String},
            orient="row",
        )
        events = _all_events(connection)
    latest = (
        events.sort("at", "id")
        .unique(["person", "item"], keep="last", maintain_order=True)
        .filter(pl.col("kind") == ("pick" if picks else "rate"))
    )
    if not latest.height:
        raise StoreError(
            f"{store.shown}: there are no {'picks' if picks else 'ratings'} in the store yet; "
            "bring some in with: cfnade store import"
        )
    table = latest.select(
        _ids(latest["person"]).alias("user"),
        _ids(latest["item"]).alias("item"),
        *([] if picks else ["rating"]),
        pl.col("at").alias("timestamp"),
        pl.col("item").alias("name"),
    )
    for column in ("title", "genres"):
        if items[column].null_count() < items.height:
            told = items.select(pl.col("item").alias("name"), pl.col(column).fill_null(""))
            table = table.join(told, "name", "left", maintain_order="left")
    return table.drop("name")


def _all_events(connection: Connection) -> pl.DataFrame:
    """As the driver reads them, by columns: a quarter of what rows as objects take."""
    kinds = [pl.Int64, pl.String, pl.String, pl.String, pl.Float64, pl.Int64]
    schema = dict(zip(("id", "person", "item", "kind", "rating", "at"), kinds, strict=True))
    name = () if connection.dialect.name == "sqlite" else ("events",)  # a server's cursor has one
    cursor: Any = connection.connection.cursor(*name)
    pieces = [pl.DataFrame(schema=schema)]
    with closing(cursor):
        cursor.execute(f"select {', '.join(schema)} from events")
        while rows := cursor.fetchmany(_READ):
            pieces.append(pl.DataFrame(list(zip(*rows, strict=True)), schema, orient="col"))
    return pl.concat(pieces)


def _ids(texts: pl.Series) -> pl.Series:
    """As whole numbers if all are written as such, so that they are the ids of the file again."""
    return texts.cast(pl.Int64) if texts.str.contains(_DIGITS).all() else texts


def has_ratings(store: Store) -> bool:
    """Whether anybody ever rated; else there are interactions alone."""
    with store.reading() as connection:
        rated = select(EVENTS.c.id).where(EVENTS.c.kind == "rate").limit(1)
        return connection.execute(rated).first() is not None


def last_event(connection: Connection) -> int:
    """The number of the newest event; 0 if there is none."""
    return int(connection.execute(select(func.max(EVENTS.c.id))).scalar() or 0)
