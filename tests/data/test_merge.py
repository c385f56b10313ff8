"""Two data sets become one; a training and a test file become a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.datasets import triples
from tests.support.raw_tables import raw_table

from cfnade import load_split
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.merge import merge
from cfnade.data.splits import split_from_files
from cfnade.data.validate import build
from cfnade.exceptions import DataError


def raw(
    users: list[int], items: list[int], values: list[float], times: list[int] | None = None
) -> Dataset:
    stamps = None if times is None else np.array(times)
    return build(
        raw_table(np.array(users), np.array(items), np.array(values), stamps), LoadOptions()
    )


TRAIN = raw([7, 3, 9, 3], [20, 20, 50, 40], [1, 2, 3, 5], [4, 3, 2, 1])
TEST = raw([3, 8], [30, 20], [2, 4], [6, 5])


def test_two_files_become_one_data_set_with_common_ids_and_scale() -> None:
    cut = split_from_files(TRAIN, TEST, name="mine")
    assert cut.name == "mine"
    assert sorted(triples(cut.train) + triples(cut.valid)) == sorted(triples(TRAIN))
    assert triples(cut.test) == triples(
        TEST
    )  # 8 and item 30 are new, and stars 2 and 4 keep theirs
    assert (len(cut.valid), len(cut.fold_in)) == (1, 0)
    assert cut.train.user_ids.tolist() == [3, 7, 8, 9]
    assert cut.train.item_ids.tolist() == [20, 30, 40, 50]
    assert list(cut.test.scale.values) == [1, 2, 3, 4, 5]
    assert cut.test.times is not None
    assert cut.test.times.tolist() == [6, 5]


def test_text_ids_and_titles_are_merged() -> None:
    import polars as pl

    def named(users: list[str], items: list[str], titles: dict[str, str]) -> Dataset:
        values = np.arange(1.0, 1 + len(users))
        return build(
            raw_table(pl.Series(users), pl.Series(items), values, titles=titles), LoadOptions()
        )

    first = named(["b", "a", "é"], ["x", "z", "x"], {"x": "X", "z": ""})
    second = named(["c", "a"], ["y", "x"], {"x": "other", "y": "Y"})
    both = merge(first, second)
    assert both.user_ids.tolist() == ["a", "b", "c", "é"]
    assert both.titles is not None
    assert both.titles.tolist() == ["X", "Y", ""]
    assert both.user_ids[both.users].tolist() == ["b", "a", "é", "c", "a"]


def test_half_and_whole_stars_are_merged() -> None:
    both = merge(raw([1, 2], [1, 1], [0.5, 3.0]), raw([3, 4], [1, 1], [2.0, 5.0]))
    assert both.values.tolist() == [0.5, 3.0, 2.0, 5.0]
    assert both.scale.values[:2] == (0.5, 1.0)


@pytest.mark.parametrize("stars", [1, 5])  # another number of stars is another rating of the pair
def test_a_rating_in_both_files_is_refused(stars: int) -> None:
    test = raw([3, 8], [40, 20], [stars, 4])
    with pytest.raises(DataError, match=r"split x: 1 ratings are in both parts.*user 3, item 40"):
        split_from_files(TRAIN, test, name="x")


def test_numbers_and_texts_as_ids_are_refused() -> None:
    import polars as pl

    text = build(
        raw_table(pl.Series(["a", "b"]), np.array([1, 2]), np.array([1, 2])), LoadOptions()
    )
    with pytest.raises(DataError, match="user ids are numbers in one part and text in the other"):
        split_from_files(TRAIN, text, name="x")


def test_different_bins_are_refused() -> None:
    columns = raw_table(np.array([1, 2]), np.array([1, 2]), np.array([0.1, 0.77]))
    binned = build(columns, LoadOptions(bins=4))
    with pytest.raises(DataError, match="binned differently"):
        split_from_files(TRAIN, binned, name="x")


def test_a_file_can_be_the_test_part(tmp_path: Path) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("1\t10\t5\t100\n1\t11\t3\t200\n2\t10\t1\t300\n3\t12\t4\t350\n")
    test.write_text("9\t10\t2\t500\n1\t12\t4\t600\n")
    parts = load_split(train, f"file:{test}")
    assert parts.test.user_ids.tolist() == [1, 2, 3, 9]
    assert parts.test.user_ids[parts.test.users].tolist() == [9, 1]
    assert parts.test.values.tolist() == [2.0, 4.0]
    assert parts.train.scale.values == (1.0, 2.0, 3.0, 4.0, 5.0)
