"""Cells by column, ratings of some rows and levels of cells, against lists and dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfnade.data.synthetic import synthetic
from cfnade.errors import ModelError
from cfnade.kernels.grouping import group, levels_of, partition, ratings_of


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_cells_come_by_column_and_go_back_to_their_order(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 9, 50).astype(dtype), rng.integers(0, 7, 50).astype(dtype)
    columns[columns == 3] = 4
    levels, weights = rng.integers(0, 5, 50), rng.random(50)
    grouped = group(rows, columns, levels, weights, size=9, n_columns=8, n_levels=5)
    assert grouped.touched.tolist() == [0, 1, 2, 4, 5, 6]
    for c in range(8):
        own = slice(grouped.starts[c], grouped.starts[c + 1])
        assert grouped.order[own].tolist() == np.flatnonzero(columns == c).tolist()
        assert np.array_equal(grouped.rows[own], rows[columns == c])
        assert np.array_equal(grouped.levels[own], levels[columns == c])
    back = grouped.cells()
    for got, given in zip(back, (rows, columns, levels, weights), strict=True):
        assert np.array_equal(got, given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.array([0, 2])}, r"rows\[1\] \(=2\) must lie in 0..1 \(rows = 2\)"),
        ({"columns": np.array([-1, 0])}, r"columns\[0\] \(=-1\) must lie in 0..2"),
        ({"levels": np.array([0, 4])}, r"levels\[1\] \(=4\) must lie in 0..3"),
        ({"levels": np.array([0])}, r"levels has shape \(1,\); it must be \(2,\), one per cell"),
        ({"rows": np.array([0.0, 1.0])}, "rows has dtype float64; it must be an integer type"),
    ],
)
def test_cells_outside_a_table_are_refused(changes: dict[str, Any], message: str) -> None:
    good = {"rows": np.array([0, 1]), "columns": np.array([2, 0]), "levels": np.array([3, 0])}
    with pytest.raises(ModelError, match=message):
        group(**(good | changes), size=2, n_columns=3, n_levels=4)


def test_columns_are_cut_into_ranges_of_equal_work() -> None:
    counts = np.array([0, 10, 0, 0, 3, 3, 0, 4])
    starts, touched = np.concatenate([[0], np.cumsum(counts)]), np.flatnonzero(counts)
    assert partition(np.arange(8), starts, 0.0, 2).tolist() == [0, 2, 8]
    assert partition(touched, starts, 0.0, 2).tolist() == [0, 1, 4]
    assert partition(np.arange(8), starts, 1000.0, 4).tolist() == [0, 2, 4, 6, 8]
    assert partition(touched, starts, 1.0, 1).tolist() == [0, 4]
    assert partition(touched[:0], starts[:1] * 0, 1.0, 3).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_ratings_and_levels_are_a_dictionarys(seed: int) -> None:
    rows = synthetic(30, 20, 250, seed=seed).ratings.rows("user")
    random = np.random.default_rng(seed)
    asked = random.integers(-1, 30, 12)  # some twice, some unknown
    known = ratings_of(rows.offsets, rows.columns, rows.levels, asked)
    held: list[dict[int, int]] = []
    for b, row in enumerate(asked):
        place = slice(rows.offsets[row], rows.offsets[row + 1]) if row >= 0 else slice(0, 0)
        own = slice(known.offsets[b], known.offsets[b + 1])
        assert np.array_equal(known.columns[own], rows.columns[place])
        assert np.array_equal(known.levels[own], rows.levels[place])
        assert (known.rows[own] == b).all()
        held.append(dict(zip(rows.columns[place].tolist(), rows.levels[place], strict=True)))
    assert known.offsets[-1] == len(known.columns)
    cells = random.integers(0, 12, 300), random.integers(-1, 20, 300)
    expected = [held[b].get(column, -1) for b, column in zip(*map(list, cells), strict=True)]
    assert levels_of(known, *cells, 20).tolist() == expected


def test_of_no_rows_there_is_nothing() -> None:
    nothing = np.empty(0, np.int64)
    rows = synthetic(3, 3, 5, seed=0).ratings.rows("user")
    known = ratings_of(rows.offsets, rows.columns, rows.levels, nothing)
    assert len(known.columns) == 0
    assert len(levels_of(known, nothing, nothing, 3)) == 0
