"""SQL queries on a SQLite file and on a PostgreSQL server."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from tests.support.datasets import triples
from tests.support.postgres import PASSWORD, address, find_binaries, postgres

from cfnade import DataError, load, load_split
from cfnade.data.remote import KEPT_INPUTS, pin_source, redact_url

QUERY = "select customer, product, stars from reviews order by customer, product"
ROWS = [(1, "pen", 5), (1, "cup", 3.5), (2, "pen", 1), (7, "hat", 4)]


def loaded_rows(place: str, **options: Any) -> set[tuple[Any, Any, float]]:
    return set(triples(load(place, **options)))


# -- SQLite ---------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("create table reviews (customer int, product text, stars numeric)")
    connection.executemany("insert into reviews values (?, ?, ?)", ROWS)
    connection.commit()
    connection.close()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_sqlite_gives_the_rows_of_a_query(shop: str) -> None:
    assert loaded_rows(shop, query=QUERY) == set(ROWS)
    other = "select stars as a, product as b, customer as c from reviews where stars > 3"
    kept = {row for row in ROWS if row[2] > 3}
    assert loaded_rows(shop, query=other, user="c", item="b", rating="a") == kept


def test_a_fraction_after_thousands_of_whole_ratings_is_read(tmp_path: Path) -> None:
    """SQLite hands over whole numbers as integers; rows come in several batches."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("create table r (user, item, rating)")
    rows = [(n, 0, 5) for n in range(70_000)] + [(70_000, 0, 3.5)]
    connection.executemany("insert into r values (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    ratings = load(f"sqlite:///{tmp_path / 'shop.db'}", query="select * from r order by user")
    assert len(ratings) == 70_001
    assert ratings.values[-2:].tolist() == [5.0, 3.5]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_rows_of_a_query_leave_no_file(shop: str, own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("customer,product,stars\n2,cup,4\n")
    load(shop, query=QUERY)
    load_split(shop, "paper:0", query=QUERY)
    test = load_split(shop, f"file:{tmp_path / 'test.csv'}", query=QUERY, scale="0.5-5/0.5").test
    assert test.values.tolist() == [4.0]
    assert not any(b"pen" in path.read_bytes() for path in files_in(own_cache / "sources"))
    assert len(files_in(own_cache / "parsed")) == 1  # test.csv


def test_rows_of_a_training_are_stored_once(shop: str, own_cache: Path) -> None:
    """Resuming and evaluating read them again."""
    place, reading = pin_source(shop, {"query": QUERY, "scale": "0.5-5/0.5"})
    assert pin_source(shop, {"query": QUERY})[0] == place
    assert loaded_rows(place, **reading) == set(ROWS)
    assert [path for path in files_in(own_cache) if path.name[0] != "."] == [Path(place)]


def test_the_cache_keeps_the_inputs_used_last(shop: str, own_cache: Path) -> None:
    first = Path(pin_source(shop, {"query": QUERY})[0])
    places = []
    for number in range(KEPT_INPUTS + 2):
        os.utime(first.parent / ".kept", (1e9 + number, 1e9 + number))  # long ago
        load(first, scale="0.5-5/0.5")  # so it is used after the others
        query = f"select customer, product, {number} as stars from reviews"
        places.append(Path(pin_source(shop, {"query": query})[0]))
    left = [path for path in files_in(own_cache / "sources") if path.name[0] != "."]
    assert set(left) == {first, *places[-KEPT_INPUTS + 1 :]}
    with pytest.raises(
        DataError, match="no longer in the cache, which keeps the newest 10 inputs; give"
    ):
        load(places[0])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (None, "is a database; say which rows with query="),
        ("  ", "is a database; say which rows with query="),
        ("selct", r'refuses the query \(near "selct": syntax error\); correct query='),
        ("select * from nope", r"refuses the query \(no such table: nope\)"),
        ("select 1; select 2", "refuses the query .*one statement"),
        ("delete from reviews", "refuses the query .*readonly"),
        ("begin", "gives no rows and columns; write a select"),
        ("select * from reviews where stars > 9", "the query gives no rows"),
        ("select stars, stars from reviews", "name each column once"),
        ("select customer, x'00' as product, stars from reviews", "column 'product' holds bytes"),
        ("select customer, stars from reviews", r"sqlite:///\S+: which column is the item"),
    ],
)
def test_invalid_queries_are_one_error(shop: str, query: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(shop, query=query)
    assert loaded_rows(shop, query=QUERY) == set(ROWS)


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such database file"):
        load(f"sqlite:///{tmp_path}/new.db", query=QUERY)
    assert not (tmp_path / "new.db").exists()


def test_other_files_than_sqlite_are_refused(tmp_path: Path, shop: str) -> None:
    (tmp_path / "text.db").write_text("user,item,rating\n" * 200)
    with pytest.raises(DataError, match="is not an SQLite database"):
        load(f"sqlite:///{tmp_path}/text.db", query=QUERY)
    with pytest.raises(DataError, match="write three slashes"):
        load("sqlite://shop.db", query=QUERY)
    with pytest.raises(DataError, match="SQLite database; give it as sqlite:///PATH, with a query"):
        load(shop.removeprefix("sqlite:///"))


def test_a_query_needs_a_database(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("1,2,3\n")
    for data in (tmp_path / "own.csv", "ml-1m", "-", "http://127.0.0.1:1/x"):
        with pytest.raises(DataError, match="query= is for databases"):
            load(data, query=QUERY)
    with pytest.raises(DataError, match="query= is for databases"):
        load(pl.DataFrame({"user": [1], "item": [1], "rating": [1]}), query=QUERY)
    with pytest.raises(DataError, match="the test part must be a file"):
        load_split(tmp_path / "own.csv", "file:sqlite:///shop.db")


# -- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dbapi() -> Any:
    return pytest.importorskip("psycopg", reason="needs cfnade[db]")


@pytest.fixture(scope="module")
def server(dbapi: ModuleType) -> Iterator[str]:
    if (binaries := find_binaries()) is None:
        pytest.skip("no PostgreSQL server is installed (initdb, pg_ctl)")
    with postgres(binaries) as place:
        with dbapi.connect(address(place)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "create table reviews (customer bigint, product varchar(9), stars numeric(2, 1), "
                "whole smallint, exact numeric, at timestamptz, id uuid)"
            )
            for number, (customer, product, stars) in enumerate(ROWS):
                cursor.execute(
                    f"insert into reviews values ({customer}, '{product}', {stars}, {int(stars)}, "
                    f"{customer}, to_timestamp({1000 + number}), gen_random_uuid())"
                )
            connection.commit()
        yield place


def test_postgresql_gives_the_rows_of_a_query(server: str) -> None:
    assert loaded_rows(address(server), query=QUERY) == set(ROWS)
    assert loaded_rows(address(server).replace("postgresql", "postgres", 1), query=QUERY) == set(
        ROWS
    )


def test_types_of_postgresql_become_ids_ratings_and_times(server: str) -> None:
    query = "select exact as user_id, product, whole as stars, at as time from reviews order by at"
    ratings = load(address(server), query=query)
    assert ratings.user_ids.tolist() == [1, 2, 7]
    assert ratings.values.tolist() == [5.0, 3.0, 1.0, 4.0]
    assert ratings.times is not None
    assert ratings.times.tolist() == [1000, 1001, 1002, 1003]


def test_queries_change_nothing(server: str) -> None:
    gone = "delete from reviews returning customer, product, stars"
    assert loaded_rows(address(server), query=gone) == set(ROWS)
    assert loaded_rows(address(server), query=QUERY) == set(ROWS)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selct", r'refuses the query \(syntax error at or near "selct"\); correct query='),
        ("select * from nope", r'refuses the query \(relation "nope" does not exist\)'),
        ("select 1 / 0 as stars", r"refuses the query \(division by zero\)"),
        ("create table other (x int)", "gives no rows and columns"),
        ("select * from reviews where stars > 9", "the query gives no rows"),
        ("select stars, stars from reviews", "name each column once"),
    ],
)
def test_queries_that_the_server_refuses_are_one_error(
    server: str, query: str, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(address(server), query=query)
    assert "\n" not in str(refused.value)


def test_unreachable_servers_are_one_error(server: str) -> None:
    wrong = {
        address(server, "other-secret"): "password authentication failed.*check user and password",
        address("127.0.0.1:1"): "Connection refused.*check host, port and database",
        address("nowhere.invalid:5432"): "nowhere.invalid.*check host, port and database",
        f"{address(server)}x": 'database "postgresx" does not exist',
        f"postgresql://shop:{PASSWORD}@{server}/postgres": "the password holds a character",
        f"{address(server)}?nonsense=1": "nonsense",
    }
    for place, message in wrong.items():
        with pytest.raises(DataError, match=message) as refused:
            load(place, query=QUERY)
        text = str(refused.value)
        assert "\n" not in text
        for secret in (PASSWORD, quote(PASSWORD, safe=""), "other-secret", "w/rd", "pass:"):
            assert secret not in text


def test_passwords_are_neither_logged_nor_stored(
    server: str, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        load(address(server), query=QUERY)
        pin_source(address(server), {"query": QUERY})
    assert "4 rows" in caplog.text
    names = " ".join(str(path) for path in own_cache.rglob("*"))
    contents = b"".join(path.read_bytes() for path in own_cache.rglob("*") if path.is_file())
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in caplog.text + names
        assert secret.encode() not in contents


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DataError, match=r"pip install 'cfnade\[db\]'") as refused:
        load("postgresql://me:secret@127.0.0.1/shop", query=QUERY)
    assert "me:***@127.0.0.1" in str(refused.value)


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql://me:secret@host/shop", "postgresql://me:***@host/shop"),
        ("postgresql://me:s@cr/et@host:5432/shop", "postgresql://me:***@host:5432/shop"),
        ("postgresql://:secret@host/shop", "postgresql://:***@host/shop"),
        ("postgresql://me@host:5432/shop", "postgresql://me@host:5432/shop"),
        ("postgresql://host:5432/shop?user=a@b", "postgresql://host:5432/shop?user=a@b"),
        ("postgresql://host/s?user=me&password=pw", "postgresql://host/s?user=me&password=***"),
        ("https://me:secret@host/a@b.csv?x=1", "https://me:***@host/a@b.csv?x=1"),
        ("https://host:80/a@b.csv", "https://host:80/a@b.csv"),
        ("https://host/r.csv?id=7&X-Sig=abc", "https://host/r.csv?id=7&X-Sig=***"),
        ("C:/ratings:old@2.csv", "C:/ratings:old@2.csv"),
    ],
)
def test_secrets_are_masked(written: str, shown: str) -> None:
    assert redact_url(written) == shown
