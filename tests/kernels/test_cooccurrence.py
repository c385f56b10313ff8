"""How often items are picked together, against XᵀX by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.test_ragged_sums import dense, some_rows

from cfnade.kernels.cooccurrence import co_picks, largest_co_picks, neighbour_systems
from cfnade.kernels.memory import Array

M = 17


def picks(seed: int, *, weighed: bool) -> tuple[Array, Array, Array]:
    """Of 40 people, few enough that some items meet nobody; nobody picks the last item."""
    rng = np.random.default_rng(seed)
    offsets, columns, weights = some_rows(rng, 40, 6)
    columns = (columns + rng.integers(0, M - 7, 40).repeat(np.diff(offsets))).astype(np.int32)
    return offsets, columns, weights if weighed else np.ones_like(weights)


def exact(data: tuple[Array, Array, Array]) -> Array:
    X = dense(*data, M)
    return np.asarray(X.T @ X)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_counts_are_a_matrix_product(threads: int, weighed: bool) -> None:
    data = picks(0, weighed=weighed)
    found = co_picks(*data, M, threads=threads)
    np.testing.assert_allclose(found, exact(data), rtol=1e-5, atol=1e-6)
    assert not found[-1].any()
    assert (exact(data) == 0).any()


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("most", [1, 3, M - 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_largest_counts_are_those_that_sorting_gives(
    most: int, weighed: bool, threads: int
) -> None:
    data = picks(1, weighed=weighed)
    columns, values = largest_co_picks(*data, M, most=most, threads=threads)
    counts = co_picks(*data, M)
    for i in range(M):
        others = [j for j in np.flatnonzero(counts[i]) if j != i]
        best = sorted(others, key=lambda j: (-counts[i, j], j))[:most]
        wanted = sorted({int(j) for j in best} | ({i} if counts[i, i] else set()))
        kept = columns[i][columns[i] >= 0]
        assert kept.tolist() == wanted
        np.testing.assert_array_equal(values[i, : len(kept)], counts[i, kept])
        assert (columns[i, len(kept) :] == -1).all()


@pytest.mark.parametrize("n", [2, 5, M - 1])
def test_systems_of_all_counts_are_parts_of_the_matrix(n: int) -> None:
    data = picks(2, weighed=True)
    found = largest_co_picks(*data, M, most=M - 1)
    counts, items = co_picks(*data, M), np.array([3, 0, M - 1, 8])
    of, grams, targets = neighbour_systems(items, *found, n, 2.5)
    for row, item in enumerate(items):
        others = [j for j in np.flatnonzero(counts[item]) if j != item]
        best = sorted(sorted(others, key=lambda j: (-counts[item, j], j))[:n])
        assert of[row].tolist() == best + [-1] * (n - len(best))
        expected = np.eye(n)
        inside = np.ix_(best, best)
        expected[: len(best), : len(best)] = counts[inside] + 2.5 * np.eye(len(best))
        np.testing.assert_allclose(grams[row], expected, rtol=1e-6)
        np.testing.assert_allclose(targets[row, : len(best)], counts[item, best])
        assert not targets[row, len(best) :].any()


def test_a_count_that_one_of_two_items_kept_holds_for_both() -> None:
    """Item 1 did not keep its count with 2, but 2 did."""
    columns = np.array([[0, 1, 2], [0, 1, -1], [1, 2, -1]], np.int32)
    values = np.array([[4, 3, 1], [3, 5, 0], [2, 3, 0]], np.float32)
    of, grams, targets = neighbour_systems(np.array([0]), columns, values, 2, 0.5)
    np.testing.assert_array_equal(of, [[1, 2]])
    np.testing.assert_array_equal(grams[0], [[5.5, 2], [2, 3.5]])
    np.testing.assert_array_equal(targets, [[3, 1]])
