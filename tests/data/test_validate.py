"""Raw tables become data sets: ids, scales, repeated pairs and times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.datasets import triples
from tests.support.raw_tables import raw_table

from cfnade import load
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.validate import Duplicates, build, compact_times, encode_ids
from cfnade.exceptions import DataError

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def made(
    users: Any, items: Any, values: Any, times: npt.NDArray[Any] | None = None, **options: Any
) -> Dataset:
    columns = raw_table(np.array(users), np.array(items), np.array(values), times)
    return build(columns, LoadOptions(**options))


# -- ids ---------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.sampled_from(INTEGERS), st.data())
def test_integer_ids_are_encoded_in_ascending_order(dtype: str, data: st.DataObject) -> None:
    info = np.iinfo(dtype)
    top = min(int(info.max), 2**63 - 1)
    near = st.integers(int(info.min), min(int(info.min) + 40, top))
    ids = data.draw(st.lists(st.integers(int(info.min), top) | near, min_size=1, max_size=30))
    index, table = encode_ids(pl.Series(np.array(ids, dtype)))
    assert table.tolist() == sorted(set(ids))
    assert table[index].tolist() == ids
    assert [index.dtype.name, table.dtype.name] == ["int32", "int64"]


@settings(max_examples=40)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=30))
def test_text_ids_are_encoded_in_ascending_order(ids: list[str]) -> None:
    index, table = encode_ids(pl.Series(ids, dtype=pl.String))
    assert table.tolist() == sorted(set(ids), key=lambda text: text.encode())
    assert table[index].tolist() == ids
    assert [index.dtype.name, table.dtype.name] == ["int32", "object"]


# -- values ------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.integers(100, 109), st.integers(1, 10)),
        min_size=2,
        max_size=40,
        unique_by=lambda row: row[:2],
    ).filter(lambda rows: len({row[2] for row in rows}) > 1),
    st.sampled_from(["uint8", "int64", "float32", "float64"]),
)
def test_ratings_are_preserved(rows: list[tuple[int, int, int]], dtype: str) -> None:
    users, items, values = zip(*rows, strict=True)
    ratings = made(users, items, np.array(values, dtype))
    assert triples(ratings) == [(u, i, float(v)) for u, i, v in rows]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [1, np.nan, 2],
            r"row 1: rating nan is not a finite number; correct or remove it",
        ),
        ([1, 2, -np.inf], r"row 2: rating -inf is not a finite number"),
        ([1, 2, 5.5], r"row 2: rating 5.5 is off the scale 1–5 \(1 such ratings\); give the scale"),
        ([0, 7, 1], r"row 0: rating 0 is off the scale 1–5 \(2 such ratings\)"),
    ],
)
def test_invalid_ratings_are_located(values: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made([1, 2, 3], [1, 2, 3], np.array(values, float), scale="1-5")


def test_continuous_ratings_need_bins() -> None:
    values = np.linspace(0.013, 0.987, 50) ** 2
    with pytest.raises(DataError, match=r"look continuous.*bins=10"):
        made(range(50), range(50), values)
    ratings = made(range(50), range(50), values, bins=4)
    edges = np.linspace(values.min(), values.max(), 5)
    assert ratings.levels.tolist() == np.clip(np.digitize(values, edges) - 1, 0, 3).tolist()


# -- repeats -----------------------------------------------------------------------------------


def repeats_by_hand(rows: list[tuple[int, int, int]], policy: str) -> list[tuple[int, int, float]]:
    """Per cell: its ratings; the cell stands where its first (or else its last) rating stood."""
    cells: dict[tuple[int, int], list[int]] = {}
    for position, (user, item, _) in enumerate(rows):
        cells.setdefault((user, item), []).append(position)
    kept = []
    for (user, item), places in cells.items():
        stars = [rows[place][2] for place in places]
        value = {"first": stars[0], "last": stars[-1]}.get(policy, sum(stars) / len(stars))
        kept.append((places[0] if policy == "first" else places[-1], user, item, value))
    # a mean between two levels goes up
    return [(u, i, float(np.floor(v + 0.5))) for _, u, i, v in sorted(kept)]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=15
    ),
    st.sampled_from(["first", "last", "mean"]),
)
def test_repeated_ratings_follow_the_policy(
    rows: list[tuple[int, int, int]], policy: Duplicates
) -> None:
    users, items, values = zip(*rows, strict=True)
    ratings = made(users, items, values, scale="1-5", duplicates=policy)
    assert triples(ratings) == repeats_by_hand(rows, policy)


def test_a_repeat_is_an_error_that_counts_and_shows() -> None:
    with pytest.raises(
        DataError,
        match=r"row 3: user 7 rated item 9 again \(4, first 2 at row 1\); 3 repeated ratings in "
        r'all\. Choose .*duplicates="last"; first and mean are the others',
    ):
        made([8, 7, 8, 7, 7, 8, 1], [9, 9, 8, 9, 9, 8, 9], [1, 2, 3, 4, 5, 5, 3])


def test_means_of_binned_duplicates_are_binned() -> None:
    ratings = made(
        [1, 1, 2, 3], [1, 1, 1, 1], [0.0, 6.0, 0.5, 10.0], bins=[0, 1, 2, 10], duplicates="mean"
    )
    assert ratings.levels.tolist() == [2, 0, 2]  # 3.0 is between 2 and 10


# -- times and texts ---------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-(2**31), 2**31), max_size=10))
def test_times_use_32_bits_if_they_fit(times: list[int]) -> None:
    compact = compact_times(np.array(times, np.int64))
    assert compact.tolist() == times
    fits = all(-(2**31) < t < 2**31 for t in times)
    assert compact.dtype == (np.int32 if fits else np.int64)


@pytest.mark.parametrize(
    ("ratings", "options", "message"),
    [
        (range(1, 1000, 2), {}, "own.csv: ratings look continuous"),
        ([3] * 500, {}, "own.csv: every rating is 3"),
        ([3] * 500, {"bins": 4}, "own.csv: bins=4: every rating is 3"),
    ],
)
def test_errors_of_the_scale_name_the_file(
    ratings: Iterable[int], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    lines = (f"{n},{n % 7},{rating}" for n, rating in enumerate(ratings))
    (tmp_path / "own.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"^{re.escape(message)}"):
        load(tmp_path / "own.csv", **options)
