"""Cells by column, ratings of some rows and levels of cells, against lists and dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.column_groups import (
    group_by_column,
    lookup_levels,
    partition_columns,
    take_rows,
)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_cells_come_by_column_and_go_back_to_their_order(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 9, 50).astype(dtype), rng.integers(0, 7, 50).astype(dtype)
    columns[columns == 3] = 4
    levels, weights = rng.integers(0, 5, 50), rng.random(50)
    grouped = group_by_column(rows, columns, levels, weights, n_rows=9, n_columns=8, n_levels=5)
    assert grouped.present.tolist() == [0, 1, 2, 4, 5, 6]
    for c in range(8):
        own = slice(grouped.starts[c], grouped.starts[c + 1])
        assert grouped.order[own].tolist() == np.flatnonzero(columns == c).tolist()
        assert np.array_equal(grouped.rows[own], rows[columns == c])
        assert np.array_equal(grouped.levels[own], levels[columns == c])
    back = grouped.cells()
    for got, before in zip(back, (rows, columns, levels, weights), strict=True):
        assert np.array_equal(got, before)


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
        group_by_column(**(good | changes), n_rows=2, n_columns=3, n_levels=4)


def test_columns_are_cut_into_ranges_of_equal_work() -> None:
    counts = np.array([0, 10, 0, 0, 3, 3, 0, 4])
    starts, touched = np.concatenate([[0], np.cumsum(counts)]), np.flatnonzero(counts)
    assert partition_columns(np.arange(8), starts, 0.0, 2) == [(0, 2), (2, 8)]
    assert partition_columns(touched, starts, 0.0, 2) == [(0, 1), (1, 4)]
    assert partition_columns(np.arange(8), starts, 1000.0, 4) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert partition_columns(touched, starts, 1.0, 1) == [(0, 4)]
    assert partition_columns(touched[:0], starts[:1] * 0, 1.0, 3) == [(0, 0)] * 3


def ragged(seed: int, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Offsets, columns (in no order) and levels of some rows, some of them empty."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, columns, rows) * rng.integers(0, 2, rows)
    flat = [rng.permutation(columns)[:count] for count in counts]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    levels = rng.integers(0, 5, offsets[-1]).astype(np.uint8)
    return offsets, np.concatenate(flat).astype(np.int32), levels


@pytest.mark.parametrize("seed", range(3))
def test_ratings_and_levels_are_a_dictionarys(seed: int) -> None:
    offsets, columns, levels = ragged(seed, 30, 20)
    random = np.random.default_rng(seed)
    asked = random.integers(-1, 30, 12)  # some twice, some unknown
    ratings = take_rows(offsets, columns, levels, asked)
    held: list[dict[int, int]] = []
    for b, row in enumerate(asked):
        place = slice(offsets[row], offsets[row + 1]) if row >= 0 else slice(0, 0)
        own = slice(ratings.offsets[b], ratings.offsets[b + 1])
        assert np.array_equal(ratings.columns[own], columns[place])
        assert np.array_equal(ratings.levels[own], levels[place])
        assert (ratings.rows[own] == b).all()
        held.append(dict(zip(columns[place].tolist(), levels[place].tolist(), strict=True)))
    assert ratings.offsets[-1] == len(ratings.columns)
    cells = random.integers(0, 12, 300), random.integers(-1, 20, 300)
    expected = [held[b].get(column, -1) for b, column in zip(*map(list, cells), strict=True)]
    assert lookup_levels(ratings, *cells, 20).tolist() == expected


def test_of_no_rows_there_is_nothing() -> None:
    nothing = np.empty(0, np.int64)
    ratings = take_rows(*ragged(0, 3, 3), nothing)
    assert len(ratings.columns) == 0
    assert len(lookup_levels(ratings, nothing, nothing, 3)) == 0
