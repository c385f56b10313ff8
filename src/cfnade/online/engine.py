"""A store by its address: a file of SQLite, or a server of PostgreSQL.

Whatever is wrong with a database becomes one message: a StoreUnavailableError if it may be right
again in a moment, else a StoreError. A password is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cfnade.exceptions import StoreError, StoreUnavailableError

try:
    from sqlalchemy import Connection, create_engine, event, text
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError
except ImportError:
    raise StoreError(
        "a store needs one more package; install it with: pip install 'cfnade[store]'"
    ) from None

from cfnade.online.schema import migrate, refuse_newer, version_of

FILE = "store.db"
"""The store in the folder of a model."""
_SECONDS = 5
"""For a lock to be given up, or a server to answer."""
_CONNECTIONS = 12
_WRITES = "cfnade_writes"
_FOLDER_OF_A_MODEL = "model.json"
_HOW = "give a file (ratings.db), sqlite:///ratings.db, or postgresql://user@host/name"
_LOCK = 0x6366_6E61  # of PostgreSQL: who makes or changes the tables
_MIGRATING = text(f"select pg_advisory_xact_lock({_LOCK})")


class Store:
    """Connections to one store, for any number of threads of one process."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.shown = _shown(url)
        self.engine = _engine(url)

    @property
    def is_file(self) -> bool:
        """Whether it is SQLite."""
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state and changes nothing."""
        with self._told(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on disk when it ends well, and as if never begun otherwise."""
        with self._told(), self.engine.connect() as connection:
            connection = connection.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """Statements that no transaction may hold: VACUUM."""
        with self._told(), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise _said(error, self.shown) from error


def open_store(address: str, *, create: bool = False) -> Store:
    """The store at an address, with tables of this version; `create` makes what is not there."""
    store = Store(url_of(address, create=create))
    try:
        with store.reading() as connection:
            version = version_of(connection)
        refuse_newer(version, store.shown)
        if version == 0 and not create:
            raise StoreError(
                f"{store.shown}: holds no store; make one with: cfnade store create {store.shown}"
            )
        with store.writing() as connection:
            if not store.is_file:
                connection.execute(_MIGRATING)
            migrate(connection, store.shown)
    except BaseException:
        store.close()
        raise
    return store


def make_missing_file(address: str) -> str | None:
    """Make the store of an address if that is an SQLite file that does not exist.

    Returns the path of a new store; None if the file is there, or if the address is that of a
    server, whose tables only `cfnade store create` makes.
    """
    url = url_of(address, create=True)
    if url.get_backend_name() != "sqlite" or Path(str(url.database)).exists():
        return None
    store = open_store(address, create=True)
    store.close()
    return store.shown


def address_of(address: str) -> str:
    """The address as it may be noted: it means the same anywhere, and holds no password."""
    return _shown(url_of(address))


def url_of(address: str, *, create: bool = False) -> URL:
    """What an address means; a path is a file of SQLite, a model's folder the store in it."""
    address = address.removeprefix("store:")
    if "://" not in address:
        if not address.strip():
            raise StoreError(f"the address of the store is empty; {_HOW}")
        return _file_url(Path(address).expanduser(), create)
    scheme = address.partition("://")[0]
    try:
        url = make_url(address)
        name = url.get_backend_name()
    except (SQLAlchemyError, ValueError) as error:
        raise StoreError(f"{scheme}://…: is not the address of a store; {_HOW}") from error
    if "@" in (url.host or "") or ("@" in (url.database or "") and name != "sqlite"):
        raise StoreError(
            f"{scheme}://…: the password holds a character that means something in an address; "
            "write it as its code (@ is %40, / is %2F, : is %3A), or leave the password out and "
            "set the environment variable PGPASSWORD"
        )
    if name == "sqlite":
        if not url.database or url.host:
            raise StoreError(f"{address}: write three slashes and the path; {_HOW}")
        return _file_url(Path(url.database).expanduser(), create)
    if name not in ("postgresql", "postgres"):
        raise StoreError(f"{_shown(url)}: {name} cannot be a store; {_HOW}")
    return url.set(drivername="postgresql+psycopg")


