"""The usual least number of ratings: it hides the thin end and never the bulk."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfnade.inference.item_filters import MAX_HIDDEN, MAX_MIN_RATINGS, default_min_ratings


@given(st.lists(st.integers(0, 60), min_size=1, max_size=80))
def test_what_is_hidden_holds_little_of_all(counts: list[int]) -> None:
    array = np.array(counts)
    least = default_min_ratings(array)
    assert 1 <= least <= MAX_MIN_RATINGS
    hidden = array[array < least].sum()
    assert hidden <= MAX_HIDDEN * array.sum()
    if least < MAX_MIN_RATINGS:  # one more would hide too much
        assert array[array < least + 1].sum() > MAX_HIDDEN * array.sum()


def test_examples() -> None:
    assert (
        default_min_ratings(np.array([0, 0, 0])) == MAX_MIN_RATINGS
    )  # nothing is known of anything
    assert default_min_ratings(np.array([1, 1, 1, 1])) == 1
    assert default_min_ratings(np.array([5, 400, 1000, 0])) == MAX_MIN_RATINGS
    assert default_min_ratings(np.array([2, 3, 7, 8])) == 7  # 5 of 20 ratings, not 12
