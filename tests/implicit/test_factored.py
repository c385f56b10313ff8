"""The factored path: solves that minimise what is written, turns that never make it worse."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.choice.given import M, matrix, some_picks
from torch import Tensor

from cfnade.choice.factored import Posterior, PosteriorConfig, solve, turned
from cfnade.choice.picks import Picks
from cfnade.kernels import ragged_sums
from cfnade.kernels.conjugate import solve_rows
from cfnade.kernels.threads import torch_threads

CONFIG = PosteriorConfig(columns=M, factors=4, unpicked=0.3, penalty=0.05)


def of_person(x: Tensor, weights: Tensor, F: Tensor, config: PosteriorConfig) -> Tensor:
    """What a person's vector minimises, item by item; weights (M,) are 0 where nothing is."""
    total = x.new_zeros(())
    for i in range(len(F)):
        score = x @ F[i]
        total = total + config.unpicked * score**2
        if weights[i] > 0:
            total = total + weights[i] * (1 - score) ** 2
    return total + config.penalty * (weights.sum() + config.unpicked * len(F)) * (x @ x)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_solve_minimises_what_is_written(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged_sums, "FEW", 1)  # so few entries would be one thread's work
    picks = some_picks(weighed=True)
    others = turned(np.random.default_rng(1).standard_normal((M, 4)).astype(np.float32))
    F = torch.from_numpy(others.F)
    with torch_threads(threads):
        found = solve(picks, others, CONFIG)
    weights = torch.from_numpy(matrix(picks))
    for row, own in zip(found, weights, strict=True):
        x = torch.from_numpy(row).double().requires_grad_()
        of_person(x, own, F.double(), CONFIG).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert float(x.grad.abs().max()) < 1e-4
    assert not found[2].any()  # who picked nothing


def test_turned_vectors_have_the_same_products() -> None:
    F = np.random.default_rng(1).standard_normal((M, 4)).astype(np.float32)
    others = turned(F)
    np.testing.assert_allclose(others.F @ others.F.T, F @ F.T, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(others.F.T @ others.F, np.diag(others.lengths), atol=1e-4)


@pytest.mark.parametrize("entries", [3, 40, 700])
def test_hard_systems_are_solved_too(entries: int) -> None:
    """Weights up to a thousand, a weak base, alike vectors: far from a well-behaved table."""
    rng = np.random.default_rng(entries)
    table = rng.standard_normal((60, 12)) @ np.diag(np.logspace(0, -2, 12))
    table = table.astype(np.float32)
    columns = rng.integers(0, 60, entries).astype(np.int32)
    weights = rng.choice([0.01, 1.0, 1000.0], entries).astype(np.float32)
    base = 0.01 * np.square(table).sum(0).astype(np.float64)
    x = solve_rows(np.array([0, entries]), columns, weights, table, base, np.array([0.05]))[0]
    f = table[columns].astype(float)
    A = np.diag(base + 0.05) + (f.T * weights) @ f
    b = f.T @ weights
    assert np.linalg.norm(A @ x - b) < 2e-4 * np.linalg.norm(b)
    best = np.linalg.solve(A, b)
    np.testing.assert_allclose(table @ x, table @ best, atol=5e-3)


def objective(picks: Picks, side: Posterior) -> float:
    """The sum over people and items, with everybody's best vector."""
    others = turned(side.tables()["F"])
    X, F = (part.astype(np.float64) for part in (solve(picks, others, CONFIG), others.F))
    W = matrix(picks)
    scores, a = X @ F.T, CONFIG.unpicked
    picked = (W * (1 - scores) ** 2).sum() + a * np.square(scores).sum()
    rows = (W.sum(1) + a * M) * np.square(X).sum(1)
    columns = (W.sum(0) + a * len(X)) * np.square(F).sum(1)
    return float(picked + CONFIG.penalty * (rows.sum() + columns.sum()))


def test_more_turns_never_make_it_worse() -> None:
    picks = some_picks(weighed=True)
    found = [
        objective(picks, Posterior.fit(picks, CONFIG, sweeps=sweeps, people=99, seed=3))
        for sweeps in range(6)
    ]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(found))
    assert found[-1] < 0.95 * found[0]


def test_some_people_suffice_where_so_many_are_asked_for() -> None:
    picks = some_picks()
    few = Posterior.fit(picks, CONFIG, sweeps=2, people=5, seed=0)
    all_of_them = Posterior.fit(picks, CONFIG, sweeps=2, people=len(picks), seed=0)
    assert not np.allclose(few.tables()["F"], all_of_them.tables()["F"])
    again = Posterior.fit(picks, CONFIG, sweeps=2, people=5, seed=0)
    np.testing.assert_array_equal(few.tables()["F"], again.tables()["F"])


def test_scores_are_products_of_vectors() -> None:
    picks = some_picks()
    side = Posterior.fit(picks, CONFIG, sweeps=2, people=99, seed=0)
    F = side.tables()["F"].astype(np.float64)
    X = matrix(picks)
    for row, scores in zip(X, side.scores(picks), strict=True):
        A = CONFIG.unpicked * F.T @ F + (F.T * row) @ F
        A += CONFIG.penalty * (row.sum() + CONFIG.unpicked * M) * np.eye(4)
        np.testing.assert_allclose(scores, F @ np.linalg.solve(A, F.T @ row), atol=1e-5)


def test_the_same_bits_come_wherever_arrays_lie() -> None:
    rng, (n, M, D, k) = np.random.default_rng(0), (300, 120, 16, 12)
    columns = np.concatenate([rng.choice(M, k, replace=False) for _ in range(n)]).astype(np.int32)
    table = rng.standard_normal((M, D)).astype(np.float32) * np.float32(0.1)
    fixed = np.arange(n + 1) * k, columns, np.ones(n * k, np.float32), table
    base, ridges = rng.random(D) + 0.1, np.full(n, 0.2)
    found = {solve_rows(*fixed, base.copy(), ridges.copy()).tobytes() for _ in range(40)}
    assert len(found) == 1
