"""The usual least number of ratings: it hides the thin end and never the bulk."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfnade.inference.ranking_options import MOST, SHARE, default_min_ratings


@given(st.lists(st.integers(0, 60), min_size=1, max_size=80))
def test_what_is_hidden_holds_little_of_all(counts: list[int]) -> None:
    array = np.array(counts)
    least = default_min_ratings(array)
    assert 1 <= least <= MOST
    hidden = array[array < least].sum()
    assert hidden <= SHARE * array.sum()
    if least < MOST:  # one more would hide too much
        assert array[array < least + 1].sum() > SHARE * array.sum()


def test_examples() -> None:
    assert default_min_ratings(np.array([0, 0, 0])) == MOST  # nothing is known of anything
    assert default_min_ratings(np.array([1, 1, 1, 1])) == 1
    assert default_min_ratings(np.array([5, 400, 1000, 0])) == MOST
    assert default_min_ratings(np.array([2, 3, 7, 8])) == 7  # 5 of 20 ratings, not 12
