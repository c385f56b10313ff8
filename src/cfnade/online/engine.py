"""Store URLs, transactions on SQLite and PostgreSQL, and database errors as one message.

An error that may pass, such as a lock or a lost server, is a StoreUnavailableError; any other is a
StoreError. Passwords are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cfnade.exceptions import StoreError, StoreUnavailableError

try:
    from sqlalchemy import Connection, create_engine, event
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError
except ImportError:
    raise StoreError(
        "a store needs one more package; install it with: pip install 'cfnade[store]'"
    ) from None

STORE_FILE = "store.db"
"""The store in a model folder."""
_TIMEOUT = 5
"""Seconds to wait for a lock or a server."""
_POOL_SIZE = 12
_WRITES = "cfnade_writes"
_MODEL_FILE = "model.json"
_HINT = "give a file (ratings.db), sqlite:///ratings.db, or postgresql://user@host/name"


class Database:
    """A pool of connections to a database, for all threads of a process."""

    def __init__(self, url: URL) -> None:
        self.name = redact(url)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _create_engine(url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database."""
        with self._translate_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that is on disk when it ends, or rolled back after an error."""
        with self._translate_errors(), self._engine.connect() as connection:
            connection = connection.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Open a connection for statements that no transaction may contain, such as VACUUM."""
        with self._translate_errors(), self._engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise _translate(error, self.name) from error


# -- URLs -----------------------------------------------------------------------------------------


def redact_store_url(url: str) -> str:
    """Return a store URL with an absolute path and without its password."""
    return redact(parse_store_url(url))


def is_missing_file(url: str) -> bool:
    """Return whether a store URL is that of an SQLite file that does not exist."""
    parsed = parse_store_url(url, create=True)
    return parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists()


def parse_store_url(url: str, *, create: bool = False) -> URL:
    """Return the database URL of a store URL, a path of an SQLite file, or a model folder.

    Args:
        url: What a user gives as the store.
        create: Whether the file may be missing.
    """
    url = url.removeprefix("store:")
    if "://" not in url:
        if not url.strip():
            raise StoreError(f"the address of the store is empty; {_HINT}")
        return _sqlite_url(Path(url).expanduser(), create)
    scheme = url.partition("://")[0]
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (SQLAlchemyError, ValueError) as error:
        raise StoreError(f"{scheme}://…: is not the address of a store; {_HINT}") from error
    if "@" in (parsed.host or "") or ("@" in (parsed.database or "") and backend != "sqlite"):
        raise StoreError(
            f"{scheme}://…: the password has a character with a meaning in addresses; write it as "
            "its code (@ is %40, / is %2F, : is %3A), or omit the password and set the environment "
            "variable PGPASSWORD"
        )
    if backend == "sqlite":
        if not parsed.database or parsed.host:
            raise StoreError(f"{url}: write three slashes and the path; {_HINT}")
        return _sqlite_url(Path(parsed.database).expanduser(), create)
    if backend not in ("postgresql", "postgres"):
        raise StoreError(f"{redact(parsed)}: {backend} is not supported; {_HINT}")
    return parsed.set(drivername="postgresql+psycopg")


def redact(url: URL) -> str:
    """Return a URL without its password, or the path of an SQLite file."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    bare = url.difference_update_query(["password", "sslpassword"])
    return bare._replace(password=None, drivername=url.get_backend_name()).render_as_string()


def _sqlite_url(path: Path, create: bool) -> URL:
    if path.is_dir():
        if not any((path / part / _MODEL_FILE).exists() for part in ("", ".new")):
            raise StoreError(f"{path}: is a folder without a model; {_HINT}")
        path = path / STORE_FILE
    if not path.exists():
        if not create:
            raise StoreError(
                f"{path}: there is no store; create it with: cfnade store create {path}, or check "
                "the path"
            )
        if not path.parent.is_dir():
            raise StoreError(f"{path}: there is no folder {path.parent}; create it first")
    elif not path.is_file():
        raise StoreError(f"{path}: is not a file; {_HINT}")
    return URL.create("sqlite", database=str(path.resolve()))


# -- engines --------------------------------------------------------------------------------------


def _create_engine(url: URL) -> Any:
    pool: dict[str, Any] = {
        "pool_size": _POOL_SIZE,
        "max_overflow": 0,
        "pool_timeout": _TIMEOUT,
    }
    if url.get_backend_name() == "sqlite":
        arguments = {"timeout": _TIMEOUT, "check_same_thread": False}
        engine = create_engine(url, connect_args=arguments, **pool)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    timeout = url.query.get("connect_timeout", _TIMEOUT)
    try:
        # With the ping, no request fails after the server was restarted.
        return create_engine(
            url, connect_args={"connect_timeout": timeout}, pool_pre_ping=True, **pool
        )
    except ImportError:
        raise StoreError(
            f"{redact(url)}: PostgreSQL needs a driver; install it with: pip install "
            "'cfnade[store]'"
        ) from None


def _configure_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the module
    for setting in (
        "journal_mode=WAL",  # readers do not wait for a writer
        "synchronous=FULL",  # committed data survives a power failure
        "secure_delete=ON",  # deleted data is overwritten
        f"busy_timeout={1000 * _TIMEOUT}",
    ):
        connection.execute(f"pragma {setting}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads before it writes would fail instead of waiting for the lock.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


# -- errors ---------------------------------------------------------------------------------------

_EXPLANATIONS: list[tuple[str, type[StoreError], str]] = [
    (
        "not a database|malformed|file is encrypted",
        StoreError,
        "is not a store, or is damaged ({reason}); check the path",
    ),
    (
        "disk is full|no space left|disk I/O error|could not extend file",
        StoreUnavailableError,
        "the disk is full ({reason}); acknowledged ratings are stored, this one is not: free some "
        "space and send it again",
    ),
    (
        "database (table )?is locked|database is busy",
        StoreUnavailableError,
        "another program has locked the file for more than {timeout} s; try again, or end that "
        "program",
    ),
    (
        "readonly|read-only|unable to open|permission denied",
        StoreError,
        "cannot be opened or written ({reason}); check permissions",
    ),
    (
        "password|authentication|(role|database) .* does not exist",
        StoreError,
        "the server refused the connection ({reason}); check the user, the password (or the "
        "environment variable PGPASSWORD) and the name of the database",
    ),
]
"""What a driver's reason contains, the error, and its message."""


def _translate(error: SQLAlchemyError, name: str) -> StoreError:
    """Return an error with the driver's reason, without the statement and its values."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or [""]
    reason = re.sub(r"^.*?(?:FATAL|ERROR):\s*", "", lines[0].strip())[:200]
    for pattern, kind, text in _EXPLANATIONS:
        if re.search(pattern, reason, re.IGNORECASE):
            return kind(f"{name}: {text.format(reason=reason, timeout=_TIMEOUT)}")
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    ):
        return StoreUnavailableError(f"{name}: the database is unreachable ({reason}); try again")
    return StoreError(f"{name}: the database refused the statement ({reason})")
