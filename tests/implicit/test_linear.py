"""The linear path against its closed form and against ridge regressions, column by column."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.choice.given import M, matrix, some_picks

from cfnade.choice import regressions as module
from cfnade.choice.linear import Linear, LinearConfig, usual_penalty
from cfnade.exceptions import ModelError


def regressions(X: np.ndarray, penalty: float, most: int | None = None) -> np.ndarray:
    """Column i: the ridge regression of item i on the others it is picked with most. (M, M)."""
    columns = X.shape[1]
    B, gram = np.zeros((columns, columns)), X.T @ X
    for i in range(columns):
        others = [j for j in range(columns) if j != i]
        if most is not None:
            met = [j for j in others if gram[i, j] > 0]
            others = sorted(met, key=lambda j: (-gram[i, j], j))[:most]
        A = X[:, others]
        B[others, i] = np.linalg.solve(A.T @ A + penalty * np.eye(len(others)), A.T @ X[:, i])
    return B


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("penalty", [0.5, 20.0])
@pytest.mark.parametrize("exact", [8_000, 0])
def test_it_is_each_items_regression_on_all_others(
    weighed: bool, penalty: float, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", exact)  # 0: the inverse is made in single precision
    picks = some_picks(weighed=weighed)
    side = Linear.fit(picks, penalty=penalty)
    X = matrix(picks)
    B = side.tables()["B"]
    np.testing.assert_allclose(B, regressions(X, penalty), rtol=1e-3, atol=2e-5)
    P = np.linalg.inv(X.T @ X + penalty * np.eye(M))
    closed = -P / np.diag(P)
    np.fill_diagonal(closed, 0.0)
    np.testing.assert_allclose(B, closed, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(side.scores(picks), X @ B, rtol=1e-4, atol=1e-5)


def test_rows_of_a_dense_path_lie_together() -> None:
    assert Linear.fit(some_picks(), penalty=1.0).tables()["B"].flags.c_contiguous


@pytest.mark.parametrize("at_once", [256, 3])
def test_a_sparse_path_of_all_neighbours_is_the_dense_one(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    picks = some_picks(60, weighed=True)
    X = matrix(picks)
    assert (X.T @ X > 0).all()  # every two are picked together by somebody
    dense = Linear.fit(picks, penalty=2.0).scores(picks)
    for neighbours in (M - 1, M + 5):
        sparse = Linear.fit(picks, penalty=2.0, neighbours=neighbours).scores(picks)
        np.testing.assert_allclose(sparse, dense, rtol=1e-3, atol=2e-5)


def test_a_sparse_path_is_each_items_regression_on_its_neighbours() -> None:
    picks = some_picks(60, weighed=True)
    X = matrix(picks)
    side = Linear.fit(picks, penalty=2.0, neighbours=3)  # four times as many counts are kept: all
    expected = X @ regressions(X, 2.0, 3)
    np.testing.assert_allclose(side.scores(picks), expected, rtol=1e-3, atol=2e-5)


def test_what_nobody_picked_is_scored_nothing() -> None:
    picks = some_picks()
    picks = picks.where(picks.columns != 4)
    for neighbours in (0, 3):
        side = Linear.fit(picks, penalty=2.0, neighbours=neighbours)
        assert not side.scores(picks)[:, 4].any()


def test_counts_that_were_not_kept_do_not_stop_a_regression() -> None:
    """Three items, each close to the next, with no count between the first and the last."""
    grams = torch.tensor([[[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]]])
    assert torch.linalg.eigvalsh(grams).min() < 0
    found = module._solved(grams.clone(), torch.ones(1, 3))
    assert torch.isfinite(found).all()


def test_the_usual_penalty_is_that_of_the_notes() -> None:
    assert usual_penalty(575_000 / 3_533) == pytest.approx(500, rel=0.1)
    assert usual_penalty(56_900_000 / 17_767) == pytest.approx(950, rel=0.05)


@pytest.mark.parametrize("changes", [{"columns": 0}, {"penalty": 0.0}, {"neighbours": -1}])
def test_wrong_fields_are_named(changes: dict[str, float]) -> None:
    fields = {"columns": 3, "penalty": 1.0, "neighbours": 0} | changes
    with pytest.raises(ModelError, match=next(iter(changes))):
        LinearConfig(**fields)  # type: ignore[arg-type]
