"""The tables, and how those of an earlier version become those of this one.

    events     what was said, never changed: who, which item, what, when, from where
    requests   keys of requests that were answered, so that one that is sent again says it once
    forgotten  who was forgotten when, by a digest: what is older than that stays out
    facts      the version of these tables, and what the store has to know of itself
    items      titles and genres of items                                         (version 2)
    predicted  what a model expected of an event before it came                   (version 2)

Ids are texts: those of MovieLens are written as their digits. Times are whole seconds since 1970.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
    update,
)
from sqlalchemy.schema import CreateTable

from cfnade.exceptions import StoreError

_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts on in INTEGER only

TABLES = MetaData()
EVENTS = Table(
    "events",
    TABLES,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("person", Text, nullable=False),
    Column("item", Text, nullable=False),
    Column("kind", Text, nullable=False),  # rate, pick, withdraw
    Column("rating", Double),  # of rate alone
    Column("at", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    sqlite_autoincrement=True,  # no id is given twice, not even after forgetting
)
REQUESTS = Table(
    "requests",
    TABLES,
    Column("person", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("asked", Text, nullable=False),
    Column("event", BigInteger),
    Column("at", BigInteger, nullable=False),
)
FORGOTTEN = Table(
    "forgotten",
    TABLES,
    Column("digest", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
)
FACTS = Table(
    "facts",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
ITEMS = Table(
    "items",
    TABLES,
    Column("item", Text, primary_key=True),
    Column("title", Text),
    Column("genres", Text),
)
PREDICTED = Table(
    "predicted",
    TABLES,
    Column("event", _NUMBER, primary_key=True, autoincrement=False),
    Column("expected", Double, nullable=False),
    Column("known", Integer, nullable=False),  # whether the model was trained on the person
    Column("model", Text, nullable=False),
)

_OF_PERSON = Index("events_of_person", *(EVENTS.c[name] for name in ("person", "item", "at", "id")))
_OF_ITEM = Index("events_of_item", EVENTS.c.item)
_VERSION = "version"


def _first(connection: Connection) -> None:
    for table in (EVENTS, REQUESTS, FORGOTTEN, FACTS):
        connection.execute(CreateTable(table))
    _OF_PERSON.create(connection)
    salt = {"name": "salt", "value": secrets.token_hex(16)}
    connection.execute(FACTS.insert(), [{"name": _VERSION, "value": "0"}, salt])


def _second(connection: Connection) -> None:
    for table in (ITEMS, PREDICTED):
        connection.execute(CreateTable(table))
    _OF_ITEM.create(connection)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first, _second)
"""The n-th makes version n of version n - 1. Each is done whole or not at all, and never changed:
what is needed later is another one."""


def version_of(connection: Connection) -> int:
    """0 if there is no store yet."""
    if not inspect(connection).has_table(FACTS.name):
        return 0
    said = fact(connection, _VERSION)
    return int(said) if said is not None and said.isdecimal() else 0


def migrate(connection: Connection, shown: str) -> int:
    """Bring the tables to this version, in the transaction at hand. Returns which they had."""
    before = version_of(connection)
    refuse_newer(before, shown)
    for number, step in enumerate(MIGRATIONS[before:], before + 1):
        step(connection)
        set_fact(connection, _VERSION, str(number))
    return before


def refuse_newer(version: int, shown: str) -> None:
    """An older program would not know what it does to newer tables."""
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{shown}: the store has version {version}, made by a newer cfnade; this one knows "
            f"versions up to {len(MIGRATIONS)}. Install the newer cfnade here; nothing was changed"
        )


def fact(connection: Connection, name: str) -> str | None:
    """What the store knows of itself under that name."""
    value = connection.execute(select(FACTS.c.value).where(FACTS.c.name == name)).scalar()
    return None if value is None else str(value)


def set_fact(connection: Connection, name: str, value: str) -> None:
    changed = connection.execute(update(FACTS).where(FACTS.c.name == name).values(value=value))
    if changed.rowcount == 0:
        connection.execute(FACTS.insert().values(name=name, value=value))