def _file_url(path: Path, create: bool) -> URL:
    if path.is_dir():
        if not any((path / part / _FOLDER_OF_A_MODEL).exists() for part in ("", ".new")):
            raise StoreError(f"{path}: is a folder without a model; {_HOW}")
        path = path / FILE
    if not path.exists():
        if not create:
            raise StoreError(
                f"{path}: there is no store; make one with: cfnade store create {path}, or check "
                "the path"
            )
        if not path.parent.is_dir():
            raise StoreError(f"{path}: the folder {path.parent} is not there; make it first")
    elif not path.is_file():
        raise StoreError(f"{path}: is not a file; {_HOW}")
    return URL.create("sqlite", database=str(path.resolve()))


def _shown(url: URL) -> str:
    """As it may be shown and kept: without the password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    bare = url.difference_update_query(["password", "sslpassword"])
    return bare._replace(password=None, drivername=url.get_backend_name()).render_as_string()


# -- engines -------------------------------------------------------------------------------------


def _engine(url: URL) -> Any:
    pool: dict[str, Any] = {"pool_size": _CONNECTIONS, "max_overflow": 0, "pool_timeout": _SECONDS}
    if url.get_backend_name() == "sqlite":
        patience = {"timeout": _SECONDS, "check_same_thread": False}
        engine = create_engine(url, connect_args=patience, **pool)
        event.listen(engine, "connect", _prepare_file)
        event.listen(engine, "begin", _begin_file)
        return engine
    try:
        return create_engine(
            url,
            connect_args={"connect_timeout": url.query.get("connect_timeout", _SECONDS)},
            pool_pre_ping=True,  # a server that was away costs no request more
            **pool,
        )
    except ImportError:
        raise StoreError(
            f"{_shown(url)}: PostgreSQL needs a driver; install it with: pip install "
            "'cfnade[store]'"
        ) from None


def _prepare_file(connection: Any, _: object) -> None:
    connection.isolation_level = None  # begin and commit come from here, not from the module
    for setting in (
        "journal_mode=WAL",  # readers go on while one writes
        "synchronous=FULL",  # what was committed survives a power cut
        "secure_delete=ON",  # what is forgotten is overwritten
        f"busy_timeout={1000 * _SECONDS}",
    ):
        connection.execute(f"pragma {setting}")


def _begin_file(connection: Connection) -> None:
    # A transaction that reads first and then writes could not wait for its turn.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


# -- errors --------------------------------------------------------------------------------------

_FULL = re.compile("disk is full|no space left|disk I/O error|could not extend file", re.I)
_LOCKED = re.compile("database (?:table )?is locked|database is busy", re.I)
_READ_ONLY = re.compile("readonly|read-only|unable to open|permission denied", re.I)
_REFUSED = re.compile("password|authentication|role .* does not exist|database .* does not exist")
_BROKEN = re.compile("not a database|malformed|file is encrypted", re.I)


def _said(error: SQLAlchemyError, shown: str) -> StoreError:
    """One message of what a driver says, without the statement and what was to be written."""
    reason = _reason(error)
    if _BROKEN.search(reason):
        return StoreError(f"{shown}: is not a store, or is damaged ({reason}); check the path")
    if _FULL.search(reason):
        return StoreUnavailableError(
            f"{shown}: the disk is full ({reason}); nothing that was acknowledged is lost, and "
            "this was not kept: make room and send it again"
        )
    if _LOCKED.search(reason):
        return StoreUnavailableError(
            f"{shown}: another program holds the file locked for more than {_SECONDS} s; try "
            "again, or end that program"
        )
    if _READ_ONLY.search(reason):
        return StoreError(f"{shown}: cannot be written or opened ({reason}); check its rights")
    if _REFUSED.search(reason):
        return StoreError(
            f"{shown}: the server does not let us in ({reason}); check user, password (or the "
            "environment variable PGPASSWORD) and the name of the database"
        )
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    ):
        return StoreUnavailableError(f"{shown}: the database is out of reach ({reason}); try again")
    return StoreError(f"{shown}: the database refuses ({reason})")


def _reason(error: SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or [""]
    return re.sub(r"^.*?(?:FATAL|ERROR):\s*", "", lines[0].strip())[:200]
