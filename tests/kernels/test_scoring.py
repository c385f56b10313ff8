"""Kernels for one row against numpy, for widths with and without a rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings

Array = npt.NDArray[Any]
WIDTHS = [1, 15, 16, 17, 50, 64, 100, 133]


def table(width: int, dtype: str, *, M: int = 9, K: int = 4) -> Array:
    return np.random.default_rng(width).normal(size=(M, K, width)).astype(dtype)


def tolerance(dtype: str) -> float:
    return 2e-5 if dtype == "float32" else 1e-12


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_ratings_add_their_vectors(width: int, shared: bool) -> None:
    vectors = table(width, "float32")
    columns, levels = np.array([3, 0, 8, 3], np.int32), np.array([1, 3, 0, 2], np.uint8)
    own = scoring.embed(columns, levels, vectors, shared=shared)
    for p, (m, k) in enumerate(zip(columns, levels, strict=True)):
        expected = vectors[m, : k + 1].sum(0) if shared else vectors[m, k]
        np.testing.assert_allclose(own[p], expected, rtol=1e-6, atol=1e-6)
    rows = np.array([0, 0, 0, 2], np.int32)  # and nothing of row 1
    ratings = RowRatings(np.array([0, 3, 3, 4]), rows, columns, levels)
    sums = scoring.sum_ratings(ratings, vectors, shared=shared)
    expected = np.stack([own[:3].sum(0), 0 * own[0], own[3]])
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_dense_layer_is_a_matrix_product(width: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows, weights, bias = (
        rng.normal(size=shape).astype(dtype) for shape in ((5, width), (7, width), (7,))
    )
    got = scoring.affine(rows, weights, bias)
    assert got.dtype == dtype
    np.testing.assert_allclose(
        got, rows @ weights.T + bias, rtol=tolerance(dtype), atol=tolerance(dtype)
    )
    assert scoring.affine(rows[:0], weights, bias).shape == (0, 7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_scores_are_products_cumulated_if_shared(width: int, shared: bool, dtype: str) -> None:
    vectors = table(width, dtype)
    rng = np.random.default_rng(2)
    bias = rng.normal(size=(9, 4)).astype(dtype)
    states = rng.normal(size=(3, width)).astype(dtype)
    plain = np.einsum("bd,mkd->bmk", states, vectors) + bias  # (3, 9, 4)
    expected = plain.cumsum(2) if shared else plain
    for b, state in enumerate(states):
        got = scoring.score_all(state, vectors, bias, shared=shared)
        np.testing.assert_allclose(got.T, expected[b], rtol=tolerance(dtype), atol=tolerance(dtype))
    which, columns = np.array([2, 0, 1, 2]), np.array([8, 8, 0, 3], np.int32)
    cells = scoring.score_cells(states, which, columns, vectors, bias, shared=shared)
    np.testing.assert_allclose(
        cells, expected[which, columns], rtol=tolerance(dtype), atol=tolerance(dtype)
    )


def test_a_cell_has_the_bits_that_it_has_in_its_line() -> None:
    vectors = table(50, "float32", M=40)
    rng = np.random.default_rng(3)
    bias, state = rng.normal(size=(40, 4)).astype("f"), rng.normal(size=50).astype("f")
    line = scoring.score_all(state, vectors, bias, shared=True)
    columns = np.array([39, 0, 7])
    cells = scoring.score_cells(state[None], np.zeros(3, int), columns, vectors, bias, shared=True)
    assert np.array_equal(cells, line.T[columns])
