"""Addresses, versions, and databases that are locked, full, damaged or away."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import inspect, text
from tests.support.postgres import PASSWORD, address

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.online.engine import is_missing_file, parse_store_url, redact_store_url
from cfnade.online.event_store import Event, EventStore, set_metadata

ONE = Event("anna", "1", "rating", 4.0)


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "the address of the store is empty"),
        (
            "nowhere.db",
            r"nowhere.db: there is no store; create it with: cfnade store create nowhere",
        ),
        ("sqlite://shop.db", "write three slashes"),
        ("mysql://me:secret@host/shop", "mysql is not supported"),
        ("nonsense://x", "not the address of a store|is not supported"),
        ("postgresql://me:s@cret@host/shop", "the password has a character"),
        ("missing/folder/shop.db", "there is no store"),
    ],
)
def test_a_bad_address_is_one_message_without_the_password(
    written: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=message) as refused:
        EventStore.open(written)
    assert "cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_model_holds_its_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a folder without a model"):
        EventStore.open(str(tmp_path), create=True)
    (tmp_path / "model.json").write_text("{}")
    EventStore.open(str(tmp_path), create=True).close()
    assert (tmp_path / "store.db").is_file()
    assert parse_store_url(str(tmp_path)) == parse_store_url(f"sqlite:///{tmp_path / 'store.db'}")


def test_only_a_missing_file_is_created_on_first_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "new.db"
    assert is_missing_file(str(path))
    with caplog.at_level("INFO"), closing(EventStore.open(str(path), create=True)) as store:
        store.append([ONE])
    assert caplog.messages == [f"{path}: created an empty store"]
    assert not is_missing_file(f"sqlite:///{path}")
    assert not is_missing_file("postgresql://nobody@127.0.0.1:1/shop")
    other = tmp_path / "shop.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table reviews (x)")
    assert not is_missing_file(str(other))
    with pytest.raises(StoreError, match="has no store; create it with: cfnade store create"):
        EventStore.open(str(other))
    with pytest.raises(StoreError, match=r"there is no folder .*missing; create it first"):
        is_missing_file(str(tmp_path / "missing" / "new.db"))
    assert not (tmp_path / "missing").exists()


def test_what_may_be_noted_of_an_address_holds_no_password() -> None:
    assert redact_store_url("postgresql://me:secret@host:5/shop") == "postgresql://me@host:5/shop"
    assert redact_store_url("postgresql://host/s?password=pw&x=1") == "postgresql://host/s?x=1"
    assert redact_store_url("store:postgresql://me@host/s") == "postgresql://me@host/s"


def test_a_server_that_cannot_be_used_is_one_message(server: str) -> None:
    wrong = {
        address(server, "other-secret"): "password authentication failed",
        address("127.0.0.1:1"): "unreachable.*refused",
        f"{address(server)}x": 'database "postgresx" does not exist',
        f"{address(server)}?nonsense=1": "nonsense",
    }
    for place, message in wrong.items():
        with pytest.raises(StoreError, match=message) as refused:
            EventStore.open(place)
        said = str(refused.value)
        assert "\n" not in said
        for secret in (PASSWORD, quote(PASSWORD, safe=""), "other-secret"):
            assert secret not in said


def test_the_password_may_come_from_the_environment(
    server: str, monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], EventStore]
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    store = opened(f"postgresql://shop@{server}/postgres")
    store.append([ONE])
    assert PASSWORD not in repr(store.name)


# -- versions -------------------------------------------------------------------------------------


def test_a_place_without_a_store_is_not_made_one_by_reading(place: str) -> None:
    if "://" not in place:
        sqlite3.connect(place).close()
    with pytest.raises(StoreError, match="cfnade store create"):
        EventStore.open(place)


@pytest.mark.parametrize(("version", "shown"), [("99", "99"), (None, "2 or earlier")])
def test_a_store_of_another_version_is_refused_and_unchanged(
    version: str | None, shown: str, place: str, opened: Callable[[str], EventStore]
) -> None:
    store = opened(place)
    store.append([ONE], 10)
    with store.write() as connection:
        if version is not None:
            set_metadata(connection, "version", version)
        else:  # tables of cfnade 0.2
            for name in ("facts", "forgotten"):
                connection.execute(text(f"create table {name} (name text)"))
            connection.execute(text("drop table metadata"))
    for create in (False, True):
        with pytest.raises(StoreError, match=f"has version {shown}, .*cfnade store export"):
            EventStore.open(place, create=create)
    assert [one.rating for one in store.ratings("anna")] == [4.0]


def test_tables_of_another_program_are_kept(
    place: str, opened: Callable[[str], EventStore]
) -> None:
    """Creation fails as a whole where another program has a table of the same name."""
    store = opened(place)
    with store.write() as connection:
        for table in ("metadata", "erased_users", "predictions", "items"):
            connection.execute(text(f"drop table {table}"))
    with pytest.raises(StoreError, match="already exists"):
        EventStore.open(place, create=True)
    with store.read() as connection:
        assert inspect(connection).get_table_names() == ["events"]


# -- trouble --------------------------------------------------------------------------------------


def test_a_locked_file_is_waited_for_and_then_one_message(
    tmp_path: Path, opened: Callable[[str], EventStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade.online.engine._TIMEOUT", 0.2)
    store = opened(str(tmp_path / "ratings.db"))
    other = sqlite3.connect(tmp_path / "ratings.db", isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailableError, match="has locked the file"):
        store.append([ONE])
    assert store.ratings("anna") == []  # who reads does not wait
    other.close()
    store.append([ONE])
    assert [one.rating for one in store.ratings("anna")] == [4.0]


def test_a_full_disk_is_one_message_and_loses_nothing(
    tmp_path: Path, opened: Callable[[str], EventStore]
) -> None:
    """SQLite says of a file that may not grow what it says of a full disk."""
    store = opened(str(tmp_path / "ratings.db"))
    store.append([ONE])
    with store.read() as connection:
        pages = connection.execute(text("pragma page_count")).scalar_one()
        connection.execute(text(f"pragma max_page_count={pages}"))
    long = [Event("ben", f"{n:0290d}", "rating", 1.0) for n in range(200)]
    with pytest.raises(
        StoreUnavailableError, match=r"the disk is full.*free some space and send it again"
    ):
        store.append(long)
    assert store.ratings("ben") == []
    assert [one.rating for one in store.ratings("anna")] == [4.0]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("user,item,rating\n" * 500)
    with pytest.raises(StoreError, match="is not a store, or is damaged"):
        EventStore.open(str(tmp_path / "text.db"))
    assert (tmp_path / "text.db").read_text().startswith("user,item")
