"""The event store: ratings, interactions and withdrawals of users, in SQLite or PostgreSQL.

Events are only appended. Of several events of a user and an item the latest is current, by time
and then by number. The time of such events never decreases, even if a machine's clock is behind:
the event that arrived last is current.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    inspect,
    select,
    text,
    update,
)

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.online.engine import Database, parse_store_url

log = logging.getLogger("cfnade.online")

EventType = Literal["rating", "interaction", "withdrawal"]

MAX_ID_LENGTH = 300
MAX_USER_ITEMS = 5_000
"""Current ratings of a user; of more, the latest."""

_VERSION = 3  # of the tables
_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER columns

# Ids are texts, those of MovieLens their digits. Times are whole seconds since 1970.
_TABLES = MetaData()
EVENTS = Table(
    "events",
    _TABLES,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("user_id", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("rating", Double),
    Column("timestamp", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Index("events_of_user", "user_id", "item_id", "timestamp", "id"),
    Index("events_of_item", "item_id"),
    sqlite_autoincrement=True,  # ids of erased events are not used again
)
ITEMS = Table(
    "items",
    _TABLES,
    Column("item_id", Text, primary_key=True),
    Column("title", Text),
    Column("genres", Text),
)
PREDICTIONS = Table(
    "predictions",
    _TABLES,
    Column("event_id", _NUMBER, primary_key=True, autoincrement=False),
    Column("prediction", Double, nullable=False),
    Column("user_in_model", Boolean, nullable=False),
    Column("model", Text, nullable=False),
)
ERASED_USERS = Table(
    "erased_users",
    _TABLES,
    Column("digest", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
)
METADATA = Table(
    "metadata",
    _TABLES,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Building a statement takes longer than running it: frequent ones are built once.
_LATEST = (
    select(EVENTS.c.type, EVENTS.c.rating, EVENTS.c.timestamp)
    .where((EVENTS.c.user_id == bindparam("user")) & (EVENTS.c.item_id == bindparam("item")))
    .order_by(EVENTS.c.timestamp.desc(), EVENTS.c.id.desc())
    .limit(1)
)
_OF_USERS = (
    select(
        *(EVENTS.c[name] for name in ("user_id", "item_id", "type", "rating", "timestamp", "id"))
    )
    .where(EVENTS.c.user_id.in_(bindparam("users", expanding=True)))
    .order_by(EVENTS.c.timestamp, EVENTS.c.id)
)
_LOCK_USERS = text("select pg_advisory_xact_lock(n) from unnest(cast(:locks as bigint[])) as n")
_LOCK_TABLES = text(f"select pg_advisory_xact_lock({0x6366_6E61})")


class Event(NamedTuple):
    """A rating, an interaction or a withdrawal of a user; only a rating has `rating`."""

    user_id: str
    item_id: str
    type: EventType
    rating: float | None = None
    source: str = "service"


class AppendResult(NamedTuple):
    """The number of a stored event, None if it changes nothing; and its time."""

    event_id: int | None
    timestamp: int


class StoredRating(NamedTuple):
    """The current rating or interaction of a user and an item."""

    item_id: str
    rating: float | None
    timestamp: int
    event_id: int


class Erasure(NamedTuple):
    """What the erasure of a user removed."""

    n_events: int
    """If 0, the store had nothing of the user, and nothing was changed."""
    purged: bool
    """Whether the deleted data is gone from the files too, not only from the tables."""


class EventStore(Database):
    """Append-only events in SQLite or PostgreSQL; thread-safe."""

    @classmethod
    def open(cls, url: str, *, create: bool = False) -> EventStore:
        """Open a store; `create` creates its file and tables if they are missing."""
        store = cls(parse_store_url(url, create=create))
        try:
            with store.read() as connection:
                exists = _exists(connection, store.name)
            if not exists:
                if not create:
                    raise StoreError(
                        f"{store.name}: has no store; create it with: cfnade store create "
                        f"{store.name}"
                    )
                store._create_tables()
        except BaseException:
            store.close()
            raise
        return store

    def _create_tables(self) -> None:
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(_LOCK_TABLES)
            if _exists(connection, self.name):
                return
            _TABLES.create_all(connection, checkfirst=False)
            values = {"version": str(_VERSION), "salt": secrets.token_hex(16)}
            rows = [{"key": key, "value": value} for key, value in values.items()]
            connection.execute(METADATA.insert(), rows)
        log.info("%s: created an empty store", self.name)

    # -- writing ----------------------------------------------------------------------------------

    def append(self, events: Sequence[Event], now: int | None = None) -> list[AppendResult]:
        """Append events in one transaction. They are on disk when this returns.

        An event that equals the current one is not stored again.
        """
        for event in events:
            validate_id(event.user_id, "user")
            validate_id(event.item_id, "item")
        now = int(time.time()) if now is None else now
        with self.write() as connection:
            if not self.is_sqlite:  # which has one writer; sorted, so that there is no deadlock
                locks = sorted({_lock_number(event.user_id) for event in events})
                connection.execute(_LOCK_USERS, {"locks": locks})
            return [_append(connection, event, now) for event in events]

    def register_item(
        self, item_id: str, title: str | None = None, genres: Sequence[str] = ()
    ) -> None:
        """Add an item that users may rate, or replace the given fields of a registered one."""
        validate_id(item_id, "item")
        columns = {"title": title, "genres": "|".join(genres) or None}
        values = {name: value for name, value in columns.items() if value is not None}
        of_item = ITEMS.c.item_id == item_id
        with self.write() as connection:
            if connection.execute(select(ITEMS).where(of_item)).first() is None:
                connection.execute(ITEMS.insert().values(item_id=item_id, **values))
            elif values:
                connection.execute(update(ITEMS).where(of_item).values(values))

    def erase_user(self, user_id: str) -> Erasure:
        """Erase everything about a user, also from the files of the database.

        A salted digest of the id and the time stay, so that importing an older file does not
        restore the user. Nothing is noted of an id without events: it may be mistyped.
        """
        validate_id(user_id, "user")
        with self.write() as connection:
            of_user = EVENTS.c.user_id == user_id
            ids = select(EVENTS.c.id).where(of_user)
            connection.execute(delete(PREDICTIONS).where(PREDICTIONS.c.event_id.in_(ids)))
            n_events = connection.execute(delete(EVENTS).where(of_user)).rowcount
            if n_events:
                digest = digest_of(connection, user_id)
                connection.execute(delete(ERASED_USERS).where(ERASED_USERS.c.digest == digest))
                row = {"digest": digest, "time": int(time.time())}
                connection.execute(ERASED_USERS.insert().values(row))
        return Erasure(n_events, self._purge_deleted_pages())

    def _purge_deleted_pages(self) -> bool:
        """Remove deleted data from the files; return False if a reader prevents it.

        SQLite overwrites deleted data, but its log has it until it is truncated. PostgreSQL keeps
        old rows, and some ids in its statistics, until tables are rewritten.
        """
        try:
            with self.autocommit() as connection:
                if self.is_sqlite:
                    query = "pragma wal_checkpoint(truncate)"
                    return not connection.exec_driver_sql(query).one()[0]
                for table in (EVENTS, PREDICTIONS):
                    connection.execute(text(f"vacuum (full, analyze) {table.name}"))
                return True
        except StoreUnavailableError:
            return False

    # -- reading ----------------------------------------------------------------------------------

    def ratings(self, user_id: str) -> list[StoredRating]:
        """Return the current ratings and interactions of a user, the earliest first."""
        return self.ratings_before([(user_id, None)])[0]

    def ratings_before(self, events: Sequence[tuple[str, int | None]]) -> list[list[StoredRating]]:
        """Return what was current before each event (user, number), by one query for all.

        The number None stands for now.
        """
        rows: dict[str, list[Any]] = {validate_id(user, "user"): [] for user, _ in events}
        with self.read() as connection:
            for user, *row in connection.execute(_OF_USERS, {"users": list(rows)}):
                rows[user].append(row)
        return [_current(rows[user], before) for user, before in events]

    def item_titles(self, item_ids: Sequence[str]) -> dict[str, str | None]:
        """Return the titles of the registered ones among these items."""
        if not item_ids:
            return {}
        query = select(ITEMS.c.item_id, ITEMS.c.title).where(ITEMS.c.item_id.in_(item_ids))
        with self.read() as connection:
            return {row.item_id: row.title for row in connection.execute(query)}

    def has_ratings(self) -> bool:
        """Return whether any event is a rating."""
        return self._scalar(select(EVENTS.c.id).where(EVENTS.c.type == "rating").limit(1)) > 0

    def n_events(self) -> int:
        """Return the number of events."""
        return self._scalar(select(func.count()).select_from(EVENTS))

    def last_event_id(self) -> int:
        """Return the number of the newest event, 0 if there is none."""
        return self._scalar(select(func.max(EVENTS.c.id)))

    def _scalar(self, query: Select[Any]) -> int:
        """Return the number that a query finds, 0 if it finds none."""
        with self.read() as connection:
            return int(connection.execute(query).scalar() or 0)

    def count_erased(self, user_ids: Iterable[object], since: int) -> int:
        """Return how many of these users were erased at a time or later."""
        with self.read() as connection:
            query = select(ERASED_USERS.c.digest).where(ERASED_USERS.c.time >= since)
            digests = set(connection.execute(query).scalars())
            if not digests:
                return 0
            return sum(digest_of(connection, str(user)) in digests for user in user_ids)


def validate_id(text: str, field: str) -> str:
    """Return an id; raise a StoreError for one that not every database can store."""
    if not 0 < len(text) <= MAX_ID_LENGTH:
        raise StoreError(f"{field} has {len(text)} characters; an id has 1 to {MAX_ID_LENGTH}")
    if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise StoreError(f"{field} {text[:40]!r} has a control character; an id has none")
    return text


def digest_of(connection: Connection, user_id: str) -> str:
    """Return the digest of a user's id, which only the store's salt allows to compute."""
    salt = get_metadata(connection, "salt") or ""
    return hmac.new(salt.encode(), user_id.encode(), hashlib.sha256).hexdigest()


def get_metadata(connection: Connection, key: str) -> str | None:
    """Return a value that the store has about itself."""
    value = connection.execute(select(METADATA.c.value).where(METADATA.c.key == key)).scalar()
    return None if value is None else str(value)


def set_metadata(connection: Connection, key: str, value: str) -> None:
    """Set a value that the store has about itself."""
    changed = connection.execute(update(METADATA).where(METADATA.c.key == key).values(value=value))
    if changed.rowcount == 0:
        connection.execute(METADATA.insert().values(key=key, value=value))


def _exists(connection: Connection, name: str) -> bool:
    """Return whether the tables of a store exist; refuse those of another version."""
    tables = inspect(connection)
    version = None
    if tables.has_table(METADATA.name):
        version = get_metadata(connection, "version")
    elif tables.has_table("facts") and tables.has_table("forgotten"):
        version = "2 or earlier"
    if version not in (None, str(_VERSION)):
        raise StoreError(
            f"{name}: the store has version {version}, this cfnade needs {_VERSION}. Write the "
            "ratings with the cfnade that made it (cfnade store export), and import them into a "
            "new store (cfnade store import); nothing was changed"
        )
    return version is not None


def _append(connection: Connection, event: Event, now: int) -> AppendResult:
    names = {"user": event.user_id, "item": event.item_id}
    latest = connection.execute(_LATEST, names).one_or_none()
    timestamp = now if latest is None else max(now, latest.timestamp)
    if _changes_nothing(latest, event):
        return AppendResult(None, timestamp)
    values = event._asdict() | {"timestamp": timestamp}
    (event_id,) = connection.execute(EVENTS.insert(), values).inserted_primary_key or (None,)
    return AppendResult(event_id, timestamp)


def _changes_nothing(latest: Any, event: Event) -> bool:
    if latest is None:
        return event.type == "withdrawal"
    return bool(latest.type == event.type and latest.rating == event.rating)


def _lock_number(user_id: str) -> int:
    digest = hashlib.blake2b(user_id.encode(), digest_size=8, person=b"cfnade").digest()
    return int.from_bytes(digest, "big", signed=True)


def _current(events: Iterable[Any], before: int | None) -> list[StoredRating]:
    """Return what is current of the events of one user that have smaller numbers."""
    current: dict[str, StoredRating] = {}
    for item_id, event_type, rating, timestamp, event_id in events:
        if before is None or event_id < before:
            current.pop(item_id, None)  # the order is that of the latest events
            if event_type != "withdrawal":
                current[item_id] = StoredRating(item_id, rating, timestamp, event_id)
    return list(current.values())[-MAX_USER_ITEMS:]
