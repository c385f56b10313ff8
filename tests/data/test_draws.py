from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cfnade.data.draws import alias_table, apportion


@settings(max_examples=100)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.integers(1, 50), st.data())
def test_shares_are_whole_bounded_and_sum_up(
    weights: list[float], most: int, data: st.DataObject
) -> None:
    total = data.draw(st.integers(0, most * len(weights)))
    shares = apportion(total, np.array(weights), most)
    assert shares.sum() == total
    assert shares.min() >= 0
    assert shares.max() <= most
    order = np.argsort(weights, kind="stable")
    assert np.all(np.diff(shares[order]) >= -1)  # who weighs more has no less, but for rounding


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_the_alias_table_gives_each_item_its_weight(weights: list[float]) -> None:
    keep, other = alias_table(np.array(weights))
    chances = np.minimum(keep, 1) / len(weights)
    np.add.at(chances, other, (1 - np.minimum(keep, 1)) / len(weights))
    np.testing.assert_allclose(chances, np.array(weights) / sum(weights), atol=1e-9)


def test_items_are_drawn_in_proportion_to_their_weights() -> None:
    """With one rating each, people's items are independent draws from the popularities."""
    from cfnade.data import draws

    weights = np.array([5.0, 1.0, 3.0, 0.5, 2.0, 1.5, 4.0, 3.0])
    offsets, items = np.arange(20_001), np.empty(20_000, np.int32)
    tables = (weights, *alias_table(weights))
    draws.draw_items(np.uint64(5), 0, 20_000, offsets, *tables, items)
    observed = np.bincount(items, minlength=8)
    assert stats.chisquare(observed, 20_000 * weights / weights.sum()).pvalue > 1e-4


@pytest.mark.parametrize("count", [8, 16])  # one by one from 8 items on; by waiting times below
def test_both_ways_of_drawing_two_items_have_the_chances_of_drawing_in_turn(count: int) -> None:
    from cfnade.data import draws

    weights = np.linspace(1.0, 4.0, count)
    if count == 8:
        weights = weights[:7]  # 4 · 2 > 7
    chances = weights / weights.sum()
    offsets, items = 2 * np.arange(20_001), np.empty(40_000, np.int32)
    draws.draw_items(np.uint64(9), 0, 20_000, offsets, weights, *alias_table(weights), items)
    pairs = items.reshape(-1, 2)
    observed, expected = [], []
    for a in range(len(weights)):
        for b in range(a + 1, len(weights)):
            in_turn = chances[a] * chances[b] * (1 / (1 - chances[a]) + 1 / (1 - chances[b]))
            expected.append(20_000 * in_turn)
            observed.append(int(((pairs[:, 0] == a) & (pairs[:, 1] == b)).sum()))
    assert sum(observed) == 20_000
    assert stats.chisquare(observed, expected).pvalue > 1e-4
