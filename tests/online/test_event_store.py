"""The latest counts, what is sent twice is said once, and threads lose nothing."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from cfnade.exceptions import StoreError
from cfnade.online.batch_writer import EventWriter
from cfnade.online.engine import Store
from cfnade.online.event_store import (
    KEPT_SECONDS,
    AppendResult,
    ConflictError,
    Event,
    check_id,
    drop_old_keys,
    keep,
    standing,
    standing_before,
)
from cfnade.online.schema import EVENTS


def events_in(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(EVENTS)).scalar_one())


def ratings_of(store: Store, person: str) -> dict[str, float | None]:
    return {one.item: one.rating for one in standing(store, person)}


def test_what_counts_is_what_a_dictionary_would_hold(store: Store) -> None:
    """Any order of ratings, changes and withdrawals, by clocks that go back and forth."""
    rng, now = random.Random(3), 1_000
    people = {name: dict[str, float | None]() for name in ("anna", "ben", "a b/c ü")}
    changes = 0
    for _ in range(120):
        person, item = rng.choice(list(people)), rng.choice("123456")
        now += rng.choice([-40, 0, 1, 30])
        if rng.random() < 0.3:
            said = Event(person, item, "withdraw")
            changed = people[person].pop(item, None) is not None
        else:
            said = Event(person, item, "rate", float(rng.randint(1, 5)))
            changed = people[person].get(item) != said.rating
            people[person][item] = said.rating
        (kept,) = keep(store, [said], now)
        assert isinstance(kept, AppendResult)
        assert kept.new == changed
        changes += changed
        assert ratings_of(store, person) == people[person]
    assert events_in(store) == changes


def test_a_request_that_is_sent_again_is_done_once(store: Store) -> None:
    first = Event("anna", "1", "rate", 4.0, key="k1")
    second = Event("anna", "1", "rate", 2.0, key="k2")
    (one,), (two,) = keep(store, [first], 10), keep(store, [second], 11)
    (again,) = keep(store, [first], 12)
    assert isinstance(one, AppendResult)
    assert isinstance(again, AppendResult)
    assert (again.event, again.new) == (one.event, False)
    assert isinstance(two, AppendResult)
    assert two.new
    assert ratings_of(store, "anna") == {"1": 2.0}  # an old request does not undo a newer one
    assert events_in(store) == 2


def test_a_key_that_changed_nothing_is_remembered_too(store: Store) -> None:
    keep(store, [Event("anna", "1", "rate", 4.0)], 10)
    idle = Event("anna", "1", "rate", 4.0, key="k")
    keep(store, [idle], 11)
    keep(store, [Event("anna", "1", "rate", 5.0)], 12)
    keep(store, [idle], 13)
    assert ratings_of(store, "anna") == {"1": 5.0}


def test_a_key_with_another_request_is_refused_and_nobody_else_suffers(store: Store) -> None:
    keep(store, [Event("anna", "1", "rate", 4.0, key="k")], 10)
    outcomes = keep(
        store,
        [
            Event("anna", "2", "rate", 4.0, key="k"),
            Event("ben", "1", "rate", 3.0, key="k"),  # keys belong to a person
            Event("anna", "3", "rate", 1.0),
        ],
        11,
    )
    assert [type(one) for one in outcomes] == [ConflictError, AppendResult, AppendResult]
    assert ratings_of(store, "anna") == {"1": 4.0, "3": 1.0}
    assert ratings_of(store, "ben") == {"1": 3.0}


def test_keys_are_forgotten_after_a_day(store: Store) -> None:
    asked = Event("anna", "1", "rate", 4.0, key="k")
    keep(store, [asked], 1_000)
    drop_old_keys(store, 1_000 + KEPT_SECONDS)
    (again,) = keep(store, [Event("anna", "1", "rate", 1.0, key="k")], 1_001)
    assert isinstance(again, ConflictError)
    drop_old_keys(store, 1_001 + KEPT_SECONDS)
    (then,) = keep(store, [Event("anna", "1", "rate", 1.0, key="k")], 1_002)
    assert isinstance(then, AppendResult)
    assert then.new


def test_what_stood_before_an_event_can_be_asked_for(store: Store) -> None:
    said = [Event("anna", item, "rate", float(n)) for n, item in enumerate("121", 1)]
    keep(store, [Event("ben", "2", "rate", 5.0)], 10)
    kept = [keep(store, [one], 10)[0] for one in said]
    numbers = [one.event for one in kept if isinstance(one, AppendResult) and one.event is not None]
    asked = [*(("anna", number) for number in numbers), ("ben", numbers[0]), ("carl", 1)]
    before = [{one.item: one.rating for one in who} for who in standing_before(store, asked)]
    assert before == [{}, {"1": 1.0}, {"1": 1.0, "2": 2.0}, {"2": 5.0}, {}]


def test_threads_write_through_one_and_lose_nothing(store: Store) -> None:
    writer = EventWriter(store)
    everything = [Event(f"p{n % 7}", str(n), "rate", float(n % 5)) for n in range(300)]
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(lambda said: writer.keep(said).result(), everything))
    writer.close()
    assert len({one.event for one in kept}) == len(everything)
    for number in range(7):
        mine = {said.item: said.rating for said in everything if said.person == f"p{number}"}
        assert ratings_of(store, f"p{number}") == mine


def test_a_writer_that_was_closed_begins_again(store: Store) -> None:
    writer = EventWriter(store)
    for item in ("1", "2"):
        waits = writer.keep(Event("anna", item, "rate", 4.0))
        writer.close()  # writes what waits first
        assert waits.result(timeout=0).new
    writer.close()
    assert [one.item for one in standing(store, "anna")] == ["1", "2"]


def test_a_writer_tells_each_its_own_error(store: Store) -> None:
    writer = EventWriter(store)
    writer.keep(Event("anna", "1", "rate", 1.0, key="k")).result()
    wrong = writer.keep(Event("anna", "1", "rate", 2.0, key="k"))
    right = writer.keep(Event("ben", "1", "rate", 2.0))
    assert right.result().new
    with pytest.raises(ConflictError):
        wrong.result()
    writer.close()


def test_two_processes_that_say_the_same_at_once_say_it_once(store: Store, place: str) -> None:
    """Two connections pools stand for two processes: each of them sees the other's events."""
    from cfnade.online.engine import open_store

    other = open_store(place)
    try:
        writers = [EventWriter(store), EventWriter(other)]
        said = [Event("anna", str(n), "rate", 3.0) for n in range(30)]
        futures = [writer.keep(one) for one in said for writer in writers]
        kept = [future.result() for future in futures]
        for writer in writers:
            writer.close()
    finally:
        other.close()
    assert sum(one.new for one in kept) == len(said) == events_in(store)


@pytest.mark.parametrize("bad", ["", "x" * 301, "a\0b", "a\nb", "\ud800"])
def test_ids_that_no_database_can_hold_are_refused(bad: str) -> None:
    with pytest.raises(StoreError, match="an id has"):
        check_id(bad, "person")
