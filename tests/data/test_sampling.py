from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data.sampling import chosen


def test_random_parts_are_spread_evenly() -> None:
    """Over many seeds, every position is in the test part about one time in ten."""
    hits = sum(chosen(50, 5, (seed, 0)).astype(int) for seed in range(4000))
    assert np.all(np.abs(hits - 400) < 5 * math.sqrt(4000 * 0.09))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3000), st.data(), st.integers(0, 2**70))
def test_chosen_takes_those_with_the_smallest_keys(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(0, n))
    keys = np.random.PCG64((seed, 7)).random_raw(n) if n else np.empty(0, np.uint64)
    expected = np.zeros(n, bool)
    expected[np.argsort(keys, kind="stable")[:count]] = True
    np.testing.assert_array_equal(chosen(n, count, (seed, 7)), expected)


def test_chosen_is_the_same_across_chunks() -> None:
    n = (1 << 20) + 12_345
    keys = np.random.PCG64((3, 0)).random_raw(n)
    np.testing.assert_array_equal(
        chosen(n, n // 10, (3, 0)), keys <= np.partition(keys, n // 10 - 1)[n // 10 - 1]
    )


def test_chosen_positions_never_change() -> None:
    """If this fails, every split by name has changed, and results no longer compare."""
    assert np.flatnonzero(chosen(40, 4, (1, 0))).tolist() == [9, 31, 36, 39]
