"""Ratings at http addresses: from a server on loopback that behaves, or does not."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.support.site import LOGIN, TEXT, Site, site

from cfnade import DataError, load, load_split
from cfnade.data import remote, splits
from cfnade.data.remote import pin_source
from cfnade.utils.safetensors_io import digest, digest_text

__all__ = ["site"]


def files_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "sources").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["own.csv.gz", "own.zip", "moved.csv", "a b é.csv"])
def test_a_download_equals_its_file(site: Site, tmp_path: Path, name: str) -> None:
    (tmp_path / "own.csv").write_bytes(TEXT)
    assert load(f"{site.home}/{name}") == load(tmp_path / "own.csv")


def test_a_file_is_downloaded_once_and_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    address = f"{site.home}/own.csv"
    with caplog.at_level("INFO"):
        first = load(address)
    assert f"{address}: downloading" in caplog.messages
    assert load(address) == first
    assert load(address, user="user", cache=False) == first
    assert load_split(address, "paper:0").name == "paper:0"
    assert site.asked == ["/own.csv"]


@pytest.mark.parametrize("name", ["author", "token"])
def test_other_queries_are_other_files(site: Site, name: str) -> None:
    """Also if the message and the log leave the value out, as of a token."""
    load(f"{site.home}/own.csv?{name}=1")
    site.files["/own.csv"] = TEXT + b"9,9,2\n"
    assert len(load(f"{site.home}/own.csv?{name}=2")) == 5
    assert len(load(f"{site.home}/own.csv?{name}=1")) == 4


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
        ("private.csv", "the server answers 401 .*may want a user and a password"),
        ("short.csv", "the download broke off before its end; try again"),
        ("empty.csv", "is empty"),
        ("page.csv", "is a web page, not a file of ratings"),
    ],
)
def test_failed_downloads_leave_nothing(
    site: Site, own_cache: Path, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(f"{site.home}/{name}")
    assert str(refused.value).startswith(f"{site.home}/{name}: ")
    assert files_in(own_cache) == []


def test_a_silent_server_times_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SECONDS", 0.2)
    with pytest.raises(DataError, match=r"the server said nothing for 0\.2 s"):
        load(f"{site.home}/slow.csv")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1/own.csv", r"cannot be downloaded \(Connection refused\)"),
        ("http://nowhere.invalid/own.csv", "cannot be downloaded .*check the address"),
        ("http:///own.csv", "names no host"),
        ("http://[/own.csv", "cannot be downloaded"),
        ("ftp://host/own.csv", "ftp:// cannot be read; http://"),
        ("mysql://me:pw@host/shop", r"mysql://me:\*\*\*@host/shop: mysql:// cannot be read"),
    ],
)
def test_unreachable_addresses_are_an_error(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError, match=message):
        load(address)


def test_passwords_are_sent_and_never_stored(
    site: Site, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = site.home.replace("http://", "http://me:s%40cret@")
    with caplog.at_level("INFO"):
        assert len(load(f"{address}/private.csv")) == 4
    assert site.logins == [LOGIN]
    names = " ".join(str(path) for path in own_cache.rglob("*"))
    assert "cret" not in caplog.text + names
    # what is noted in its place finds the file again, without asking the server
    place, _ = pin_source(f"{address}/private.csv", {})
    assert "cret" not in place
    assert len(load(place)) == 4
    assert len(site.asked) == 1
    public = f"{site.home}/own.csv?author=tolkien"
    assert pin_source(public, {"query": None}) == (public, {})


def test_a_password_is_not_sent_on_to_another_host(site: Site) -> None:
    load(site.home.replace("http://", "http://me:s%40cret@") + "/moved.csv")
    assert site.asked == ["/moved.csv", "/own.csv"]
    assert site.logins == [LOGIN, None]


@pytest.mark.parametrize("secret", ["?token=s3cret", "?apiKey=s3cret", "?X-Amz-Signature=s3cret"])
def test_no_secret_shows_in_messages(site: Site, secret: str) -> None:
    for name in ("none.csv", "short.csv", "page.csv", "words.csv"):
        with pytest.raises(DataError) as refused:
            load(f"{site.home}/{name}{secret}")
        assert "s3cret" not in str(refused.value)


# -- standard input --------------------------------------------------------------------------------


def send(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_split_that_needs_the_data_twice_reads_the_pipe_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        lines = ["1\t10\t5\t1\n", "1\t11\t3\t2\n", "2\t10\t1\t3\n", "2\t11\t4\t4\n"]
        file.writestr("ml-100k/u.data", "".join(lines))
    send(monkeypatch, content.getvalue())
    pairs = [np.array(column) for column in ([1, 1, 2, 2], [10, 11, 10, 11])]
    digests = digest_text(" ".join(map(digest, pairs)))
    monkeypatch.setattr(splits, "_MOVIELENS_100K", digests)
    parts = load_split("-", "ub", min_rating=3)  # the ratings and those that are liked
    assert sum(map(len, parts.parts().values())) == 3
    (tmp_path / "own.csv").write_bytes(TEXT)
    with pytest.raises(DataError, match="split file:-: the test part must be a file"):
        load_split(tmp_path / "own.csv", "file:-")


def test_standard_input_is_stored_under_its_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    send(monkeypatch, TEXT)
    place, reading = pin_source("-", {"user": "user"})
    assert Path(place).read_bytes() == TEXT
    assert reading == {"user": "user"}
    send(monkeypatch, TEXT)
    assert pin_source("-", {})[0] == place
    send(monkeypatch, TEXT + b"9,9,2\n")
    assert pin_source("-", {})[0] != place
    monkeypatch.chdir(tmp_path)
    assert len(load(place)) == 4
    assert list(Path(place).parent.parent.glob(".*")) == []


def test_a_missing_stored_input_is_explained(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    send(monkeypatch, TEXT)
    place, _ = pin_source("-", {})
    shutil.rmtree(own_cache)
    with pytest.raises(DataError, match=r"no longer in the cache.*; give the data again"):
        load(place)
    send(monkeypatch, TEXT)
    load("-")
    assert len(load(place)) == 4


def test_empty_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    send(monkeypatch, b"")
    with pytest.raises(DataError, match="standard input is empty; send ratings into it"):
        load("-")
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is no pipe; send ratings into it"):
        load("-")


def test_an_unwritable_cache_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("CFNADE_CACHE", str(tmp_path / "taken"))
    send(monkeypatch, TEXT)
    with pytest.raises(DataError, match=r"cannot be stored there .*CFNADE_CACHE"):
        load("-")
