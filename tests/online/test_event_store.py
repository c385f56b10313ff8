"""The latest event is current, equal events are stored once, and threads lose nothing."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.online.batch_writer import EventWriter
from cfnade.online.event_store import Event, EventStore, validate_id


def ratings_of(store: EventStore, user: str) -> dict[str, float | None]:
    return {one.item_id: one.rating for one in store.ratings(user)}


def test_current_ratings_are_those_of_a_dictionary(store: EventStore) -> None:
    """For any order of ratings, changes and withdrawals, with clocks that go back and forth."""
    rng, now = random.Random(3), 1_000
    expected = {name: dict[str, float | None]() for name in ("anna", "ben", "a b/c ü")}
    n_changes = 0
    for _ in range(120):
        user, item = rng.choice(list(expected)), rng.choice("123456")
        now += rng.choice([-40, 0, 1, 30])
        if rng.random() < 0.3:
            event = Event(user, item, "withdrawal")
            changes = expected[user].pop(item, None) is not None
        else:
            event = Event(user, item, "rating", float(rng.randint(1, 5)))
            changes = expected[user].get(item) != event.rating
            expected[user][item] = event.rating
        (result,) = store.append([event], now)
        assert (result.event_id is not None) == changes
        n_changes += changes
        assert ratings_of(store, user) == expected[user]
    assert store.n_events() == n_changes
    assert store.last_event_id() >= n_changes


def test_an_interaction_and_a_rating_of_one_item_replace_each_other(store: EventStore) -> None:
    store.append([Event("anna", "1", "interaction")])
    assert not store.has_ratings()
    assert ratings_of(store, "anna") == {"1": None}
    store.append([Event("anna", "1", "rating", 4.0)])
    assert store.has_ratings()
    assert ratings_of(store, "anna") == {"1": 4.0}


def test_ratings_before_an_event(store: EventStore) -> None:
    store.append([Event("ben", "2", "rating", 5.0)], 10)
    events = [Event("anna", item, "rating", float(n)) for n, item in enumerate("121", 1)]
    numbers = [store.append([event], 10)[0].event_id for event in events]
    queries = [*(("anna", number) for number in numbers), ("ben", numbers[0]), ("carl", 1)]
    before = [{one.item_id: one.rating for one in rated} for rated in store.ratings_before(queries)]
    assert before == [{}, {"1": 1.0}, {"1": 1.0, "2": 2.0}, {"2": 5.0}, {}]


def test_an_item_is_registered_once_and_its_title_can_change(store: EventStore) -> None:
    from sqlalchemy import select

    from cfnade.online.event_store import ITEMS

    assert store.item_titles(["new"]) == {}
    store.register_item("new")
    store.register_item("new", "A title", ["Drama", "Crime"])
    store.register_item("new", "Another title")
    assert store.item_titles(["new", "other"]) == {"new": "Another title"}
    with store.read() as connection:
        rows = [tuple(row) for row in connection.execute(select(ITEMS))]
    assert rows == [("new", "Another title", "Drama|Crime")]


def test_threads_write_through_one_writer_and_lose_nothing(store: EventStore) -> None:
    writer = EventWriter(store)
    events = [Event(f"p{n % 7}", str(n), "rating", float(n % 5)) for n in range(300)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda event: writer.submit(event).result(), events))
    writer.close()
    assert len({result.event_id for result in results}) == len(events)
    for number in range(7):
        expected = {one.item_id: one.rating for one in events if one.user_id == f"p{number}"}
        assert ratings_of(store, f"p{number}") == expected


def test_an_invalid_event_does_not_fail_those_of_others(store: EventStore) -> None:
    writer = EventWriter(store)
    with pytest.raises(StoreError, match="control character"):
        writer.submit(Event("a\0b", "1", "rating", 2.0))
    assert writer.submit(Event("ben", "1", "rating", 2.0)).result().event_id is not None
    writer.close()


def test_a_failed_transaction_is_reported_to_each_writer(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    writer = EventWriter(store)
    with monkeypatch.context() as patched:
        patched.setattr(store, "append", fail)
        futures = [writer.submit(Event("anna", item, "rating", 4.0)) for item in "123"]
        for future in futures:
            with pytest.raises(StoreUnavailableError, match="full"):
                future.result(timeout=60)
    assert writer.submit(Event("anna", "1", "rating", 4.0)).result().event_id is not None
    writer.close()


def test_a_full_queue_is_an_error_that_passes(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(store)
    monkeypatch.setattr(writer._worker, "submit", lambda _: False)
    with pytest.raises(StoreUnavailableError, match="too many writes"):
        writer.submit(Event("anna", "1", "rating", 4.0))


def test_two_processes_that_write_the_same_store_it_once(store: EventStore, place: str) -> None:
    """Two pools of connections stand for two processes: each sees the events of the other."""
    other = EventStore.open(place)
    try:
        writers = [EventWriter(store), EventWriter(other)]
        events = [Event("anna", str(n), "rating", 3.0) for n in range(30)]
        futures = [writer.submit(event) for event in events for writer in writers]
        results = [future.result() for future in futures]
        for writer in writers:
            writer.close()
    finally:
        other.close()
    n_stored = sum(result.event_id is not None for result in results)
    assert n_stored == len(events) == store.n_events()


@pytest.mark.parametrize("invalid", ["", "x" * 301, "a\0b", "a\nb", "\ud800"])
def test_ids_that_not_every_database_can_store_are_refused(invalid: str) -> None:
    with pytest.raises(StoreError, match="an id has"):
        validate_id(invalid, "user")
