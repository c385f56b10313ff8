"""Ratings at http addresses: from a server on loopback that behaves, or does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.data.site import LOGIN, TEXT, Site, site

from cfnade import DataError, load, load_split
from cfnade.data import web

__all__ = ["site"]


def files_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "sources").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["own.csv", "own.csv.gz", "own.zip", "moved.csv", "a b é.csv"])
def test_an_address_gives_what_its_file_gives(site: Site, tmp_path: Path, name: str) -> None:
    (tmp_path / "own.csv").write_bytes(TEXT)
    assert load(f"{site.home}/{name}") == load(tmp_path / "own.csv")


def test_a_file_is_downloaded_once_and_said_to_be(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{site.home}/own.csv"
    with caplog.at_level("INFO"):
        first = load(address)
    assert f"{address}: downloading" in caplog.messages
    assert load(address) == first
    assert load(address, user="user", cache=False) == first
    assert load_split(address, "paper:0").name == "paper:0"
    assert site.asked == ["/own.csv"]


def test_other_queries_are_other_files(site: Site) -> None:
    load(f"{site.home}/own.csv?id=1")
    site.files["/own.csv"] = TEXT + b"9,9,2\n"
    assert len(load(f"{site.home}/own.csv?id=2")) == 5
    assert len(load(f"{site.home}/own.csv?id=1")) == 4


def test_the_test_part_may_be_an_address(site: Site, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(TEXT)
    site.files["/test.csv"] = b"2,11,4\n3,10,2\n"
    parts = load_split(tmp_path / "own.csv", f"file:{site.home}/test.csv?token=hidden")
    assert parts.test.values.tolist() == [4.0, 2.0]
    assert "hidden" not in parts.name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", r"the server answers 404 \(Not Found\); check the address"),
        ("private.csv", "the server answers 401 .*wants a user and a password"),
        ("short.csv", "the download broke off, 9 bytes are missing; try again"),
        ("huge.csv", "has 1,152,921,504,606,846,976 bytes.*has room for"),
        ("empty.csv", "is empty"),
        ("page.csv", "is a web page, not a file of ratings"),
    ],
)
def test_what_cannot_be_downloaded_is_one_message_and_leaves_nothing(
    site: Site, own_cache: Path, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(f"{site.home}/{name}")
    assert str(refused.value).startswith(f"{site.home}/{name}: ")
    assert files_in(own_cache) == []


def test_a_file_without_ratings_is_named(site: Site) -> None:
    with pytest.raises(DataError, match=r"^words\.csv"):
        load(f"{site.home}/words.csv")


def test_a_silent_server_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SECONDS", 0.2)
    with pytest.raises(DataError, match=r"the server said nothing for 0\.2 s"):
        load(f"{site.home}/slow.csv")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1/own.csv", r"cannot be downloaded \(Connection refused\)"),
        ("http://nowhere.invalid/own.csv", "cannot be downloaded .*check the address"),
        ("http:///own.csv", "names no host"),
        ("http://127.0.0.1:port/own.csv", "cannot be downloaded"),
        ("http://[/own.csv", "cannot be downloaded"),
        ("https://127.0.0.1:1/own.csv", r"cannot be downloaded \(Connection refused\)"),
        ("ftp://host/own.csv", "ftp:// cannot be read; http://"),
        ("mysql://me:pw@host/shop", r"mysql://me:\*\*\*@host/shop: mysql:// cannot be read"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_message(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError, match=message):
        load(address)


def test_a_password_goes_to_the_server_and_nowhere_else(
    site: Site, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = site.home.replace("http://", "http://me:s%40cret@")
    with caplog.at_level("INFO"):
        assert len(load(f"{address}/private.csv")) == 4
    assert site.logins == [LOGIN]
    names = " ".join(str(path) for path in own_cache.rglob("*"))
    assert "cret" not in caplog.text + names
    # what is noted in its place finds the file again
    assert len(load(site.home.replace("http://", "http://me:***@") + "/private.csv")) == 4
    assert len(site.asked) == 1


def test_a_password_is_not_sent_on_to_where_the_server_points(site: Site) -> None:
    load(site.home.replace("http://", "http://me:s%40cret@") + "/moved.csv")
    assert site.asked == ["/moved.csv", "/own.csv"]
    assert site.logins == [LOGIN, None]
