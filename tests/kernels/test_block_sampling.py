"""Drawn blocks: ratings inside are targets, those outside context; the same on any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfnade.exceptions import ModelError
from cfnade.kernels.block_sampling import BlockBatch, BlockSampler
from cfnade.kernels.buffers import Array
from cfnade.kernels.column_groups import ColumnGroups

USERS, ITEMS, LEVELS = 37, 53, 4
Cell = tuple[int, int, int]


def ratings(seed: int = 0, share: float = 0.4) -> Array:
    """A table (USERS, ITEMS) of levels, -1 where there is no rating."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, LEVELS, (USERS, ITEMS))
    return np.where(rng.random((USERS, ITEMS)) < share, levels, -1)


def ragged(table: Array) -> tuple[Array, Array, Array]:
    rows, columns = np.nonzero(table >= 0)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(table)))])
    levels = table[rows, columns].astype(np.uint8)
    return offsets.astype(np.int64), columns.astype(np.int32), levels


def sampler(table: Array, **changes: Any) -> BlockSampler:
    how: dict[str, Any] = {
        "columns": 20,
        "n_levels": LEVELS,
        "rate": (0.5, 0.9),
        "threads": 2,
    } | changes
    return BlockSampler(ragged(table), ragged(table.T.copy()), **how)


def cells(grouped: ColumnGroups, rows: Array) -> list[Cell]:
    """(row, column, level) with the rows' own numbers, column by column."""
    columns = np.repeat(np.arange(grouped.n_columns), np.diff(grouped.starts))
    parts = rows[grouped.rows].tolist(), columns.tolist(), grouped.levels.tolist()
    return list(zip(*parts, strict=True))


def flipped(cells: list[Cell]) -> list[Cell]:
    return [(b, a, level) for a, b, level in cells]


def draw(table: Array, users: Array, step: int = 3, **changes: Any) -> BlockBatch:
    return sampler(table, **changes).sample(users, seed=5, step=step)


def test_targets_are_the_ratings_inside_the_block_on_both_sides() -> None:
    table, users = ratings(), np.array([30, 2, 17, 5, 11, 0])
    block = draw(table, users)
    expected = sorted(
        (u, i, int(table[u, i])) for u in users for i in block.items if table[u, i] >= 0
    )
    by_item = cells(block.user.targets, block.users)
    by_user = flipped(cells(block.item.targets, block.items))
    assert sorted(by_item) == expected == sorted(by_user)
    assert block.n_targets == len(expected) > 0


def test_order_leads_from_each_side_to_the_same_target() -> None:
    block = draw(ratings(), np.array([30, 2, 17, 5, 11, 0]))
    by_item = cells(block.user.targets, block.users)
    by_user = flipped(cells(block.item.targets, block.items))
    assert block.user.targets.order.tolist() == list(range(block.n_targets))
    assert [by_item[p] for p in block.item.targets.order] == by_user
    plain = block.user.target_cells(), block.item.target_cells()
    assert np.array_equal(block.users[plain[0].rows], plain[1].columns)
    assert np.array_equal(plain[0].columns, block.items[plain[1].rows])
    assert np.array_equal(plain[0].levels, plain[1].levels)


def test_contexts_lie_outside_the_block_and_are_ratings() -> None:
    table, users = ratings(), np.arange(0, USERS, 2)
    block = draw(table, users)
    inside_items, inside_users = set(block.items.tolist()), set(users.tolist())
    for u, i, level in cells(block.user.context, block.users):
        assert (u in inside_users, i in inside_items, table[u, i]) == (True, False, level)
    for i, u, level in cells(block.item.context, block.items):
        assert (u in inside_users, i in inside_items, table[u, i]) == (False, True, level)
    for side in (block.user, block.item):
        counts = np.bincount(side.context.rows, minlength=len(side.context_sizes))
        assert np.array_equal(side.context_sizes, counts)
        assert np.array_equal(side.context.present, np.flatnonzero(np.diff(side.context.starts)))


def test_at_rate_one_everything_outside_is_known_and_at_rate_zero_nothing() -> None:
    table, users = ratings(), np.arange(9)
    block = draw(table, users, rate=(1.0, 1.0))
    outside = np.setdiff1d(np.arange(ITEMS), block.items)
    assert block.user.context_sizes.tolist() == (table[users][:, outside] >= 0).sum(1).tolist()
    others = table[9:, block.items] >= 0
    assert block.item.context_sizes.tolist() == others.sum(0).tolist()
    block = draw(table, users, rate=(0.0, 0.0))
    assert block.user.context_sizes.sum() == block.item.context_sizes.sum() == 0
    assert block.n_targets > 0


def test_each_side_and_step_has_one_rate_from_the_range() -> None:
    table, users = ratings(share=1.0), np.arange(18)
    means = []
    for step in range(60):
        block = draw(table, users, step=step)
        shares = block.user.context_sizes / (ITEMS - 20), block.item.context_sizes / (USERS - 18)
        means.append([float(side.mean()) for side in shares])
        # One rate a step: its rows differ by chance alone (about 33 draws each).
        assert shares[0].std() < 4 * np.sqrt(0.25 / 33)
    rates = np.array(means)  # (60, 2)
    assert 0.45 < rates.min() < 0.58
    assert 0.82 < rates.max() < 0.95
    assert abs(np.corrcoef(rates.T)[0, 1]) < 0.5  # each side draws its own


def test_items_are_drawn_evenly_and_anew_for_each_step() -> None:
    table = ratings()
    drawn = [draw(table, np.arange(5), step=step).items for step in range(300)]
    times = np.bincount(np.concatenate(drawn), minlength=ITEMS)
    expected = 300 * 20 / ITEMS
    assert np.all(np.abs(times - expected) < 5 * np.sqrt(expected))
    assert all(len(np.unique(items)) == 20 for items in drawn)


def test_a_block_depends_on_seed_and_step_but_not_on_threads() -> None:
    table, users = ratings(), np.random.default_rng(1).permutation(USERS)[:20]

    def parts(block: BlockBatch) -> list[Any]:
        arrays: list[Any] = [block.items]
        for side in (block.user, block.item):
            arrays += [*side.context, *side.targets, side.context_sizes]
        return arrays

    first = parts(draw(table, users))
    for threads in (1, 2, 3):
        again = parts(draw(table, users, threads=threads))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    other = parts(draw(table, users, step=4))
    assert not np.array_equal(first[0], other[0])


def test_blocks_that_do_not_fit_are_refused() -> None:
    table = ratings()
    with pytest.raises(ModelError, match=r"columns \(=54\) of a block must lie in 1\.\.53"):
        sampler(table, columns=ITEMS + 1)
    with pytest.raises(ModelError, match="users must be given once each"):
        draw(table, np.array([1, 1]))
    with pytest.raises(ModelError, match=r"users\[0\] \(=37\) must lie in 0\.\.36"):
        draw(table, np.array([USERS]))
