"""The published MovieLens sets, against totals that were published and counts made another way."""

from __future__ import annotations

import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.readers import read
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
def test_a_published_set_is_counted_as_published(name: str, real_data: Path) -> None:
    (ratings, words), published = _read(_archive(name, real_data)), SETS[name]
    assert words == published.words
    counts = (len(ratings), ratings.n_users, ratings.n_items)
    assert counts == (published.ratings, published.users, published.items)
    if name == "ml-1m":
        assert np.bincount(ratings.levels).tolist() == ML_1M_HISTOGRAM


@pytest.mark.parametrize("name", ["ml-100k", "ml-latest-small"])
def test_every_line_is_read_as_it_is(name: str, real_data: Path) -> None:
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
