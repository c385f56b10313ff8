"""Drawn batches: every rating once, the right distribution, the same for any threads."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.sampling import GroupedBatch, PartialRows, RowSampler


def ragged(counts: list[int], n_columns: int, n_levels: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = [rng.choice(n_columns, count, replace=False) for count in counts]
    flat = np.concatenate(columns).astype(np.int32)
    return offsets, flat, rng.integers(0, n_levels, len(flat)).astype(np.uint8)


def cells(grouped: ColumnGroups) -> list[tuple[int, int, int]]:
    columns = np.repeat(np.arange(grouped.n_columns), np.diff(grouped.starts))
    return sorted(
        zip(grouped.rows.tolist(), columns.tolist(), grouped.levels.tolist(), strict=True)
    )


def same(a: GroupedBatch, b: GroupedBatch) -> bool:
    def parts(batch: GroupedBatch) -> list[Any]:
        return [*batch.context, *batch.targets, batch.context_sizes]

    return all(np.array_equal(x, y) for x, y in zip(parts(a), parts(b), strict=True))


COUNTS = [0, 1, 2, 17, 30, 0, 5]


@pytest.mark.parametrize("rate", [None, (0.5, 1.0)])
def test_each_rating_of_the_chosen_rows_is_context_or_target_once(
    rate: tuple[float, float] | None,
) -> None:
    offsets, columns, levels = ragged(COUNTS, 40, 5)
    sampler = RowSampler(offsets, columns, levels, n_columns=40, n_levels=5, rate=rate, threads=2)
    rows = np.array([4, 0, 6, 3])
    batch = sampler.sample(rows, seed=1, step=2)
    expected = sorted(
        (b, int(columns[p]), int(levels[p]))
        for b, row in enumerate(rows)
        for p in range(offsets[row], offsets[row + 1])
    )
    assert sorted(cells(batch.context) + cells(batch.targets)) == expected
    assert batch.size == batch.context.n_rows == 4
    counts = np.bincount(batch.context.rows, minlength=4)
    assert np.array_equal(batch.context_sizes, counts)
    for side in (batch.context, batch.targets):
        assert np.array_equal(side.present, np.flatnonzero(np.diff(side.starts)))
        for c in side.present:  # rows rise inside a column
            assert np.all(np.diff(side.rows[side.starts[c] : side.starts[c + 1]]) > 0)


def test_plain_cells_are_the_batch_row_by_row_and_target_by_target() -> None:
    offsets, columns, levels = ragged(COUNTS, 40, 5)
    sampler = RowSampler(offsets, columns, levels, n_columns=40, n_levels=5, threads=2)
    batch = sampler.sample(np.array([4, 0, 6, 3]), seed=1, step=2)
    context, targets = batch.context_cells(), batch.target_cells()
    assert list(zip(*(part.tolist() for part in context[:3]), strict=True)) == cells(batch.context)
    assert context.rows.tolist() == np.repeat(np.arange(4), batch.context_sizes).tolist()
    by_column = np.lexsort((targets.rows, targets.columns))
    assert np.array_equal(by_column, np.arange(len(by_column)))  # rows rise inside a column
    assert sorted(zip(*(p.tolist() for p in targets[:3]), strict=True)) == cells(batch.targets)
    assert np.array_equal(targets.weights, batch.targets.weights)


def test_data_that_cannot_be_written_draws_the_same() -> None:
    """As it is where a cache is mapped into memory."""
    parts = ragged(COUNTS, 40, 5)
    free = RowSampler(*parts, n_columns=40, n_levels=5).sample(np.arange(7), seed=1, step=2)
    for part in parts:
        part.flags.writeable = False
    kept = RowSampler(*parts, n_columns=40, n_levels=5).sample(np.arange(7), seed=1, step=2)
    assert same(free, kept)


def test_target_weights_are_those_of_equation_19_or_one() -> None:
    offsets, columns, levels = ragged(COUNTS, 40, 5)
    rows = np.arange(len(COUNTS))
    for kind in ("paper", "unit"):
        sampler = RowSampler(offsets, columns, levels, n_columns=40, n_levels=5, weights=kind)
        batch = sampler.sample(rows, seed=3, step=0)
        D, contexts = np.array(COUNTS), batch.context_sizes
        row = batch.targets.rows
        expected = D[row] / (D - contexts)[row] if kind == "paper" else np.ones(len(row))
        np.testing.assert_allclose(batch.targets.weights, expected, rtol=1e-6)


def test_a_batch_depends_on_seed_and_step() -> None:
    sampler = RowSampler(*ragged(COUNTS * 20, 40, 5), n_columns=40, n_levels=5)
    rows = np.random.default_rng(0).permutation(len(COUNTS) * 20)[:90]
    base = sampler.sample(rows, seed=7, step=3)
    assert same(base, sampler.sample(rows, seed=7, step=3))
    assert not same(base, sampler.sample(rows, seed=8, step=3))
    assert not same(base, sampler.sample(rows, seed=7, step=4))


@pytest.mark.parametrize("how", [{}, {"rate": (0.1, 1.0)}, {"rate": (0.5, 1.0), "small": 0.5}])
def test_ratings_in_some_columns_have_the_roles_that_they_have_in_whole_rows(
    how: dict[str, Any],
) -> None:
    offsets, columns, levels = ragged(COUNTS, 40, 5)
    row = np.repeat(np.arange(len(COUNTS)), COUNTS)
    is_own = columns % 3 == 0
    positions = (np.arange(len(row)) - offsets[row])[is_own].astype(np.int32)
    ends = np.cumsum([0, *np.bincount(row[is_own], minlength=len(COUNTS))])
    partial = PartialRows(positions, np.array(COUNTS, np.int32))
    how = {"n_columns": 40, "n_levels": 5, **how}
    rows = np.array([4, 0, 6, 3])
    sampler = RowSampler(ends, columns[is_own], levels[is_own], **how, partial=partial)
    own = sampler.sample(rows, seed=1, step=2)
    whole = RowSampler(offsets, columns, levels, **how).sample(rows, seed=1, step=2)
    for part, all_columns in ((own.context, whole.context), (own.targets, whole.targets)):
        assert cells(part) == [cell for cell in cells(all_columns) if cell[1] % 3 == 0]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_batches_of_several_threads_are_those_of_one(threads: int, count: int) -> None:
    data = ragged(COUNTS, 40, 5)
    sampler = RowSampler(*data, n_columns=40, n_levels=5, threads=threads)
    batches = [np.array([4, n, 6, 3]) for n in range(count)]
    sampled = sampler.sample_many(batches, seed=1, step=7)
    assert len(sampled) == count
    for n, batch in enumerate(sampled):
        assert same(batch, sampler.sample(batches[n], seed=1, step=7 + n))


def subsets_of_four(rate: tuple[float, float] | None) -> dict[tuple[int, ...], int]:
    """How often each set of columns is the context, in 6000 draws of a row that has four."""
    offsets, columns, levels = ragged([4], 4, 5)
    sampler = RowSampler(offsets, columns, levels, n_columns=4, n_levels=5, rate=rate, threads=1)
    rows = np.zeros(1, np.int64)
    draws = (sampler.sample(rows, seed=0, step=step) for step in range(6000))
    return Counter(tuple(batch.context.present.tolist()) for batch in draws)


def test_split_points_and_subsets_are_uniform() -> None:
    """A size of 0..3 is drawn evenly, then each set of that size."""
    times = subsets_of_four(None)
    sets = [subset for size in range(4) for subset in combinations(range(4), size)]
    assert set(times) == set(sets)
    for subset in sets:
        expected = 1500 / comb(4, len(subset))
        assert abs(times[subset] - expected) < 5 * expected**0.5


def test_ratings_join_the_context_independently_at_the_given_rate() -> None:
    times = subsets_of_four((0.5, 0.5))
    assert len(times) == 16
    for count in times.values():
        assert abs(count - 375) < 5 * 375**0.5


def test_context_rates_lie_in_their_range() -> None:
    """20 000 ratings a row: the share of context shows the row's rate."""
    offsets, columns, levels = ragged([20_000] * 30, 20_000, 2)
    sampler = RowSampler(offsets, columns, levels, n_columns=20_000, n_levels=2, rate=(0.5, 0.9))
    shares = sampler.sample(np.arange(30), seed=0, step=0).context_sizes / 20_000
    assert shares.min() > 0.48
    assert shares.max() < 0.92
    assert shares.std() > 0.05


