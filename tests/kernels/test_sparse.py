"""Sparse rows: sums of table rows and co-occurrence, against matrix products."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cfnade.kernels import sparse
from cfnade.kernels.buffers import Array
from cfnade.kernels.sparse import add_entries, add_rows, cooccurrence, sum_rows, transposed


def some_rows(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Ragged rows, some of them empty, with weights."""
    counts = rng.integers(0, columns, rows)
    counts[[0, rows // 2, -1]] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    named = [rng.choice(columns, count, replace=False) for count in counts]
    weights = rng.uniform(0.1, 3, offsets[-1]).astype(np.float32)
    return offsets, np.concatenate(named).astype(np.int32), weights


def dense(offsets: Array, columns: Array, weights: Array, n_columns: int) -> Array:
    """The same as a matrix."""
    out = np.zeros((len(offsets) - 1, n_columns))
    out[np.repeat(np.arange(len(out)), np.diff(offsets)), columns] = weights
    return out


@pytest.mark.parametrize("few", [0, 10_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 4, 16, 17, 64, 70, 500])
def test_sums_are_a_matrix_product(
    width: int, threads: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "MIN_PARALLEL_ENTRIES", few)
    rng = np.random.default_rng(width)
    data = some_rows(rng, 40, 30)
    table = rng.standard_normal((30, width)).astype(np.float32)
    found = sum_rows(*data, table, threads=threads)
    assert found.dtype == np.float32
    expected = dense(*data, 30) @ table.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert not found[[0, 20, -1]].any()
    out = np.full_like(found, 3.0)  # what was there stays
    add_rows(*data, table, out, threads=threads)
    np.testing.assert_allclose(out - 3, expected, rtol=1e-5, atol=1e-4)


def test_copied_strips_have_the_bits_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    data = some_rows(rng, 40, 30)
    table = rng.standard_normal((30, 200)).astype(np.float32)
    copied = sum_rows(*data, table, threads=1)
    monkeypatch.setattr(sparse, "_MIN_ENTRIES_PER_ROW", len(data[1]))
    np.testing.assert_array_equal(copied, sum_rows(*data, table, threads=1))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_sparse_table_gives_what_the_same_dense_one_does(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "MIN_PARALLEL_ENTRIES", 0)
    rng = np.random.default_rng(1)
    data, table = some_rows(rng, 40, 30), some_rows(rng, 30, 30)
    found = add_entries(*data, *table, threads=threads)
    expected = dense(*data, 30) @ dense(*table, 30)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_shares_are_all_rows_once(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "MIN_PARALLEL_ENTRIES", 0)
    for counts in ([100, 0, 0], [0, 0, 100], [1, 1, 1, 1, 1, 1, 1, 1], [50, 1, 0, 1, 50]):
        offsets = np.concatenate([[0], np.cumsum(counts)])
        shares = sparse.shares_of_rows(offsets, threads)
        rows = [row for lo, hi in shares for row in range(lo, hi)]
        assert rows == list(range(len(counts)))


def test_transposed_is_the_transposed() -> None:
    rng = np.random.default_rng(2)
    offsets, columns, weights = some_rows(rng, 20, 12)
    rows = np.repeat(np.arange(20, dtype=np.int32), np.diff(offsets))
    turned = transposed(rows, columns, weights, 13)  # nobody names the last column
    np.testing.assert_array_equal(dense(*turned, 20).T, dense(offsets, columns, weights, 13))
    starts, people, _ = turned
    for lo, hi in pairwise(starts):
        assert np.all(np.diff(people[lo:hi]) > 0)  # in the order in which they came


def test_of_nobody_there_is_nothing() -> None:
    none = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    assert sum_rows(*none, np.ones((3, 2), np.float32)).shape == (0, 2)
    starts, rows, weights = transposed(none[1], none[1], none[2], 4)
    assert starts.tolist() == [0] * 5
    assert len(rows) == len(weights) == 0


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_cooccurrence_is_a_matrix_product(threads: int, weighed: bool) -> None:
    """Some of 17 items never occur together, and the last one never occurs."""
    rng = np.random.default_rng(0)
    offsets, columns, weights = some_rows(rng, 40, 6)
    columns = (columns + rng.integers(0, 10, 40).repeat(np.diff(offsets))).astype(np.int32)
    data = offsets, columns, weights if weighed else np.ones_like(weights)
    X = dense(*data, 17)
    found = cooccurrence(*data, 17, threads=threads)
    np.testing.assert_allclose(found, X.T @ X, rtol=1e-5, atol=1e-6)
    assert not found[-1].any()
    assert (X.T @ X == 0).any()
