"""Who is forgotten is in no file any more, and comes back by their own will only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import psycopg
import pytest
from tests.cli.conftest import Shell
from tests.cli.conftest import shell as shell  # the fixture
from tests.online.files import bytes_below, fresh_database
from tests.support.postgres import find_binaries, postgres

from cfnade.online.bulk import import_events, ratings_frame
from cfnade.online.event_store import Event, EventStore
from cfnade.online.prequential import LoggedPrediction, log_predictions

WHO = "somebody-unmistakable-4711"


def filled(store: EventStore) -> None:
    """The person among many others, everywhere where a person may be."""
    others = pl.DataFrame(
        {"user_id": [f"p{n % 50}" for n in range(2_000)], "item_id": [str(n) for n in range(2_000)]}
    ).with_columns(rating=pl.lit(3.0), timestamp=pl.lit(50))
    theirs = pl.DataFrame(
        {"user_id": [WHO] * 3, "item_id": ["1", "2", "3"], "rating": [1.0, 2.0, 3.0]}
    )
    import_events(
        store, pl.concat([others, theirs.with_columns(timestamp=pl.lit(60))]), source="file"
    )
    (result,) = store.append([Event(WHO, "9", "rating", 5.0)])
    log_predictions(store, {result.event_id or 0: LoggedPrediction(3.0, False, "the-model")})


def test_nothing_of_them_is_left_and_of_others_everything(store: EventStore) -> None:
    filled(store)
    before = ratings_frame(store).filter(pl.col("user") != WHO)
    assert store.erase_user(WHO).n_events == 4
    assert store.ratings(WHO) == []
    assert ratings_frame(store).equals(before)
    assert store.erase_user(WHO).n_events == 0  # once more is no error


def test_no_file_of_sqlite_holds_them(tmp_path: Path, opened: Callable[[str], EventStore]) -> None:
    store = opened(str(tmp_path / "ratings.db"))
    filled(store)
    assert WHO.encode() in bytes_below(tmp_path)
    assert store.erase_user(WHO).purged
    assert WHO.encode() not in bytes_below(tmp_path)


def test_who_reads_meanwhile_delays_the_wiping_and_it_is_said(
    tmp_path: Path, opened: Callable[[str], EventStore]
) -> None:
    store = opened(str(tmp_path / "ratings.db"))
    filled(store)
    with store.read() as connection:
        connection.exec_driver_sql("select * from events").fetchone()
        assert not store.erase_user(WHO).purged
    assert store.erase_user(WHO).purged
    assert WHO.encode() not in bytes_below(tmp_path)


@pytest.mark.usefixtures("server")  # which skips where there is none
def test_no_table_of_postgresql_holds_them() -> None:
    """Neither rows nor statistics nor indexes: all files of its tables are read. The server's log
    of changes (pg_wal) holds what was written until the server needs the room; docs say so."""
    binaries = find_binaries()
    assert binaries is not None
    with postgres(binaries) as place:
        address = fresh_database(place)
        store = EventStore.open(address, create=True)
        try:
            filled(store)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("analyze")
                connection.execute("checkpoint")
                (folder,) = connection.execute("show data_directory").fetchone() or ("",)
                assert WHO.encode() in bytes_below(Path(folder) / "base")
                assert store.erase_user(WHO).purged
                connection.execute("vacuum full pg_statistic")
                connection.execute("checkpoint")
            assert WHO.encode() not in bytes_below(Path(folder) / "base")
        finally:
            store.close()


def test_an_old_file_does_not_bring_them_back(store: EventStore) -> None:
    filled(store)
    store.erase_user(WHO)
    old = pl.DataFrame({"user_id": [WHO, "p1"], "item_id": ["1", "new"], "rating": [1.0, 2.0]})
    assert import_events(store, old.with_columns(timestamp=pl.lit(61)), source="again") == 1
    assert store.ratings(WHO) == []


def test_they_may_come_back_themselves(store: EventStore) -> None:
    filled(store)
    store.erase_user(WHO)
    store.append([Event(WHO, "1", "rating", 2.0)])
    assert [one.rating for one in store.ratings(WHO)] == [2.0]
    later = pl.DataFrame({"user_id": [WHO], "item_id": ["5"], "rating": [1.0]})
    later = later.with_columns(timestamp=pl.lit(int(time.time()) + 60))
    assert import_events(store, later, source="newer") == 1


def test_it_is_known_that_somebody_was_forgotten_and_not_who(store: EventStore) -> None:
    began = int(time.time())
    filled(store)
    people = [WHO, "p1", 7]
    assert store.count_erased(people, began) == 0
    store.erase_user(WHO)
    assert store.count_erased(people, began) == 1
    assert store.count_erased(["p1", 7], began) == 0
    assert store.count_erased(people, began + 3600) == 0


def test_an_unknown_id_is_not_noted_as_forgotten(store: EventStore) -> None:
    """It may be mistyped; a refresh would have to publish whatever model it makes."""
    filled(store)
    nobody = store.erase_user("p-mistyped")
    assert (nobody.n_events, nobody.purged) == (0, True)
    assert store.count_erased(["p-mistyped"], 0) == 0
    old = pl.DataFrame(
        {"user_id": ["p-mistyped"], "item_id": ["1"], "rating": [1.0], "timestamp": [5]}
    )
    assert import_events(store, old, source="file") == 1


def test_an_unknown_id_is_one_warning(store: EventStore, place: str, shell: Shell) -> None:
    filled(store)
    warned = shell("store", "erase", place, "p-mistyped")
    assert (warned.code, warned.out) == (0, "")
    assert "has nothing about 'p-mistyped', so nothing was changed; check the id" in warned.err
    done = shell("store", "erase", place, WHO)
    assert "4 events" in done.out
    assert "cfnade refresh MODEL" in done.out
