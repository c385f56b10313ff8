"""The factored path: solves that minimise what is written, turns that never make it worse."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.choice.given import M, matrix, some_picks
from torch import Tensor

from cfnade.choice import factored
from cfnade.choice.factored import Posterior, PosteriorConfig, solve
from cfnade.choice.picks import Picks
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


@pytest.mark.parametrize(("entries", "threads"), [(1 << 22, 1), (100, 2)])
def test_a_solve_minimises_what_is_written(
    entries: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factored, "_ENTRIES", entries)  # 100 numbers: one row at a time
    picks = some_picks(weighed=True)
    F = torch.randn(M, 4, generator=torch.Generator().manual_seed(1))
    with torch_threads(threads):
        found = solve(picks, F, CONFIG)
    weights = torch.from_numpy(matrix(picks))
    for row, own in zip(found.double(), weights, strict=True):
        x = row.clone().requires_grad_()
        of_person(x, own, F.double(), CONFIG).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert float(x.grad.abs().max()) < 1e-4
    assert not found[2].any()  # who picked nothing


def objective(picks: Picks, side: Posterior) -> float:
    """The sum over people and items, with everybody's best vector."""
    F = side.tensors()["F"].double()
    X = solve(picks, F.float(), CONFIG).double()
    W = torch.from_numpy(matrix(picks))
    scores, a = X @ F.T, CONFIG.unpicked
    picked = (W * (1 - scores) ** 2).sum() + a * scores.square().sum()
    rows = (W.sum(1) + a * M) * X.square().sum(1)
    columns = (W.sum(0) + a * len(X)) * F.square().sum(1)
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
    assert not np.allclose(few.tensors()["F"], all_of_them.tensors()["F"])
    again = Posterior.fit(picks, CONFIG, sweeps=2, people=5, seed=0)
    assert torch.equal(few.tensors()["F"], again.tensors()["F"])


def test_scores_are_products_of_vectors() -> None:
    picks = some_picks()
    side = Posterior.fit(picks, CONFIG, sweeps=2, people=99, seed=0)
    F = side.tensors()["F"].double().numpy()
    X = matrix(picks)
    for row, scores in zip(X, side.scores(picks), strict=True):
        A = CONFIG.unpicked * F.T @ F + (F.T * row) @ F
        A += CONFIG.penalty * (row.sum() + CONFIG.unpicked * M) * np.eye(4)
        np.testing.assert_allclose(scores, F @ np.linalg.solve(A, F.T @ row), atol=1e-5)
