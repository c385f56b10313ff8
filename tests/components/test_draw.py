"""Batches: what is known and what is asked in a step, as written down rating by rating."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.components.given import N_ITEMS, N_USERS, some_member, some_ratings

from cfnade.components import Axis
from cfnade.components.batches import Batch, BatchSampler, batch_sampler
from cfnade.components.nade import NadeComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.models.batch import Context, ModelBatch
from cfnade.models.likelihood import ordered_cost
from cfnade.models.losses import hybrid_cost

RATINGS = some_ratings()
LEVELS = {
    (int(u), int(i)): int(level)
    for u, i, level in zip(RATINGS.users, RATINGS.items, RATINGS.levels, strict=True)
}
PAPER = TrainingConfig(context_rate="paper")
BLOCKS = TrainingConfig(batch_rows=4, batch_columns=5, context_rate=(0.4, 0.9))
AXES: list[Axis] = ["user", "item"]


def draws(
    *axes: Axis, settings: TrainingConfig, weight: str = "paper", threads: int = 1
) -> BatchSampler:
    return batch_sampler(axes, RATINGS, settings, weight, threads)


def table(axis: Axis) -> dict[tuple[int, int], int]:
    """Levels by row and column."""
    return LEVELS if axis == "user" else {(i, u): level for (u, i), level in LEVELS.items()}


def cells_of(batch: ModelBatch) -> tuple[dict[Any, int], dict[Any, int]]:
    """(row, column) -> level of context and of targets; none may come twice."""
    known = list(zip(batch.context.rows().tolist(), batch.context.columns.tolist(), strict=True))
    asked = list(zip(batch.targets.rows.tolist(), batch.targets.columns.tolist(), strict=True))
    assert len(set(known)) == len(known)
    assert len(set(asked)) == len(asked)
    return (
        dict(zip(known, batch.context.levels.tolist(), strict=True)),
        dict(zip(asked, batch.targets.levels.tolist(), strict=True)),
    )


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", ["paper", (0.2, 0.7)])
@pytest.mark.parametrize("axis", AXES)
def test_every_rating_of_a_row_is_either_known_or_asked(axis: Axis, rate: Any) -> None:
    source, rows = draws(axis, settings=TrainingConfig(context_rate=rate)), np.array([3, 0, 5, 2])
    by_row = table(axis)
    counts = [sum(r == row for r, _ in by_row) for row in rows]
    for step in range(30):
        batch = source.sample(rows, step).batch(axis)
        batch.check(columns=N_ITEMS + N_USERS, levels=4)  # refuses a target in its context
        known, asked = cells_of(batch)
        both = {(int(rows[r]), column): level for (r, column), level in (known | asked).items()}
        assert both == {cell: level for cell, level in by_row.items() if cell[0] in rows}
        assert len(known) + len(asked) == len(both)
        left = Counter(row for row, _ in asked)
        for row, weight in zip(batch.targets.rows, batch.targets.weights, strict=True):
            assert float(weight) == pytest.approx(counts[row] / left[int(row)])


def test_unit_weights_count_every_target_once() -> None:
    one = draws("user", settings=PAPER, weight="unit").sample(np.arange(1, 9), 0)
    assert set(one.batch("user").targets.weights.tolist()) == {1.0}
    assert one.divisor == 8
    np.testing.assert_allclose(one.weights, 1 / 8)


def test_split_points_and_subsets_are_drawn_evenly() -> None:
    # A context of s among D ratings has the chance 1/D / C(D, s).
    user, many = 4, 1500
    columns = [i for u, i in LEVELS if u == user]
    D, source = len(columns), draws("user", settings=PAPER)
    seen: Counter[frozenset[int]] = Counter()
    for step in range(many):
        context = source.sample(np.array([user]), step).batch("user").context
        seen[frozenset(context.columns.tolist())] += 1
    subsets = [frozenset(s) for size in range(D) for s in combinations(columns, size)]
    expected = [many / D / comb(D, len(s)) for s in subsets]
    assert set(seen) <= set(subsets)
    assert chisquare([seen[s] for s in subsets], expected).pvalue > 0.001


@pytest.mark.parametrize("rate", [(0.25, 0.25), (0.0, 1.0)])
def test_context_is_drawn_at_a_rate_of_the_range(rate: tuple[float, float]) -> None:
    source, rows = draws("item", settings=TrainingConfig(context_rate=rate)), np.arange(1, N_ITEMS)
    shares = [
        len(one.batches["item"].context.rows) / len(LEVELS)
        for one in (source.sample(rows, step) for step in range(200))
    ]
    spread = np.std(shares) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - sum(rate) / 2) < 4 * spread


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5])
def test_drawn_costs_average_to_the_exact_cost(ordinal_weight: float) -> None:
    """Eq. 19: over draws, the mean cost of a row is its exact cost over all orders."""
    side = some_member(("user",), {"hidden": (4,), "ordinal_weight": ordinal_weight}).components[
        "user"
    ]
    assert isinstance(side, NadeComponent)
    user = min(range(1, N_USERS), key=lambda u: abs(sum(v == u for v, _ in LEVELS) - 4))
    rated = [(i, level) for (u, i), level in LEVELS.items() if u == user]
    orders = torch.tensor(list(permutations(rated)))  # (D!, D, 2)
    ends = torch.arange(len(orders) + 1) * len(rated)
    flat = orders.reshape(-1, 2)
    exact = ordered_cost(side.network, Context(ends, flat[:, 0], flat[:, 1]))
    source, costs = draws("user", settings=PAPER), []
    with torch.no_grad():
        for step in range(250):
            one = source.sample(np.array([user]), step)
            levels = torch.from_numpy(one.levels.astype(np.int64))
            each = hybrid_cost(side.torch_scores(side.network, one), levels, ordinal_weight)
            costs.append(float((torch.from_numpy(one.weights) * each).sum()))
    error = np.std(costs, ddof=1) / np.sqrt(len(costs))
    assert abs(np.mean(costs) - float(exact.detach())) < 4 * error


# -- blocks ----------------------------------------------------------------------------------------


def test_a_block_asks_for_its_ratings_and_knows_others_of_its_rows() -> None:
    source, users = draws("user", "item", settings=BLOCKS), np.array([5, 1, 0, 7])
    sizes = []
    for step in range(30):
        block = source.sample(users, step)
        items = block.rows["item"]
        assert block.rows["user"].tolist() == users.tolist()
        assert len(set(items.tolist())) == 5
        inside = {c: v for c, v in LEVELS.items() if c[0] in users and c[1] in items}
        assert block.n_targets == len(inside)
        assert block.divisor == max(1, len(inside))
        in_order = list(zip(block.cells["user"], block.cells["item"], strict=True))
        assert dict(zip(in_order, block.levels.tolist(), strict=True)) == inside
        for axis in AXES:
            batch, rows = block.batch(axis), block.rows[axis]
            batch.check(columns=N_ITEMS + N_USERS, levels=4)
            known, asked = cells_of(batch)
            # The same targets in the same order, whoever reads them.
            cells = [(int(rows[r]), c) for r, c in asked]
            assert cells == (in_order if axis == "user" else [(i, u) for u, i in in_order])
            assert list(asked.values()) == block.levels.tolist()
            everything, other = table(axis), block.rows["item" if axis == "user" else "user"]
            for (row, column), level in known.items():
                assert column not in other
                assert everything[int(rows[row]), column] == level
            outside = [c for c in everything if c[0] in rows and c[1] not in other]
            sizes.append(len(known) / len(outside))
    assert 0.4 < np.mean(sizes) < 0.9
    assert min(sizes) < 0.6 < max(sizes)


def test_with_a_rate_of_one_everything_outside_the_block_is_known() -> None:
    source = draws("user", "item", settings=replace(BLOCKS, context_rate=(1.0, 1.0)))
    block = source.sample(np.array([2, 3]), 0)
    for axis in AXES:
        rows, other = block.rows[axis], block.rows["item" if axis == "user" else "user"]
        known, _ = cells_of(block.batch(axis))
        expected = {c for c in table(axis) if c[0] in rows and c[1] not in other}
        assert {(int(rows[r]), c) for r, c in known} == expected


def test_a_block_says_what_part_of_the_columns_it_has() -> None:
    source = draws("user", "item", settings=BLOCKS)
    assert source.n_rows == N_USERS
    assert (source.share("user"), source.share("item")) == (5 / N_ITEMS, 4 / N_USERS)
    assert source.share(None) == 1.0
    assert draws("item", settings=BLOCKS).share("item") == 0.0
    filled = draws("user", "item", settings=TrainingConfig()).settings
    assert (filled.batch_rows, filled.batch_columns) == (N_USERS, N_ITEMS)


# -- both ------------------------------------------------------------------------------------------


def as_lists(draw: Batch) -> list[Any]:
    return [
        (a, t.tolist())
        for a in draw.batches
        for part in (draw.batch(a).context, draw.batch(a).targets)
        for t in vars(part).values()
    ]


@pytest.mark.parametrize("axes", [("user",), ("item",), ("user", "item")])
def test_the_same_step_draws_the_same_on_any_number_of_threads(axes: tuple[Axis, ...]) -> None:
    one, two = (draws(*axes, settings=BLOCKS, threads=threads) for threads in (1, 2))
    rows = np.array([4, 1, 6, 2])
    drawn = [as_lists(source.sample(rows, step)) for source in (one, two) for step in (0, 1)]
    assert drawn[0] == drawn[2]
    assert drawn[1] == drawn[3]
    assert drawn[0] != drawn[1]
    other = draws(*axes, settings=replace(BLOCKS, seed=1)).sample(rows, 0)
    assert as_lists(other) != drawn[0]


@pytest.mark.parametrize("axes", [("user",), ("user", "item")])
def test_batches_sampled_together_are_those_sampled_alone(axes: tuple[Axis, ...]) -> None:
    settings = PAPER if len(axes) == 1 else BLOCKS
    one, two = draws(*axes, settings=settings), draws(*axes, settings=settings, threads=2)
    batches = [np.array([3, 0, 5, 2]), np.array([1, 4, 2, 0])]
    together = [as_lists(batch) for batch in two.sample_many(batches, 7)]
    assert together == [as_lists(one.sample(rows, 7 + n)) for n, rows in enumerate(batches)]


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(TrainingError, match="no side reads ratings; name one that does"):
        draws(settings=BLOCKS)
    with pytest.raises(TrainingError, match='context_rate "paper" splits rows'):
        draws("user", "item", settings=PAPER)


def test_contexts_of_a_batch_are_rows_one_after_another() -> None:
    batch = draws("user", settings=TrainingConfig(context_rate=(1.0, 1.0)))
    context = batch.sample(np.array([3, 1]), 0).batch("user").context
    ends = context.offsets.tolist()
    for user, (first, end) in zip((3, 1), pairwise(ends), strict=True):
        rated = {(i, level) for (u, i), level in LEVELS.items() if u == user}
        part = slice(first, end)
        cells = zip(context.columns[part].tolist(), context.levels[part].tolist(), strict=True)
        assert set(cells) == rated


def test_ratings_without_any_in_a_row_draw_nothing() -> None:
    empty: Dataset = RATINGS.select(np.arange(0))
    draw = batch_sampler(("user",), empty, BLOCKS, "paper", 1).sample(np.array([1, 2]), 0)
    assert draw.n_targets == 0
    assert draw.batch("user").context.counts().tolist() == [0, 0]
