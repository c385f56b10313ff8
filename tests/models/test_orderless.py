"""Eq. 19 is drawn as the paper says, and its mean is the exact likelihood's mean over orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, permutations
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from cfnade.errors import ModelError
from cfnade.models import CFNADE, Batch, Context, Targets
from cfnade.models.ordered import ordered_cost
from cfnade.models.orderless import draw_batch

OFFSETS = np.array([0, 3, 3, 4, 9], dtype=np.int64)
COLUMNS = np.array([4, 0, 2, 1, 0, 1, 2, 3, 4], dtype=np.int32)
LEVELS = np.array([0, 2, 1, 1, 2, 1, 0, 1, 2], dtype=np.uint8)


def draw(seed: int, rows: Sequence[int] = (3, 1, 0, 2), **options: Any) -> Batch:
    rng = np.random.default_rng(seed)
    return draw_batch(OFFSETS, COLUMNS, LEVELS, np.array(rows), rng, **options)


def test_every_rating_is_either_known_or_predicted() -> None:
    for seed in range(50):
        batch = draw(seed)
        batch.check(columns=5, levels=3)  # refuses an overlap
        known, targets = batch.context, batch.targets
        drawn = [
            *zip(known.rows().tolist(), known.columns.tolist(), known.levels.tolist(), strict=True),
            *zip(
                *(t.tolist() for t in (targets.rows, targets.columns, targets.levels)), strict=True
            ),
        ]
        expected = [
            (number, int(COLUMNS[i]), int(LEVELS[i]))
            for number, row in enumerate((3, 1, 0, 2))
            for i in range(OFFSETS[row], OFFSETS[row + 1])
        ]
        assert sorted(drawn) == sorted(expected)


def test_a_target_weighs_d_over_what_is_left() -> None:
    D = [5, 0, 3, 1]
    for seed in range(50):
        batch, unit = draw(seed), draw(seed, target_weight="unit")
        left = torch.bincount(batch.targets.rows, minlength=4)
        for row, weight in zip(
            batch.targets.rows.tolist(), batch.targets.weights.tolist(), strict=True
        ):
            assert weight == pytest.approx(D[row] / int(left[row]))
        assert all(int(left[row]) >= 1 for row in (0, 2, 3))
        assert torch.equal(unit.targets.weights, torch.ones_like(batch.targets.weights))
        assert torch.equal(unit.targets.columns, batch.targets.columns)


def test_split_points_and_subsets_are_drawn_evenly() -> None:
    # One row of three ratings, 6000 times in one batch: a context of s has chance 1/3 / C(3, s).
    draws = 6000
    batch = draw_batch(
        OFFSETS, COLUMNS, LEVELS, np.zeros(draws, dtype=np.int64), np.random.default_rng(5)
    )
    ends, columns = batch.context.offsets.tolist(), batch.context.columns.tolist()
    seen = Counter(frozenset(columns[a:b]) for a, b in pairwise(ends))
    subsets = [frozenset(s) for size in range(3) for s in combinations([4, 0, 2], size)]
    assert set(seen) == set(subsets)
    expected = [draws / 3 / comb(3, len(s)) for s in subsets]
    assert chisquare([seen[s] for s in subsets], expected).pvalue > 0.001


def test_the_same_generator_draws_the_same_batch() -> None:
    one, same, other = draw(3), draw(3), draw(4)
    assert torch.equal(one.context.columns, same.context.columns)
    assert not torch.equal(one.targets.columns, other.targets.columns)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("D", [1, 3, 4])
def test_the_mean_over_orders_and_splits_is_the_mean_exact_cost(
    make_model: Callable[..., CFNADE],
    make_context: Callable[..., Context],
    variant: dict[str, Any],
    D: int,
    ordinal_weight: float,
) -> None:
    model = make_model(**variant, ordinal_weight=ordinal_weight)
    ratings = [(2, 0), (0, 2), (4, 1), (1, 1)][:D]
    orders = list(permutations(ratings))
    flat = torch.tensor(orders).reshape(-1, 2)
    rows = Context(torch.arange(len(orders) + 1) * D, flat[:, 0], flat[:, 1])
    exact = ordered_cost(model, rows)  # the mean over all orders of Eq. 5 (18)

    # Every order at every split point is a row of one batch, and the cost is the mean over rows.
    known: list[list[tuple[int, int]]] = []
    targets: list[tuple[int, int, int, float]] = []
    for order in orders:
        for i in range(1, D + 1):
            targets += [(len(known), m, k, D / (D - i + 1)) for m, k in order[i - 1 :]]
            known.append(list(order[: i - 1]))
    table = torch.tensor(targets, dtype=torch.float64)
    row, column, level = table[:, :3].long().unbind(1)
    cost = model.cost(Batch(make_context(known), Targets(row, column, level, table[:, 3])))
    torch.testing.assert_close(cost, exact, rtol=1e-12, atol=0.0)


def test_drawn_costs_average_to_the_exact_cost(make_model: Callable[..., CFNADE]) -> None:
    # The same through draw_batch: 20 000 draws of one row, within five standard errors.
    model = make_model(ordinal_weight=0.0)
    orders = list(permutations(range(3)))
    places = torch.tensor(orders).flatten()
    columns, levels = torch.from_numpy(COLUMNS[:3]).long(), torch.from_numpy(LEVELS[:3]).long()
    exact = ordered_cost(model, Context(torch.arange(7) * 3, columns[places], levels[places]))
    with torch.no_grad():
        costs = [model.cost(draw(seed, [0] * 500)).item() for seed in range(40)]
    error = np.std(costs, ddof=1) / np.sqrt(len(costs))
    assert abs(np.mean(costs) - exact.item()) < 5 * error


def test_bad_arguments_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match=r"target_weight \(='one'\) must be one of paper, unit"):
        draw(0, target_weight="one")
    with pytest.raises(ModelError, match=r"rows \(=\[4\]\) must .* lie in 0\.\.3 \(rows = 4\)"):
        draw(0, [4])
    with pytest.raises(ModelError, match=r"offsets of shape \(4,\) must rise from 0 to .* 9"):
        draw_batch(OFFSETS[:-1], COLUMNS, LEVELS, np.array([0]), rng)
    with pytest.raises(ModelError, match=r"levels have shape \(8,\); they must .* \(9,\)"):
        draw_batch(OFFSETS, COLUMNS, LEVELS[1:], np.array([0]), rng)
