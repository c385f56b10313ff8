"""Ratings of some rows and levels of cells, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.data.synthetic import synthetic
from cfnade.kernels.lookup import levels_of, ratings_of


@pytest.mark.parametrize("seed", range(5))
def test_against_a_dictionary(seed: int) -> None:
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


def test_of_nothing() -> None:
    nothing = np.empty(0, np.int64)
    rows = synthetic(3, 3, 5, seed=0).ratings.rows("user")
    known = ratings_of(rows.offsets, rows.columns, rows.levels, nothing)
    assert len(known.columns) == 0
    assert len(levels_of(known, nothing, nothing, 3)) == 0
