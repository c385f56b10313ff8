from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cfnade.data.build import Options, build
from cfnade.data.columns import Columns
from cfnade.data.dataset import Dataset
from cfnade.data.predefined import predefined, together
from cfnade.exceptions import DataError


def raw(
    users: list[int], items: list[int], values: list[float], times: list[int] | None = None
) -> Dataset:
    stamps = None if times is None else np.array(times)
    return build(Columns(np.array(users), np.array(items), np.array(values), stamps))


def listed(part: Dataset) -> list[tuple[int, int, float]]:
    users, items = part.user_ids[part.users].tolist(), part.item_ids[part.items].tolist()
    return list(zip(users, items, part.values.tolist(), strict=True))


TRAIN = raw([7, 3, 9, 3], [20, 20, 50, 40], [1, 2, 3, 5], [4, 3, 2, 1])
TEST = raw([3, 8], [30, 20], [2, 4], [6, 5])


def test_two_files_become_one_data_set_with_common_ids_and_scale() -> None:
    cut = predefined(TRAIN, TEST, name="mine")
    assert cut.name == "mine"
    assert sorted(listed(cut.train) + listed(cut.valid)) == sorted(listed(TRAIN))
    assert listed(cut.test) == listed(TEST)  # 8 and item 30 are new, and stars 2 and 4 keep theirs
    assert (len(cut.valid), len(cut.given)) == (1, 0)
    assert cut.train.user_ids.tolist() == [3, 7, 8, 9]
    assert cut.train.item_ids.tolist() == [20, 30, 40, 50]
    assert list(cut.test.scale.values) == [1, 2, 3, 4, 5]
    assert cut.test.times is not None
    assert cut.test.times.tolist() == [6, 5]


def test_parts_of_a_whole_keep_its_order_and_tables() -> None:
    whole = raw([8, 3, 9, 7, 3, 3], [20, 40, 50, 20, 20, 30], [4, 5, 3, 1, 2, 2])
    cut = predefined(TRAIN, TEST, name="u1", whole=whole)
    assert listed(cut.test) == [(8, 20, 4.0), (3, 30, 2.0)]
    assert cut.test.user_ids is whole.user_ids
    assert cut.train.times is None
    kept = sorted(listed(cut.train) + listed(cut.valid))
    assert kept == sorted(listed(TRAIN))


def test_the_validation_part_is_always_the_same() -> None:
    cells = [(user, item) for user in range(10) for item in range(10)]
    train = raw([u for u, _ in cells], [i for _, i in cells], [1.0 + (u + i) % 5 for u, i in cells])
    test = raw([99, 98], [1, 2], [1, 5])
    one = predefined(train, test, name="x")
    assert len(one.valid) == 5
    assert one == predefined(train, test, name="x")


def test_texts_as_ids_and_titles_of_both_are_put_together() -> None:
    import polars as pl

    def named(users: list[str], items: list[str], titles: dict[str, str]) -> Dataset:
        values = np.arange(1.0, 1 + len(users))
        return build(Columns(pl.Series(users), pl.Series(items), values, titles=titles))

    first = named(["b", "a", "é"], ["x", "z", "x"], {"x": "X", "z": ""})
    second = named(["c", "a"], ["y", "x"], {"x": "other", "y": "Y"})
    both = together(first, second)
    assert both.user_ids.tolist() == ["a", "b", "c", "é"]
    assert both.titles is not None
    assert both.titles.tolist() == ["X", "Y", ""]
    assert both.user_ids[both.users].tolist() == ["b", "a", "é", "c", "a"]


def test_half_stars_and_whole_stars_meet_on_half_stars() -> None:
    both = together(raw([1, 2], [1, 1], [0.5, 3.0]), raw([3, 4], [1, 1], [2.0, 5.0]))
    assert both.values.tolist() == [0.5, 3.0, 2.0, 5.0]
    assert both.scale.values[:2] == (0.5, 1.0)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (raw([3, 8], [40, 20], [5, 4]), r"split x: 1 ratings are in both parts.*user 3, item 40"),
        (raw([3, 3], [40, 20], [5, 2]), r"split x: 2 ratings are in both parts.*user 3, item 40"),
        # With another number of stars it is found in the training file, but is not the same.
        (raw([3, 8], [40, 20], [1, 4]), r"split x: 1 ratings are not in the data.*user 3, item 40"),
    ],
)
def test_a_rating_in_both_files_is_refused(test: Dataset, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predefined(TRAIN, test, name="x")


def test_files_that_are_not_cut_from_the_data_are_refused() -> None:
    whole = together(TRAIN, TEST)
    with pytest.raises(DataError, match=r"1 ratings are in neither part.*user 8, item 20"):
        predefined(TRAIN, TEST.select(np.array([0])), name="x", whole=whole)
    for foreign in (raw([3, 5], [30, 20], [2, 4]), raw([3, 8], [30, 21], [2, 4])):
        with pytest.raises(DataError, match=r"1 ratings are not in the data set.*user [58], item"):
            predefined(TRAIN, foreign, name="x", whole=whole)
    with pytest.raises(DataError, match=r"1 ratings are not in the data set.*user 8, item 20"):
        predefined(TRAIN, raw([3, 8], [30, 20], [2, 3]), name="x", whole=whole)


def test_numbers_and_texts_as_ids_do_not_mix() -> None:
    import polars as pl

    text = build(Columns(pl.Series(["a", "b"]), np.array([1, 2]), np.array([1, 2])))
    with pytest.raises(DataError, match="user ids are numbers in one part and text in the other"):
        predefined(TRAIN, text, name="x")
    with pytest.raises(DataError, match="2 ratings are not in the data set"):
        predefined(text, TEST, name="x", whole=TRAIN)


def test_different_bins_do_not_mix() -> None:
    columns = Columns(np.array([1, 2]), np.array([1, 2]), np.array([0.1, 0.77]))
    binned = build(columns, Options(bins=4))
    with pytest.raises(DataError, match="binned differently"):
        predefined(TRAIN, binned, name="x")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "sizes"), [("u1", (80_000, 20_000)), ("ua", (90_570, 9_430)), ("u5", (80_000, 20_000))]
)
def test_movielens_100k_files_cut_the_whole(name: str, sizes: tuple[int, int]) -> None:
    path = Path(os.environ.get("CFNADE_DATA", "")) / "ml-100k.zip"
    if "CFNADE_DATA" not in os.environ or not path.exists():
        pytest.skip("ml-100k.zip is not in the folder CFNADE_DATA")

    def read(member: str) -> Dataset:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(f"ml-100k/{member}").decode()
        table = np.array(text.split(), np.int64).reshape(-1, 4)
        return build(Columns(table[:, 0], table[:, 1], table[:, 2], table[:, 3]))

    whole, train, test = read("u.data"), read(f"{name}.base"), read(f"{name}.test")
    cut = predefined(train, test, name=name, whole=whole)
    assert (len(cut.train) + len(cut.valid), len(cut.test)) == sizes
    assert sorted(listed(cut.test)) == sorted(listed(test))
    alone = predefined(train, test, name=name)
    assert listed(alone.test) == listed(test)
