"""Events of one person: said once, however often it is sent, and what counts of them now.

Of several events of a person and an item the latest counts, by time and then by number. Time never
goes back there: a machine whose clock is behind still has the last word if it came last.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, text, update

from cfnade.exceptions import StoreError
from cfnade.online.engine import Store
from cfnade.online.schema import EVENTS, ITEMS, REQUESTS, fact

Kind = Literal["rate", "pick", "withdraw"]

LONGEST = 300
"""Characters of an id."""
KEPT_SECONDS = 86_400
"""For which the key of a request is known."""
MOST_ITEMS = 5_000
"""What counts of one person: of more, the latest."""

# Statements that are asked all the time are made once: that takes longer than the database does.
_ANSWERED = select(REQUESTS).where(
    (REQUESTS.c.person == bindparam("of")) & (REQUESTS.c.key == bindparam("by"))
)
_LAST = (
    select(EVENTS.c.kind, EVENTS.c.rating, EVENTS.c.at)
    .where((EVENTS.c.person == bindparam("of")) & (EVENTS.c.item == bindparam("about")))
    .order_by(EVENTS.c.at.desc(), EVENTS.c.id.desc())
    .limit(1)
)
_SAID = (
    select(*(EVENTS.c[name] for name in ("person", "item", "kind", "rating", "at", "id")))
    .where(EVENTS.c.person.in_(bindparam("people", expanding=True)))
    .order_by(EVENTS.c.at, EVENTS.c.id)
)
_LOCKS = text("select pg_advisory_xact_lock(n) from unnest(cast(:locks as bigint[])) as n")


class ConflictError(StoreError):
    """A key came again with another request."""


@dataclass(frozen=True)
class Event:
    """What a person says of an item; `rating` belongs to "rate" alone."""

    person: str
    item: str
    kind: Kind
    rating: float | None = None
    source: str = "service"
    key: str | None = None
    """Of the request: who sends it again, not knowing whether it came, sends the same key."""

    @property
    def asked(self) -> str:
        return f"{self.kind} {self.rating} {self.item}"


class AppendResult(NamedTuple):
    """What became of it: the event that says so, None if there was nothing to say."""

    event: int | None
    at: int
    new: bool
    """Whether this request made it, and no earlier one."""


class StoredRating(NamedTuple):
    """What counts of a person and an item."""

    item: str
    rating: float | None
    at: int
    event: int


def keep(
    store: Store, said: Iterable[Event], now: int | None = None
) -> list[AppendResult | StoreError]:
    """Keep what was said, all in one transaction; an error of one is no error of the others.

    When this returns, what it says was kept is on disk.
    """
    now = int(time.time()) if now is None else now
    everything = list(said)
    with store.writing() as connection:
        if not store.is_file:
            _only_here(connection, everything)
        return [_one(connection, each, now) for each in everything]


def _one(connection: Connection, said: Event, now: int) -> AppendResult | StoreError:
    if said.key is not None and (before := _answered(connection, said)) is not None:
        return before
    last = connection.execute(_LAST, {"of": said.person, "about": said.item}).one_or_none()
    at = now if last is None else max(now, last.at)
    event = None
    if not _stands(last, said):
        values = {
            "person": said.person,
            "item": said.item,
            "kind": said.kind,
            "rating": said.rating,
            "at": at,
            "source": said.source,
        }
        event = int(connection.execute(EVENTS.insert(), values).inserted_primary_key[0])  # type: ignore[index]
    if said.key is not None:
        values = {"person": said.person, "key": said.key, "asked": said.asked}
        connection.execute(REQUESTS.insert(), values | {"event": event, "at": now})
    return AppendResult(event, at, event is not None)


def _answered(connection: Connection, said: Event) -> AppendResult | StoreError | None:
    """What was answered to the same request before."""
    answer = connection.execute(_ANSWERED, {"of": said.person, "by": said.key}).one_or_none()
    if answer is None:
        return None
    if answer.asked != said.asked:
        return ConflictError(
            "this Idempotency-Key came before with another request; send a new key with each "
            "new request"
        )
    return AppendResult(answer.event, answer.at, False)


def _stands(last: Any, said: Event) -> bool:
    """Whether that is what counts already."""
    if last is None:
        return said.kind == "withdraw"
    return bool(last.kind == said.kind and last.rating == said.rating)


def _only_here(connection: Connection, said: list[Event]) -> None:
    """Until this transaction ends, nobody else writes of these people: PostgreSQL lets several
    write at once. In one order, so that none waits for another in a circle."""
    connection.execute(_LOCKS, {"locks": sorted({_lock_of(each.person) for each in said})})


def _lock_of(person: str) -> int:
    digest = hashlib.blake2b(person.encode(), digest_size=8, person=b"cfnade").digest()
    return int.from_bytes(digest, "big", signed=True)


# -- what counts ---------------------------------------------------------------------------------


def standing(store: Store, person: str) -> list[StoredRating]:
    """What counts of a person now, the earliest first."""
    return standing_before(store, [(person, None)])[0]


def standing_before(
    store: Store, asked: Sequence[tuple[str, int | None]]
) -> list[list[StoredRating]]:
    """What counted of people before an event of theirs came, or counts now if there is none; of
    all of them by one question."""
    said: dict[str, list[Any]] = {person: [] for person, _ in asked}
    with store.reading() as connection:
        for person, *event in connection.execute(_SAID, {"people": list(said)}):
            said[person].append(event)
    return [_counting(said[person], before) for person, before in asked]


def _counting(events: Iterable[Any], before: int | None) -> list[StoredRating]:
    now: dict[str, StoredRating] = {}
    for item, kind, rating, at, number in events:
        if before is None or number < before:
            now.pop(item, None)  # the order is that of the latest
            if kind != "withdraw":
                now[item] = StoredRating(item, rating, at, number)
    return list(now.values())[-MOST_ITEMS:]


def has_item(store: Store, item: str) -> bool:
    """Whether somebody who may has named the item."""
    with store.reading() as connection:
        rows = connection.execute(select(ITEMS.c.item).where(ITEMS.c.item == item))
        return rows.first() is not None


def register_item(store: Store, item: str, title: str | None, genres: Sequence[str]) -> None:
    """Make an item known that users may rate; a title and genres replace earlier ones."""
    values = {"title": title, "genres": "|".join(genres) or None}
    values = {name: value for name, value in values.items() if value is not None}
    with store.writing() as connection:
        rows = connection.execute(select(ITEMS.c.item).where(ITEMS.c.item == item))
        if rows.first() is None:
            connection.execute(ITEMS.insert().values(item=item, **values))
        elif values:
            connection.execute(update(ITEMS).where(ITEMS.c.item == item).values(**values))


def drop_old_keys(store: Store, now: int) -> None:
    """Keys of requests that nobody sends again."""
    with store.writing() as connection:
        connection.execute(delete(REQUESTS).where(REQUESTS.c.at < now - KEPT_SECONDS))


def digest_of(connection: Connection, person: str) -> str:
    """By which a person who was forgotten is known: nobody finds the person by it who does not
    have both the store and the id."""
    salt = fact(connection, "salt") or ""
    return hmac.new(salt.encode(), person.encode(), hashlib.sha256).hexdigest()


def check_id(text: str, what: str) -> str:
    """An id as it is kept; what no database can hold is refused."""
    if not 0 < len(text) <= LONGEST:
        raise StoreError(f"{what} has {len(text)} characters; an id has 1 to {LONGEST}")
    if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise StoreError(f"{what} {text[:40]!r} holds a control character; an id has none")
    return text