def test_small_contexts_have_sizes_even_in_their_logarithm() -> None:
    """log(size + 1) lies as often in one stretch as in another of the same length."""
    offsets, columns, levels = ragged([63] * 4000, 64, 5)
    how: dict[str, Any] = {"n_columns": 64, "n_levels": 5, "rate": (0.5, 0.5), "threads": 2}
    rows = np.arange(4000)
    counts = (
        RowSampler(offsets, columns, levels, **how, small=0.999)
        .sample(rows, seed=0, step=0)
        .context_sizes
    )
    assert counts.min() == 0
    assert 55 < counts.max() < 63
    lower = [(counts < end).mean() for end in (1, 3, 7, 15, 31)]  # log2 of size + 1: 1, 2, 3, 4, 5
    np.testing.assert_allclose(lower, np.arange(1, 6) * np.log(2) / np.log(63), atol=0.03)
    half = RowSampler(offsets, columns, levels, **(how | {"rate": (0, 1)}), small=0.5).sample(
        rows, seed=0, step=0
    )
    small, free = np.log(16) / np.log(63), 15 / 64  # of rates in 0..1 all sizes come equally often
    assert (half.context_sizes < 15).mean() == pytest.approx(0.5 * (small + free), abs=0.03)
    assert (half.context_sizes > 47).mean() == pytest.approx(
        0.5 * (1 - np.log(49) / np.log(63) + 1 / 4), abs=0.03
    )
    for row in range(5):  # the context holds as many ratings as was drawn
        assert (half.context.rows == row).sum() == half.context_sizes[row]
    plain = RowSampler(offsets, columns, levels, **how).sample(rows, seed=0, step=0)
    none = RowSampler(offsets, columns, levels, **how, small=0.0).sample(rows, seed=0, step=0)
    assert same(plain, none)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": np.array([0, 2], np.int32)}, "offsets has dtype int32"),
        ({"offsets": np.array([0, 3])}, "offsets must rise from 0"),
        ({"columns": np.array([0, 1])}, "columns has dtype int64"),
        ({"columns": np.array([0, 9], np.int32)}, r"columns\[1\] \(=9\) must lie in 0..3"),
        ({"levels": np.array([0, 2], np.uint8)}, r"levels\[1\] \(=2\) must lie in 0..1"),
        ({"levels": np.array([0], np.uint8)}, "offsets must rise from 0"),
        ({"rate": (0.9, 0.1)}, r"rate \(=\(0.9, 0.1\)\) must be two rising numbers"),
        ({"weights": "none"}, r"weights \(='none'\) must be 'paper' or 'unit'"),
    ],
)
def test_bad_data_is_refused(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "offsets": np.array([0, 2]),
        "columns": np.array([0, 1], np.int32),
        "levels": np.array([0, 1], np.uint8),
        "n_columns": 4,
        "n_levels": 2,
    }
    RowSampler(**good)
    with pytest.raises(ModelError, match=message):
        RowSampler(**(good | changes))


def test_a_row_that_is_not_there_is_refused() -> None:
    offsets, columns, levels = ragged([3], 4, 2)
    sampler = RowSampler(offsets, columns, levels, n_columns=4, n_levels=2)
    with pytest.raises(ModelError, match=r"rows\[0\] \(=1\) must lie in 0..0"):
        sampler.sample(np.array([1]), seed=0, step=0)
