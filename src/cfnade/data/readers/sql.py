"""Read the rows that a SQL query returns from a database.

SQLite is read with Python's own module: SQLAlchemy takes about twice as long for the same query.
PostgreSQL needs SQLAlchemy and psycopg, the extra `cfnade[db]`. Nothing is written to the database:
SQLite is opened read-only, and no transaction is committed.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
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
    redacted = redact_url(url)
    if query is None or not query.strip():
        raise DataError(
            f"{redacted}: is a database; say which rows with {option('query')}, such as: "
            "select user_id, "
            "item_id, rating from reviews"
        )
    read = _from_sqlite if url.lower().startswith("sqlite:") else _from_server
    try:
        table = read(url, query, redacted)
    except POLARS_ERRORS as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(
            f"{redacted}: the rows are no table of ratings ({reason}); name each column once and "
            f"give it one type (cast) in {option('query')}"
        ) from error
    if not table.width:
        raise DataError(
            f"{redacted}: the query gives no rows and columns; write a select in {option('query')}"
        )
    if not table.height:
        raise DataError(
            f"{redacted}: the query gives no rows; correct its conditions in {option('query')}"
        )
    log.info("%s: %s rows", redacted, f"{table.height:,}")
    for column in table.iter_columns():
        if column.dtype in (pl.Binary, pl.Object):
            raise DataError(
                f"{redacted}: column {column.name!r} holds bytes (a uuid, perhaps); write it as "
                f"text in {option('query')}, as in cast({column.name} as text) as {column.name}, "
                "or drop it"
            )
    return table


def _fetch(names: Sequence[str], fetchmany: Callable[[int], Sequence[Any]]) -> pl.DataFrame:
    """Return all rows; a type is known only when all of them were examined."""
    tables = [pl.DataFrame(schema=list(names))]
    while rows := fetchmany(_ROWS):
        try:
            rows = [tuple(row) for row in rows]
            frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
        except TypeError as error:
            raise pl.exceptions.SchemaError(str(error)) from error
        tables.append(frame)
    return pl.concat(tables, how="vertical_relaxed")


def _from_sqlite(url: str, query: str, redacted: str) -> pl.DataFrame:
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
            return _fetch([column[0] for column in cursor.description or ()], cursor.fetchmany)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if "not a database" in str(error):
            raise DataError(
                f"{path.resolve()}: is not an SQLite database; check the path"
            ) from error
        raise _refused(redacted, str(error)) from error


def _from_server(url: str, query: str, redacted: str) -> pl.DataFrame:
    try:
        import psycopg  # noqa: F401  SQLAlchemy imports it by name
        import sqlalchemy
    except ImportError:
        raise DataError(
            f"{redacted}: reading PostgreSQL needs packages; install them with: "
            "pip install 'cfnade[db]'"
        ) from None
    password = password_of(url) or ""
    if re.search(r"[/?#@\[\]\s]", password):  # parts of it would pass for other parts of the URL
        raise DataError(
            f"{redacted}: the password holds a character that means something in an address; write "
            "it as its code (@ is %40, / is %2F, # is %23, ? is %3F), or leave the password out "
            "and set the environment variable PGPASSWORD"
        )
    with _explain_errors(redacted, password):
        address = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        if "connect_timeout" not in address.query:
            address = address.update_query_dict({"connect_timeout": str(_SECONDS)})
        engine = sqlalchemy.create_engine(
            address, hide_parameters=True, poolclass=sqlalchemy.pool.NullPool
        )
        connection = engine.connect()
    with closing(connection), _explain_errors(redacted, password, connected=True):
        result = connection.exec_driver_sql(query)
        if not result.returns_rows:
            return pl.DataFrame()
        return _fetch(list(result.keys()), result.fetchmany)


@contextmanager
def _explain_errors(redacted: str, password: str, *, connected: bool = False) -> Iterator[None]:
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        text = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        for secret in filter(None, {password, unquote(password)}):
            text = text.replace(secret, "***")
        reason = (text.strip().splitlines() or [type(error).__name__])[0]
        if connected:
            raise _refused(redacted, reason) from None  # the cause may hold the password
        remedy = "check host, port and database, and that the server runs"
        if re.search("password|authentication|role", reason):
            remedy = "check user and password (the environment variable PGPASSWORD is used, too)"
        raise DataError(f"{redacted}: the database cannot be opened ({reason}); {remedy}") from None


def _refused(redacted: str, reason: str) -> DataError:
    return DataError(
        f"{redacted}: the database refuses the query ({reason}); correct {option('query')}"
    )
