"""Orders stay within their rows."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from cfnade.exceptions import ModelError
from cfnade.models import Context
from cfnade.models.likelihood import arrange, random_order, time_order


def test_time_order_is_earliest_first_and_stable(some_rows: Context) -> None:
    times = torch.tensor([30, 10, 20, 5, 5, 1, 5, 0])
    assert time_order(some_rows, times).tolist() == [1, 2, 0, 5, 3, 4, 6, 7]
    with pytest.raises(ModelError, match=r"times has shape \(2,\); it must have shape \(8,\)"):
        time_order(some_rows, torch.tensor([1, 2]))


def test_arrange_keeps_rows_and_pairs(some_rows: Context) -> None:
    order = torch.tensor([1, 2, 0, 5, 3, 4, 6, 7])
    arranged = arrange(some_rows, order)
    assert arranged.columns.tolist() == [0, 4, 2, 0, 1, 3, 2, 4]
    assert arranged.levels.tolist() == [2, 1, 0, 1, 1, 0, 2, 2]
    assert torch.equal(arranged.offsets, some_rows.offsets)


def test_random_orders_are_permutations_and_even() -> None:
    n = 3000
    rows = Context(torch.arange(n + 1) * 3, torch.arange(3).repeat(n), torch.zeros(3 * n).long())
    order = random_order(rows, torch.Generator().manual_seed(0))
    seen = Counter(map(tuple, arrange(rows, order).columns.reshape(n, 3).tolist()))
    assert len(seen) == 6
    assert chisquare(list(seen.values())).pvalue > 0.001
    assert torch.equal(order, random_order(rows, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    "order", [[0, 0, 1, 3, 4, 5, 6, 7], [3, 1, 2, 0, 4, 5, 6, 7]], ids=["twice", "across rows"]
)
def test_what_is_no_order_is_refused(some_rows: Context, order: list[int]) -> None:
    with pytest.raises(ModelError, match="order must name every rating once and keep it within"):
        arrange(some_rows, torch.tensor(order))
    with pytest.raises(ModelError, match=r"order contains 8; it must lie in 0\.\.7"):
        arrange(some_rows, torch.tensor([8, 1, 2, 3, 4, 5, 6, 7]))
