"""Addresses, versions, and databases that are locked, full, damaged or away."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import inspect, text
from tests.data.postgres import PASSWORD, address

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.online import schema
from cfnade.online.engine import Store, address_of, make_missing_file, open_store, url_of
from cfnade.online.event_store import Event, keep, standing

ONE = Event("anna", "1", "rate", 4.0)


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "the address of the store is empty"),
        ("nowhere.db", r"nowhere.db: there is no store; make one with: cfnade store init nowhere"),
        ("sqlite://shop.db", "write three slashes"),
        ("mysql://me:secret@host/shop", "mysql cannot be a store"),
        ("nonsense://x", "not the address of a store|cannot be a store"),
        ("postgresql://me:s@cret@host/shop", "the password holds a character"),
        ("missing/folder/shop.db", "there is no store"),
    ],
)
def test_a_bad_address_is_one_message_without_the_password(
    written: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=message) as refused:
        open_store(written)
    assert "cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_model_holds_its_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a folder without a model"):
        open_store(str(tmp_path), create=True)
    (tmp_path / "model.json").write_text("{}")
    open_store(str(tmp_path), create=True).close()
    assert (tmp_path / "store.db").is_file()
    assert url_of(str(tmp_path)) == url_of(f"sqlite:///{tmp_path / 'store.db'}")


def test_only_a_missing_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert make_missing_file(str(path)) == str(path)
    with closing(open_store(str(path))) as store:
        keep(store, [ONE])
        assert make_missing_file(f"sqlite:///{path}") is None
        assert len(standing(store, "anna")) == 1
    foreign = tmp_path / "shop.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("create table reviews (x)")
    assert make_missing_file(str(foreign)) is None
    with pytest.raises(StoreError, match="holds no store; make one with: cfnade store init"):
        open_store(str(foreign))
    assert make_missing_file("postgresql://nobody@127.0.0.1:1/shop") is None
    with pytest.raises(StoreError, match=r"the folder .* is not there; make it first"):
        make_missing_file(str(tmp_path / "missing" / "new.db"))
    assert not (tmp_path / "missing").exists()


def test_what_may_be_noted_of_an_address_holds_no_password() -> None:
    assert address_of("postgresql://me:secret@host:5/shop") == "postgresql://me@host:5/shop"
    assert address_of("postgresql://host/s?password=pw&x=1") == "postgresql://host/s?x=1"
    assert address_of("store:postgresql://me@host/s") == "postgresql://me@host/s"


def test_a_server_that_cannot_be_used_is_one_message(server: str) -> None:
    wrong = {
        address(server, "other-secret"): "password authentication failed",
        address("127.0.0.1:1"): "out of reach.*refused",
        f"{address(server)}x": 'database "postgresx" does not exist',
        f"{address(server)}?nonsense=1": "nonsense",
    }
    for place, message in wrong.items():
        with pytest.raises(StoreError, match=message) as refused:
            open_store(place)
        said = str(refused.value)
        assert "\n" not in said
        for secret in (PASSWORD, quote(PASSWORD, safe=""), "other-secret"):
            assert secret not in said


def test_the_password_may_come_from_the_environment(
    server: str, monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], Store]
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    store = opened(f"postgresql://shop@{server}/postgres")
    keep(store, [ONE])
    assert PASSWORD not in repr(store.shown)


# -- versions -------------------------------------------------------------------------------------


def test_a_place_without_a_store_is_not_made_one_by_reading(place: str) -> None:
    if "://" not in place:
        sqlite3.connect(place).close()
    with pytest.raises(StoreError, match="cfnade store init"):
        open_store(place)


def test_an_old_store_is_brought_forward_and_keeps_what_it_holds(
    place: str, opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        old = open_store(place, create=True)
        keep(old, [ONE], 10)
        with old.reading() as connection:
            assert schema.version_of(connection) == 1
            assert not inspect(connection).has_table("items")
        old.close()
    new = opened(place)
    with new.reading() as connection:
        assert schema.version_of(connection) == len(schema.MIGRATIONS)
        assert set(inspect(connection).get_table_names()) == set(schema.TABLES.tables)
    assert [one.rating for one in standing(new, "anna")] == [4.0]


def test_a_migration_that_fails_changes_nothing(
    place: str, opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(place)

    def broken(connection: object) -> None:
        schema.set_fact(connection, "half", "done")  # type: ignore[arg-type]
        raise StoreError("the third step fails")

    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        with pytest.raises(StoreError, match="the third step fails"):
            open_store(place)
    with store.reading() as connection:
        assert schema.version_of(connection) == len(schema.MIGRATIONS)
        assert schema.fact(connection, "half") is None


def test_a_store_from_the_future_is_refused_and_left_alone(
    place: str, opened: Callable[[str], Store]
) -> None:
    store = opened(place)
    keep(store, [ONE], 10)
    with store.writing() as connection:
        schema.set_fact(connection, "version", "99")
    for create in (False, True):
        with pytest.raises(StoreError, match="version 99, made by a newer cfnade"):
            open_store(place, create=create)
    assert [one.rating for one in standing(store, "anna")] == [4.0]


# -- trouble --------------------------------------------------------------------------------------


def test_a_locked_file_is_waited_for_and_then_one_message(
    tmp_path: Path, opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade.online.engine._SECONDS", 0.2)
    store = opened(str(tmp_path / "ratings.db"))
    other = sqlite3.connect(tmp_path / "ratings.db", isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailableError, match="holds the file locked"):
        keep(store, [ONE])
    assert standing(store, "anna") == []  # who reads does not wait
    other.close()
    keep(store, [ONE])
    assert [one.rating for one in standing(store, "anna")] == [4.0]


def test_a_full_disk_is_one_message_and_loses_nothing(
    tmp_path: Path, opened: Callable[[str], Store]
) -> None:
    """SQLite says of a file that may not grow what it says of a full disk."""
    store = opened(str(tmp_path / "ratings.db"))
    keep(store, [ONE])
    with store.reading() as connection:
        pages = connection.execute(text("pragma page_count")).scalar_one()
        connection.execute(text(f"pragma max_page_count={pages}"))
    long = [Event("ben", f"{n:0290d}", "rate", 1.0) for n in range(200)]
    with pytest.raises(
        StoreUnavailableError, match=r"the disk is full.*make room and send it again"
    ):
        keep(store, long)
    assert standing(store, "ben") == []
    assert [one.rating for one in standing(store, "anna")] == [4.0]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("user,item,rating\n" * 500)
    with pytest.raises(StoreError, match="is not a store, or is damaged"):
        open_store(str(tmp_path / "text.db"))
    assert (tmp_path / "text.db").read_text().startswith("user,item")
