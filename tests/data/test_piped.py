"""Ratings that come through standard input, and what the cache keeps of them."""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cfnade import DataError, load, load_split
from cfnade.data import splits
from cfnade.data.elsewhere import settled
from cfnade.utils.safetensors_io import digest, digest_text

TEXT = b"user,item,rating\n1,10,5\n1,11,3\n2,10,1\n3,12,4\n"


def send(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_gives_what_its_file_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pack: type[bytes]
) -> None:
    (tmp_path / "own.csv").write_bytes(TEXT)
    send(monkeypatch, pack(TEXT))
    assert load("-") == load(tmp_path / "own.csv")


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
    parts = load_split("-", "ub", likes=3)  # the ratings and those that are liked
    assert sum(map(len, parts.parts().values())) == 3
    (tmp_path / "own.csv").write_bytes(TEXT)
    with pytest.raises(DataError, match="split file:-: the test part must be a file"):
        load_split(tmp_path / "own.csv", "file:-")


def test_what_came_is_there_later_under_a_name_of_its_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    send(monkeypatch, TEXT)
    place, reading = settled("-", {"user": "user"})
    assert Path(place).read_bytes() == TEXT
    assert reading == {"user": "user"}
    send(monkeypatch, TEXT)
    assert settled("-", {})[0] == place
    send(monkeypatch, TEXT + b"9,9,2\n")
    assert settled("-", {})[0] != place
    monkeypatch.chdir(tmp_path)
    assert len(load(place)) == 4
    assert list(Path(place).parent.parent.glob(".*")) == []


def test_a_cache_that_was_emptied_is_explained_and_filled_again(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    send(monkeypatch, TEXT)
    place, _ = settled("-", {})
    shutil.rmtree(own_cache)
    with pytest.raises(DataError, match=r"no longer in the cache.*; give the data again, or bring"):
        load(place)
    send(monkeypatch, TEXT)
    load("-")
    assert len(load(place)) == 4


def test_messages_name_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, TEXT + b"4,10,many\n")
    with pytest.raises(DataError, match=r"^standard-input:6: rating 'many' is not a number"):
        load("-")


def test_nothing_to_read_is_one_message(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    send(monkeypatch, b"")
    with pytest.raises(DataError, match="standard input is empty; send ratings into it"):
        load("-")
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is no pipe; send ratings into it"):
        load("-")


def test_a_cache_that_cannot_be_written_is_one_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("CFNADE_CACHE", str(tmp_path / "taken"))
    send(monkeypatch, TEXT)
    with pytest.raises(DataError, match=r"cannot be kept there .*CFNADE_CACHE"):
        load("-")
