"""Forgetting a person: every event, key and prediction, and the bytes that held them.

What stays is a digest with the moment of it, so that an old file which is brought in again does not
bring the person back. Models that were trained before still hold them until the next training.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import delete, select, text

from cfnade.exceptions import StoreUnavailableError
from cfnade.online.engine import Store
from cfnade.online.event_store import digest_of
from cfnade.online.schema import EVENTS, FORGOTTEN, PREDICTED, REQUESTS


class Erasure(NamedTuple):
    events: int
    known: bool
    """Whether the store held anything of the person. If not, nothing was changed."""
    wiped: bool
    """Whether the bytes are gone from the database's files too, and not just from its tables."""


def forget(store: Store, person: str) -> Erasure:
    """Remove all that is known of a person. Nothing is found of them when this returns.

    An id of which the store holds nothing is not noted as forgotten: it may be a mistyped one.
    """
    with store.writing() as connection:
        theirs = select(EVENTS.c.id).where(EVENTS.c.person == person)
        connection.execute(delete(PREDICTED).where(PREDICTED.c.event.in_(theirs)))
        events = connection.execute(delete(EVENTS).where(EVENTS.c.person == person)).rowcount
        keys = connection.execute(delete(REQUESTS).where(REQUESTS.c.person == person)).rowcount
        if known := events + keys > 0:
            digest = digest_of(connection, person)
            connection.execute(delete(FORGOTTEN).where(FORGOTTEN.c.digest == digest))
            connection.execute(FORGOTTEN.insert().values(digest=digest, at=int(time.time())))
    return Erasure(events, known, purge_deleted_pages(store))


def purge_deleted_pages(store: Store) -> bool:
    """Remove what was deleted from the files, too; False if somebody reads there now.

    SQLite overwrites what it deletes, but its log still has it until it is emptied. PostgreSQL
    keeps old rows, and some ids among its statistics, until the tables are written anew.
    """
    try:
        with store.apart() as connection:
            if store.is_file:
                busy = connection.exec_driver_sql("pragma wal_checkpoint(truncate)").one()[0]
                return not busy
            for table in (EVENTS, REQUESTS, PREDICTED):
                connection.execute(text(f"vacuum (full, analyze) {table.name}"))
            return True
    except StoreUnavailableError:
        return False


def count_forgotten(store: Store, people: Iterable[object], since: int) -> int:
    """How many of these people were forgotten at or after a time."""
    with store.reading() as connection:
        later = select(FORGOTTEN.c.digest).where(FORGOTTEN.c.at >= since)
        digests = set(connection.execute(later).scalars())
        if not digests:
            return 0
        return sum(digest_of(connection, str(person)) in digests for person in people)
