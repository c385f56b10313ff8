"""Made-up interactions."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import DataError
from cfnade.data.synthetic_picks import TASTES, synthetic_picks


def test_picks_are_drawn_in_proportion_without_putting_back() -> None:
    made = synthetic_picks(4000, 5, 2, seed=3)
    first, second = made.ratings.items.reshape(-1, 2).T
    assert (first != second).all()
    chances = np.exp(made.liking) / np.exp(made.liking).sum(1, keepdims=True)
    given_first = chances.copy()
    given_first[np.arange(4000), first] = 0
    given_first /= given_first.sum(1, keepdims=True)
    for taken, expected in ((first, chances), (second, given_first)):
        spread = np.sqrt((expected * (1 - expected)).sum(0))
        odd = (np.bincount(taken, minlength=5) - expected.sum(0)) / spread
        assert np.abs(odd).max() < 4
    assert np.linalg.matrix_rank(made.liking - made.liking.mean(0)) <= TASTES


def test_picks_are_interactions_that_a_seed_repeats() -> None:
    ratings = synthetic_picks(30, 20, 7, seed=1).ratings
    assert ratings == synthetic_picks(30, 20, 7, seed=1).ratings
    assert ratings != synthetic_picks(30, 20, 7, seed=2).ratings
    assert ratings.implicit
    assert np.bincount(ratings.users).tolist() == [7] * 30
    with pytest.raises(DataError, match=r"per_user \(=21\) must be a whole number in 1\.\.20"):
        synthetic_picks(30, 20, 21, seed=1)
