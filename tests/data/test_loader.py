"""load() and load_split(): frames, files and ratings in, and splits that come as files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfnade import DataError, load, load_split

BASE = "1\t10\t5\t100\n1\t11\t3\t200\n2\t10\t1\t300\n3\t12\t4\t350\n"
TEST = "2\t11\t4\t400\n"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("ml-100k/u.data", TEST + BASE)
        file.writestr("ml-100k/u1.base", BASE)
        file.writestr("ml-100k/u1.test", TEST)
    return path


def test_a_file_a_frame_and_ratings_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(BASE)
    ratings = load(tmp_path / "own.tsv")
    rows = [[int(text) for text in line.split()] for line in BASE.splitlines()]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    assert load(frame) == ratings
    assert load(ratings) is ratings
    with pytest.raises(DataError, match="these are Ratings already"):
        load(ratings, user=1)
    with pytest.raises(DataError, match="these are Ratings already"):
        load(ratings, bins=2)


def test_the_canonical_parts_are_those_of_the_files(archive: Path) -> None:
    parts = load_split(archive, "u1")
    whole = load(archive)
    assert parts.test == whole.select(np.array([0]))
    assert len(parts.train) + len(parts.valid) == 4
    assert parts.name == "u1"


def test_a_canonical_split_of_other_data_is_refused(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0 files are named u2\.base; .*MovieLens 100K"):
        load_split(archive, "u2")
    (tmp_path / "other").mkdir()
    own = tmp_path / "other" / "own.tsv"
    own.write_text(BASE)
    with pytest.raises(DataError, match=r"0 files are named u1\.base"):
        load_split(own, "u1")


def test_a_file_of_its_own_is_the_test_part(tmp_path: Path) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text(BASE)
    test.write_text("9\t10\t2\t500\n1\t12\t4\t600\n")
    parts = load_split(train, f"file:{test}")
    assert parts.test.user_ids.tolist() == [1, 2, 3, 9]
    assert parts.test.user_ids[parts.test.users].tolist() == [9, 1]
    assert parts.test.values.tolist() == [2.0, 4.0]
    assert parts.train.scale.values == (1.0, 2.0, 3.0, 4.0, 5.0)


def test_other_names_are_those_of_split(archive: Path) -> None:
    with pytest.raises(DataError, match="unknown split 'papr:1'; did you mean paper:1"):
        load_split(archive, "papr:1")


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "sizes"), [("u1", (80_000, 20_000)), ("ua", (90_570, 9_430))])
def test_the_canonical_splits_of_movielens_100k(
    real_data: Path, name: str, sizes: tuple[int, int]
) -> None:
    parts = load_split(real_data / "ml-100k.zip", name)
    assert (len(parts.train) + len(parts.valid), len(parts.test)) == sizes
