"""The start of the ridge part: compared with closed forms, and with exact answers on tiny data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfnade.components.variational_bayes import fit_factor_analysis
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.kernels.factor_analysis import expectation_step, maximization_step
from cfnade.kernels.posterior import lower_products


def ratings_of(cells: Any, levels: Any, shape: tuple[int, int], K: int) -> Dataset:
    return Ratings(
        users=cells[:, 0].astype(np.int32),
        items=cells[:, 1].astype(np.int32),
        levels=levels.astype(np.uint8),
        scale=Scale(tuple(float(k) for k in range(K))),
        user_ids=np.arange(shape[0]),
        item_ids=np.arange(shape[1]),
    )


def dense(N: int, M: int, *, seed: int = 0) -> tuple[CsrRows, Any]:
    """A full table of many levels with two directions in it: rounding hardly matters."""
    rng = np.random.default_rng(seed)
    loadings = np.stack([14.0 + 5.0 * rng.normal(size=M), 10.0 * rng.normal(size=M)], 1)
    values = 100 + rng.normal(size=(N, 2)) @ loadings.T + 6.0 * rng.normal(size=(N, M))
    levels = np.clip(values.round(), 0, 199)
    cells = np.argwhere(np.ones((N, M), bool))
    return ratings_of(cells, levels.ravel(), (N, M), 200).rows("user"), levels


def test_on_a_full_table_it_finds_what_principal_components_say() -> None:
    """Probabilistic PCA has its maximum in closed form (Tipping and Bishop, 1999)."""
    N, M = 4000, 12
    rows, table = dense(N, M)
    found = fit_factor_analysis(
        rows, 2, seed=0, threads=1, sweeps=1500
    )  # where noise is small, steps are
    centred = table - table.mean(0)
    sizes, vectors = np.linalg.eigh(centred.T @ centred / N)
    noise = sizes[:-2].mean()
    expected = (vectors[:, -2:] * (sizes[-2:] - noise)) @ vectors[:, -2:].T  # A Aᵀ
    assert found.noise == pytest.approx(noise, rel=0.03)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found.a @ found.a.T, expected, atol=0.04 * size)
    np.testing.assert_allclose(found.mean, table.mean(0), atol=0.02 * table.std())


def test_noise_is_found_where_columns_have_few_ratings() -> None:
    """What is unsure of two loadings from eight ratings counts: taken for certain, they would seem
    to leave much less noise."""
    N, M, each = 80, 400, 8
    rng = np.random.default_rng(0)
    loadings = np.stack([14.0 + 5.0 * rng.normal(size=M), 10.0 * rng.normal(size=M)], 1)
    values = 100 + rng.normal(size=(N, 2)) @ loadings.T + 6.0 * rng.normal(size=(N, M))
    rated = rng.random((N, M)).argsort(0) < each
    levels = np.clip(values.round(), 0, 199)[rated]
    rows = ratings_of(np.argwhere(rated), levels, (N, M), 200).rows("user")
    assert fit_factor_analysis(rows, 2, seed=0, threads=1).noise == pytest.approx(6.0**2, rel=0.12)


def test_dimensions_that_nothing_needs_are_switched_off() -> None:
    rows, _ = dense(1500, 10)
    found = fit_factor_analysis(rows, 6, seed=0, threads=1, sweeps=60)
    shares = np.sort(found.importance)[::-1] / found.importance.sum()
    assert shares[:2].sum() > 0.98
    assert shares[2:].max() < 0.01


def test_dimensions_are_turned_to_be_uncorrelated() -> None:
    rows, _ = dense(300, 8)
    found = fit_factor_analysis(rows, 3, seed=0, threads=1, sweeps=5)
    moments = found.a.T @ found.a / len(found.a)
    np.testing.assert_allclose(moments, np.diag(found.importance), atol=1e-3 * moments.max())


def sparse(seed: int = 1) -> tuple[CsrRows, Any, Any]:
    rng = np.random.default_rng(seed)
    cells = np.argwhere(rng.random((7, 5)) < 0.5)
    cells = cells[cells[:, 0] != 2]  # a row without ratings
    levels = rng.integers(0, 4, len(cells))
    return ratings_of(cells, levels, (7, 5), 4).rows("user"), cells, levels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_expectation_step_adds_up_exact_posteriors(dtype: Any) -> None:
    rows, cells, levels = sparse()
    rng = np.random.default_rng(3)
    a, c = rng.normal(size=(5, 3)).astype(dtype), rng.random((5, 3)).astype(dtype)
    residuals = (levels - 1.5).astype(dtype)
    lower = np.empty((5, 6), dtype)
    lower_products(a, c, lower)
    sums = tuple(np.zeros(shape, dtype) for shape in ((5, 6), (5, 3), (5, 3)))
    ragged = np.array(rows.offsets), np.array(rows.columns)
    for lo, hi in ((0, 4), (4, 7)):
        expectation_step(lo, hi, ragged, residuals, (a, lower), sums)
    squares, products, firsts = np.zeros((5, 3, 3)), np.zeros((5, 3)), np.zeros((5, 3))
    for row in range(7):
        mine = cells[:, 0] == row
        columns, own = cells[mine, 1], a[cells[mine, 1]].astype(np.float64)
        precision = np.eye(3) + own.T @ own + np.diag(c[columns].sum(0))
        mean = np.linalg.solve(precision, own.T @ residuals[mine])
        for column, residual in zip(columns, residuals[mine], strict=True):
            squares[column] += np.outer(mean, mean) + np.linalg.inv(precision)
            products[column] += residual * mean
            firsts[column] += mean
    i, j = np.tril_indices(3)
    for found, expected in zip(sums, (squares[:, i, j], products, firsts), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_maximisation_step_is_a_ridge_regression_of_each_column() -> None:
    rng = np.random.default_rng(4)
    half = rng.normal(size=(6, 9, 3))
    squares = half.transpose(0, 2, 1) @ half
    products, precision, centre = rng.normal(size=(6, 3)), rng.random(3) + 0.1, rng.normal(size=3)
    i, j = np.tril_indices(3)
    a, c = np.empty((6, 3)), np.empty((6, 3))
    maximization_step(0, 6, (squares[:, i, j], products, products), precision, centre, (a, c))
    for column in range(6):
        whole = squares[column] + np.diag(precision)
        expected = np.linalg.solve(whole, products[column] + precision * centre)
        np.testing.assert_allclose(a[column], expected, rtol=1e-8)
        np.testing.assert_allclose(c[column], np.diag(np.linalg.inv(whole)), rtol=1e-8)


@pytest.mark.parametrize("D", [1, 4])
def test_threads_change_rounding_alone_and_odd_tables_are_no_trouble(D: int) -> None:
    rows, _, _ = sparse()
    one, two = (
        fit_factor_analysis(rows, D, seed=0, threads=threads, sweeps=6) for threads in (1, 2)
    )
    np.testing.assert_allclose(one.a @ one.a.T, two.a @ two.a.T, atol=1e-4)
    assert np.isfinite(one.a).all()
    assert one.noise > 0


def test_equal_ratings_leave_nothing_to_learn() -> None:
    """Every rating the same: no loadings to speak of, and nothing that is not a number."""
    _, cells, levels = sparse()
    same = ratings_of(cells, 0 * levels + 2, (7, 5), 4).rows("user")
    found = fit_factor_analysis(same, 3, seed=0, threads=1)
    np.testing.assert_allclose(found.mean, 2.0, atol=0.01)
    assert np.isfinite(found.a).all()
    assert np.abs(found.a).max() < 0.2


def test_of_much_data_the_first_sweeps_see_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the last ones all: what is found is nearly the same."""
    rows, table = dense(2000, 10)
    whole = fit_factor_analysis(rows, 2, seed=0, threads=1, sweeps=90)
    monkeypatch.setattr("cfnade.components.variational_bayes.ENOUGH", 5000)
    found = fit_factor_analysis(rows, 2, seed=0, threads=1, sweeps=90)
    assert found.noise == pytest.approx(whole.noise, rel=0.01)
    size = np.abs(whole.a @ whole.a.T).max()
    np.testing.assert_allclose(found.a @ found.a.T, whole.a @ whole.a.T, atol=0.05 * size)
    np.testing.assert_allclose(found.mean, table.mean(0), atol=0.02 * table.std())
