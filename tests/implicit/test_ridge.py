"""EASE, the spectral filter and local ridge against closed forms in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.implicit.cases import M, fit, matrix, some_rows

from cfnade.implicit import ease
from cfnade.implicit.filter import leading
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import ridge_weights

FLAT = {"item_power": 0.0, "user_power": 0.0}
POWERS = {"item_power": 0.5, "user_power": 0.5}


def closed_form(rows: InteractionRows, penalty: float, powers: dict[str, float]) -> Any:
    """Return P = (Xᵀ diag(w) X + λ diag(d))⁻¹ of binary interactions."""
    X = (matrix(rows) > 0).astype(float)
    users = np.maximum(X.sum(1), 1) ** -powers["user_power"]
    items = np.maximum(X.sum(0), 1) ** powers["item_power"]
    users *= X.sum() / (users * X.sum(1)).sum()
    items *= X.sum() / (items * X.sum(0)).sum()
    return np.linalg.inv((X.T * users) @ X + penalty * np.diag(items))


def unknown(rows: InteractionRows) -> Any:
    """Return where a user lacks an item, and both have interactions."""
    X = matrix(rows)
    return (X == 0) & (X.sum(1, keepdims=True) > 0) & (X.sum(0) > 0)


@pytest.mark.parametrize("powers", [FLAT, POWERS])
@pytest.mark.parametrize("by_users", [False, True])
@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_ease_is_its_closed_form(
    powers: dict[str, float], by_users: bool, theta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both routes, up to a factor that is the same for all items."""
    rows = some_rows(8 if by_users else 30)
    if by_users:
        monkeypatch.setattr(ease, "DENSE_ITEMS", 0)
    component = fit("ease", rows, {"penalty": 4.0} | powers, theta)
    assert bool(component.config.rank) == by_users
    P = closed_form(rows, 4.0, powers)
    X = (matrix(rows) > 0).astype(float)
    expected = -(X @ P) / np.diag(P) ** theta
    found, where = component.scores(rows), unknown(rows)
    ratio = found[where] / expected[where]
    np.testing.assert_allclose(ratio, np.median(ratio), rtol=2e-3)
    assert np.median(ratio) > 0


def test_plain_ease_is_each_items_regression_on_all_others() -> None:
    rows = some_rows()
    X = matrix(rows)
    B = np.zeros((M, M))
    for i in range(M):
        others = [j for j in range(M) if j != i]
        A = X[:, others]
        B[others, i] = np.linalg.solve(A.T @ A + 2.0 * np.eye(M - 1), A.T @ X[:, i])
    component = fit("ease", rows, {"penalty": 2.0} | FLAT, 1.0)
    scale = np.median(component.arrays["B"][B != 0] / B[B != 0])
    np.testing.assert_allclose(component.arrays["B"], scale * B, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weighting", ["binary", "log", "linear"])
def test_counts_are_weighed_as_asked(weighting: str) -> None:
    rows = some_rows(weighted=True)
    X = matrix(rows)
    known = X > 0
    counts = {"binary": known * 1.0, "log": np.log1p(X), "linear": X}[weighting]
    weights = counts / counts[known].mean()
    P = np.linalg.inv(weights.T @ weights + 3.0 * np.eye(M))
    component = fit("ease", rows, {"penalty": 3.0, "weighting": weighting} | FLAT, 0.0)
    expected = -(weights @ P)[~known]
    np.testing.assert_allclose(component.scores(rows)[~known], expected, rtol=1e-3, atol=1e-4)


def test_weights_of_users_and_items_are_1_on_average_over_interactions() -> None:
    rows = some_rows()
    users, items = ridge_weights(rows, 0.5, 0.25)
    assert users[rows.rows].mean() == pytest.approx(1.0)
    assert items[rows.columns].mean() == pytest.approx(1.0)
    ratio = users[0] / users[1]
    assert ratio == pytest.approx((rows.counts[0] / rows.counts[1]) ** -0.5)


@pytest.mark.parametrize("users", [200, 40])
def test_the_power_iteration_finds_the_leading_eigenpairs(users: int) -> None:
    rows = some_rows(users, columns=90)
    X = matrix(rows)
    values, vectors = np.linalg.eigh(X.T @ X)
    found = leading(rows, 0)
    k = len(found.values)
    assert k == min(users, 90) // 3
    np.testing.assert_allclose(found.values, values[::-1][:k], rtol=1e-3)
    for place in range(5):  # the gaps between these are wide
        assert abs(found.vectors[:, place] @ vectors[:, -1 - place]) == pytest.approx(1, abs=1e-2)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-3)


def test_a_filter_is_the_ridge_on_its_directions() -> None:
    rows = some_rows(60, columns=30)
    component = fit("filter", rows, {"penalty": 5.0, "rank": 4} | FLAT, 0.0)
    X = matrix(rows)
    values, vectors = np.linalg.eigh(X.T @ X)
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    expected = X @ (vectors * values / (values + 5.0)) @ vectors.T
    np.testing.assert_allclose(component.scores(rows), expected, rtol=1e-3, atol=1e-3)


def test_local_ridge_with_all_neighbors_is_plain_ease() -> None:
    rows = some_rows(60)
    X = matrix(rows)
    assert (X.T @ X > 0).all()
    P = closed_form(rows, 2.0, POWERS)
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0.0)
    for neighbors in (M - 1, M + 5):
        component = fit("local", rows, {"penalty": 2.0, "neighbors": neighbors} | POWERS, 0.0)
        np.testing.assert_allclose(component.scores(rows), X @ B, rtol=1e-3, atol=1e-4)


def test_local_ridge_is_each_items_regression_on_its_nearest() -> None:
    rows = some_rows(60)
    X = matrix(rows)
    gram = X.T @ X
    B = np.zeros((M, M))
    for i in range(M):
        cosine = gram[i] / np.sqrt(np.diag(gram))
        cosine[i] = -1
        near = np.sort(np.argsort(-cosine, kind="stable")[:3])
        A = gram[np.ix_(near, near)] + 2.0 * np.eye(3)
        B[near, i] = np.linalg.solve(A, gram[near, i])
    component = fit("local", rows, {"penalty": 2.0, "neighbors": 3} | FLAT, 0.0)
    np.testing.assert_allclose(component.scores(rows), X @ B, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["ease", "filter", "local"])
def test_an_item_without_interactions_scores_nothing(name: str) -> None:
    rows = some_rows()
    rows = rows.where(rows.columns != 4)
    options: dict[str, Any] = {"penalty": 2.0} | POWERS
    options |= {"rank": 3} if name == "filter" else {}
    options |= {"neighbors": 3} if name == "local" else {}
    np.testing.assert_allclose(fit(name, rows, options).scores(rows)[:, 4], 0.0, atol=1e-6)
