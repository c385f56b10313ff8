"""Read the rows that a SQL query returns from a database.

SQLite is read with Python's own module: SQLAlchemy takes about twice as long for the same query.
PostgreSQL needs SQLAlchemy and psycopg, the extra `cfnade[db]`. Nothing is written to the database:
SQLite is opened read-only, and no transaction is committed.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.data.remote import password_of, redact_url
from cfnade.exceptions import DataError
from cfnade.utils.text import option

log = logging.getLogger(__name__)

_ROWS = 1 << 16  # rows that are fetched at once
_SECONDS = 10  # for a server to answer


def read_query(url: str, query: str | None) -> pl.DataFrame:
    """Return the rows of a query. Nothing is stored on disk."""
    label, name = redact_url(url), option("query")
    if query is None or not query.strip():
        raise DataError(
            f"{label}: is a database; say which rows with {name}, such as: "
            "select user_id, item_id, rating from reviews"
        )
    read = _from_sqlite if url.lower().startswith("sqlite:") else _from_server
    try:
        table = read(url, query, label)
    except (*POLARS_ERRORS, TypeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(
            f"{label}: the rows are no table of ratings ({reason}); name each column once and give "
            f"it one type (cast) in {name}"
        ) from error
    if not table.width:
        raise DataError(f"{label}: the query gives no rows and columns; write a select in {name}")
    if not table.height:
        raise DataError(f"{label}: the query gives no rows; correct its conditions in {name}")
    for column in table:
        if column.dtype in (pl.Binary, pl.Object):
            raise DataError(
                f"{label}: column {column.name!r} holds bytes (a uuid, perhaps); write it as text "
                f"in {name}, as in cast({column.name} as text) as {column.name}, or drop it"
            )
    log.info("%s: %s rows", label, f"{table.height:,}")
    return table


def _fetch(names: Sequence[str], cursor: Any) -> pl.DataFrame:
    """Return all rows; a type is known only when all of them were examined."""
    tables = [pl.DataFrame(schema=list(names))]
    while rows := [tuple(row) for row in cursor.fetchmany(_ROWS)]:
        tables.append(pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None))
    return pl.concat(tables, how="vertical_relaxed")


def _from_sqlite(url: str, query: str, label: str) -> pl.DataFrame:
    match = re.fullmatch(r"(?i)sqlite:///(.+)", url)
    if match is None:
        raise DataError(
            f"{url}: write three slashes and the path: sqlite:///shop.db, or "
            "sqlite:////home/me/shop.db from the root"
        )
    path = Path(match[1]).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: there is no such database file; check the path in {url}")
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
        with closing(connection), closing(connection.execute(query)) as cursor:
            return _fetch([column[0] for column in cursor.description or ()], cursor)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if "not a database" in str(error):
            raise DataError(f"{path}: is not an SQLite database; check the path") from error
        raise _refused(label, str(error)) from error


def _from_server(url: str, query: str, label: str) -> pl.DataFrame:
    try:
        import psycopg  # noqa: F401  SQLAlchemy imports it by name
        import sqlalchemy
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError
    except ImportError:
        raise DataError(
            f"{label}: reading PostgreSQL needs packages; install them with: "
            "pip install 'cfnade[db]'"
        ) from None
    password = password_of(url) or ""
    if re.search(r"[/?#@\[\]\s]", password):  # parts of it would pass for other parts of the URL
        raise DataError(
            f"{label}: the password holds a character that means something in an address; write it "
            "as its code (@ is %40, / is %2F, # is %23, ? is %3F), or leave the password out and "
            "set the environment variable PGPASSWORD"
        )
    is_connected = False
    try:
        address = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        if "connect_timeout" not in address.query:
            address = address.update_query_dict({"connect_timeout": str(_SECONDS)})
        engine = sqlalchemy.create_engine(
            address, hide_parameters=True, poolclass=sqlalchemy.pool.NullPool
        )
        with closing(engine.connect()) as connection:
            is_connected = True
            result = connection.exec_driver_sql(query)
            return _fetch(list(result.keys()), result) if result.returns_rows else pl.DataFrame()
    except (SQLAlchemyError, ValueError) as error:  # not chained: the cause may hold the password
        text = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        for secret in filter(None, {password, unquote(password)}):
            text = text.replace(secret, "***")
        reason = (text.strip().splitlines() or [type(error).__name__])[0]
        if is_connected:
            raise _refused(label, reason) from None
        remedy = "check host, port and database, and that the server runs"
        if re.search("password|authentication|role", reason):
            remedy = "check user and password (the environment variable PGPASSWORD is used, too)"
        raise DataError(f"{label}: the database cannot be opened ({reason}); {remedy}") from None


def _refused(label: str, reason: str) -> DataError:
    return DataError(
        f"{label}: the database refuses the query ({reason}); correct {option('query')}"
    )
