"""Implicit ALS: solves that minimize the documented objective, sweeps that never raise it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.implicit.cases import M, fit, matrix, some_rows
from torch import Tensor

from cfnade.implicit import ials
from cfnade.implicit.ials import ImplicitALSConfig, rotate, solve
from cfnade.implicit.rows import InteractionRows
from cfnade.kernels import sparse
from cfnade.kernels.sparse import solve_ridge_rows
from cfnade.kernels.threads import torch_threads

CONFIG = ImplicitALSConfig(columns=M, factors=4, alpha=0.3, penalty=0.2, mean_count=4.0)


def cost_of_user(x: Tensor, weights: Tensor, F: Tensor, config: ImplicitALSConfig) -> Tensor:
    """What a user's vector minimizes, item by item; weights (M,) are 0 where nothing is known."""
    total = x.new_zeros(())
    for i in range(len(F)):
        score = x @ F[i]
        total = total + config.alpha * score**2
        if weights[i] > 0:
            total = total + weights[i] * (1 - score) ** 2
    size = (weights.sum() + config.alpha * M) / (config.mean_count + config.alpha * M)
    return total + config.penalty * size * (x @ x)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_solve_minimizes_the_objective(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "MIN_PARALLEL_ENTRIES", 1)  # else one thread
    rows = some_rows(weighted=True)
    others = rotate(np.random.default_rng(1).standard_normal((M, 4)).astype(np.float32))
    F = torch.from_numpy(others.vectors)
    with torch_threads(threads):
        found = solve(rows, others, CONFIG)
    weights = torch.from_numpy(matrix(rows))
    for row, own in zip(found, weights, strict=True):
        x = torch.from_numpy(row).double().requires_grad_()
        cost_of_user(x, own, F.double(), CONFIG).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert float(x.grad.abs().max()) < 1e-3
    assert not found[2].any()  # a user without interactions


def test_rotated_vectors_have_the_same_products() -> None:
    F = np.random.default_rng(1).standard_normal((M, 4)).astype(np.float32)
    vectors, lengths = rotate(F)
    np.testing.assert_allclose(vectors @ vectors.T, F @ F.T, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.diag(lengths), atol=1e-4)


@pytest.mark.parametrize("entries", [3, 40, 700])
def test_ill_conditioned_systems_are_solved(entries: int) -> None:
    """Weights up to a thousand, a weak base, similar vectors."""
    rng = np.random.default_rng(entries)
    table = (rng.standard_normal((60, 12)) @ np.diag(np.logspace(0, -2, 12))).astype(np.float32)
    columns = rng.integers(0, 60, entries).astype(np.int32)
    weights = rng.choice([0.01, 1.0, 1000.0], entries).astype(np.float32)
    base = 0.01 * np.square(table).sum(0).astype(np.float64)
    x = solve_ridge_rows(np.array([0, entries]), columns, weights, table, base, np.array([0.05]))[0]
    f = table[columns].astype(float)
    A, b = np.diag(base + 0.05) + (f.T * weights) @ f, f.T @ weights
    assert np.linalg.norm(A @ x - b) < 2e-4 * np.linalg.norm(b)
    np.testing.assert_allclose(table @ x, table @ np.linalg.solve(A, b), atol=5e-3)


def objective(rows: InteractionRows, component: object, config: ImplicitALSConfig) -> float:
    """The sum over users and items, with every user's best vector."""
    F = component.arrays["F"].astype(np.float64)  # type: ignore[attr-defined]
    others = rotate(F.astype(np.float32))
    X, G = solve(rows, others, config).astype(np.float64), others.vectors.astype(np.float64)
    W, a = matrix(rows), config.alpha
    scores = X @ G.T
    fitted = (W * (1 - scores) ** 2).sum() + a * np.square(scores).sum()
    users = (W.sum(1) + a * M) * np.square(X).sum(1)
    items = (W.sum(0) + a * len(X)) * np.square(G).sum(1)
    return float(fitted + config.ridge * (users.sum() + items.sum()))


def test_more_sweeps_lower_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, found = some_rows(), []
    for sweeps in (1, 2, 4, 8):
        monkeypatch.setattr(ials, "SWEEPS", sweeps)
        component = fit("ials", rows, {"penalty": 1.0, "alpha": 0.3, "factors": 4})
        found.append(objective(rows, component, component.config))
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.99 * found[0]


def test_scores_solve_the_normal_equations() -> None:
    rows = some_rows()
    component = fit("ials", rows, {"penalty": 3.0, "alpha": 0.3, "factors": 4})
    config, F = component.config, component.arrays["F"].astype(np.float64)
    for row, scores in zip(matrix(rows), component.scores(rows), strict=True):
        A = config.alpha * F.T @ F + (F.T * row) @ F
        A += config.ridge * (row.sum() + config.alpha * M) * np.eye(4)
        np.testing.assert_allclose(scores, F @ np.linalg.solve(A, F.T @ row), atol=1e-4)


def test_the_same_bits_come_wherever_arrays_lie() -> None:
    rng, (n, items, D, k) = np.random.default_rng(0), (300, 120, 16, 12)
    columns = np.concatenate([rng.choice(items, k, replace=False) for _ in range(n)])
    table = rng.standard_normal((items, D)).astype(np.float32) * np.float32(0.1)
    data = np.arange(n + 1) * k, columns.astype(np.int32), np.ones(n * k, np.float32), table
    base, ridges = rng.random(D) + 0.1, np.full(n, 0.2)
    found = {solve_ridge_rows(*data, base.copy(), ridges.copy()).tobytes() for _ in range(40)}
    assert len(found) == 1
