"""load() and load_split(): frames, files and ratings, and splits given as files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl
import pytest

from cfnade import DataError, Dataset, load, load_split
from cfnade.data.splits import MOVIELENS_100K_SPLITS

BASE = "1\t10\t5\t100\n1\t11\t3\t200\n2\t10\t1\t300\n3\t12\t4\t350\n"
TEST = "2\t11\t4\t400\n"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("ml-100k/u.data", TEST + BASE)
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


def test_a_split_of_movielens_100k_is_refused_for_other_data(archive: Path) -> None:
    with pytest.raises(DataError, match=r"split 'u2' is a part of MovieLens 100K.*paper:1"):
        load_split(archive, "u2")


@pytest.mark.realdata
@pytest.mark.parametrize("name", MOVIELENS_100K_SPLITS)
def test_movielens_100k_is_split_as_in_its_files(real_data: Path, name: str) -> None:
    parts = load_split(real_data / "ml-100k.zip", name)
    with zipfile.ZipFile(real_data / "ml-100k.zip") as file:
        base, test = (file.read(f"ml-100k/{name}.{end}").decode() for end in ("base", "test"))
    assert lines_of(parts.test) == sorted(test.splitlines())
    assert sorted(lines_of(parts.train) + lines_of(parts.valid)) == sorted(base.splitlines())
    assert len(parts.valid) == -(-len(base.splitlines()) // 20)
    likes = load_split(real_data / "ml-100k.zip", name, min_rating=4)
    pairs = {tuple(line.split()[:2]) for line in test.splitlines() if line.split()[2] in "45"}
    assert {tuple(line.split()[:2]) for line in lines_of(likes.test)} == pairs


def lines_of(part: Dataset) -> list[str]:
    """The rows as lines of u.data, sorted."""
    assert part.times is not None
    columns = (part.user_ids[part.users], part.item_ids[part.items], part.values, part.times)
    rows = zip(*(column.astype(int).tolist() for column in columns), strict=True)
    return sorted("\t".join(map(str, row)) for row in rows)
