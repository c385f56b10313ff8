"""What a query of a database gives: rows of users, items and ratings.

SQLite comes with Python; PostgreSQL needs its ADBC driver, the extra `cfnade[db]`. Nothing is
written to the database: the one is opened for reading only, what is done in the other is never
committed.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from cfnade.data.addresses import masked, password_of
from cfnade.data.elsewhere import keep
from cfnade.data.fields import POLARS_ERRORS
from cfnade.exceptions import DataError

log = logging.getLogger(__name__)

_NAME = "query-result"
_ROWS = 1 << 16  # that SQLite hands over at once
_SECONDS = 10  # for a server to answer
_WRAPPING = re.compile(r"^.*(?:ERROR|FATAL):\s*|^[A-Z_]+: (?:\[libpq\] )?(?:Failed to \w+: )?")


def read_query(address: str, query: str | None) -> pl.DataFrame:
    """Return the rows that a query gives. Nothing is kept on disk."""
    shown = masked(address)
    if query is None or not query.strip():
        raise DataError(
            f"{shown}: is a database; say which rows with query=, such as: select user_id, "
            "item_id, rating from reviews"
        )
    read = _from_sqlite if address.lower().startswith("sqlite:") else _from_postgresql
    try:
        table = read(address, query, shown)
    except POLARS_ERRORS as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(
            f"{shown}: the rows are no table of ratings ({reason}); name each column once and "
            "give it one type (cast) in query="
        ) from error
    if not table.width:
        raise DataError(f"{shown}: the query gives no rows and columns; write a select in query=")
    if not table.height:
        raise DataError(f"{shown}: the query gives no rows; correct its conditions in query=")
    log.info("%s: %s rows", shown, f"{table.height:,}")
    return table.select(_plain(column, shown) for column in table.iter_columns())


def save_query_result(address: str, query: str | None) -> Path:
    """Save the rows that a query gives in the cache, as a Parquet file, and return its path.

    For trainings only, which are resumed and evaluated with the same rows later.
    """
    path = keep(_NAME, read_query(address, query).write_parquet)
    log.info("%s: rows kept as %s, for --resume and evaluate", masked(address), path)
    return path


# -- SQLite ---------------------------------------------------------------------------------------


def _from_sqlite(address: str, query: str, shown: str) -> pl.DataFrame:
    path = _sqlite_file(address)
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        with closing(connection), closing(connection.execute(query)) as cursor:
            names = [column[0] for column in cursor.description or ()]
            tables = [pl.DataFrame(schema=names)]
            while rows := cursor.fetchmany(_ROWS):
                tables.append(_typed(rows, names))
    except (sqlite3.Error, sqlite3.Warning) as error:
        if "not a database" in str(error):
            raise DataError(f"{path}: is not an SQLite database; check the path") from error
        raise _refused(shown, str(error)) from error
    return pl.concat(tables, how="vertical_relaxed")


def _typed(rows: list[Any], names: list[str]) -> pl.DataFrame:
    """SQLite has types by value, not by column: all rows must be looked at."""
    try:
        return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    except TypeError as error:
        raise pl.exceptions.SchemaError(str(error)) from error


def _sqlite_file(address: str) -> Path:
    match = re.fullmatch(r"(?i)sqlite:///(.+)", address)
    if match is None:
        raise DataError(
            f"{address}: write three slashes and the path: sqlite:///shop.db, or "
            "sqlite:////home/me/shop.db from the root"
        )
    path = Path(match[1]).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: there is no such database file; check the path in {address}")
    return path.resolve()


# -- PostgreSQL -----------------------------------------------------------------------------------


def _from_postgresql(address: str, query: str, shown: str) -> pl.DataFrame:
    try:
        import adbc_driver_manager
        import adbc_driver_postgresql  # noqa: F401  polars looks for it by name
    except ImportError:
        raise DataError(
            f"{shown}: reading PostgreSQL needs a driver; install it with: pip install 'cfnade[db]'"
        ) from None
    password = password_of(address) or ""
    if re.search(r"[/?#@\[\]\s]", password):  # the driver would take its parts for something else
        raise DataError(
            f"{shown}: the password holds a character that means something in an address; write "
            "it as its code (@ is %40, / is %2F, # is %23, ? is %3F), or leave the password out "
            "and set the environment variable PGPASSWORD"
        )
    try:
        return pl.read_database_uri(query, _impatient(address), engine="adbc")
    except adbc_driver_manager.Error as error:
        raise _said_by_driver(str(error), shown, password) from None  # it may hold the password


def _impatient(address: str) -> str:
    """With a limit to the time in which a server must answer, unless there is one."""
    if "connect_timeout=" in address or "PGCONNECT_TIMEOUT" in os.environ:
        return address
    return f"{address}{'&' if '?' in address else '?'}connect_timeout={_SECONDS}"


def _said_by_driver(text: str, shown: str, password: str) -> DataError:
    for secret in filter(None, {password, unquote(password)}):
        text = text.replace(secret, "***")
    first = text.strip().splitlines()[0]
    reason = _WRAPPING.sub("", first)
    if "Failed to connect" not in first:
        return _refused(shown, reason)
    cure = "check host, port and database, and that the server runs"
    if re.search("password|authentication|role", reason):
        cure = "check user and password (the environment variable PGPASSWORD is looked at, too)"
    return DataError(f"{shown}: the database cannot be opened ({reason}); {cure}")


# -- both -----------------------------------------------------------------------------------------


def _refused(shown: str, reason: str) -> DataError:
    return DataError(f"{shown}: the database refuses the query ({reason}); correct query=")


def _plain(column: pl.Series, shown: str) -> pl.Series:
    """As a file can hold it: exact decimals of PostgreSQL come as texts of a kind of their own."""
    if column.dtype == pl.Binary:
        raise DataError(
            f"{shown}: column {column.name!r} holds bytes (a uuid, perhaps); write it as text in "
            f"query=, as in cast({column.name} as text) as {column.name}, or leave it out"
        )
    if not hasattr(column.dtype, "ext_metadata"):
        return column
    exact = '"numeric"' in str(column.dtype.ext_metadata())
    column = column.ext.storage()
    return _number(column) if exact else column


def _number(texts: pl.Series) -> pl.Series:
    whole = texts.cast(pl.Int64, strict=False)
    return whole if whole.null_count() == texts.null_count() else texts.cast(pl.Float64)
