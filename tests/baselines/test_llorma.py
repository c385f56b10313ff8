"""LLORMA against plain, dense least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade_baselines.llorma import LLORMA

Array = npt.NDArray[np.float64]
GUIDE_SWEEPS = 15
NEAR = 2e-3  # float32 against float64


@pytest.fixture(scope="module")
def train() -> Dataset:
    return synthetic(40, 25, 500, seed=2).ratings


def none(train: Dataset) -> Dataset:
    return train.select(np.arange(0))


def dense(train: Dataset) -> tuple[Array, Array]:
    """Ratings and where they are, as matrices (N, M)."""
    values, mask = np.zeros((2, train.n_users, train.n_items))
    values[train.users, train.items] = train.values
    mask[train.users, train.items] = 1.0
    return values, mask


def ridge(values: Array, weights: Array, X: Array, penalty: float) -> Array:
    """Row by row, the least squares of values on X, with a ridge of penalty · Σ weights."""
    rows = []
    for y, w in zip(values, weights, strict=True):
        A = X.T @ (w[:, None] * X) + penalty * w.sum() * np.eye(X.shape[1])
        rows.append(np.linalg.lstsq(A, X.T @ (w * y))[0])  # zeros if no weight is there
    return np.array(rows)


def plain(
    values: Array, weights: Array, V: Array, penalty: float, sweeps: int
) -> tuple[Array, Array]:
    """Weighted regularised low rank by alternating least squares, in the open."""
    for _ in range(sweeps):
        U = ridge(values, weights, V, penalty)
        V = ridge(values.T, weights.T, U, penalty)
    return U, V


def first(random: np.random.Generator, *shape: int) -> Array:
    """Item factors before the first sweep."""
    V = random.normal(0.0, 0.1, shape)
    V[..., 0] = 1.0
    return V


def all_cells(model: LLORMA, train: Dataset) -> Array:
    users, items = np.indices((train.n_users, train.n_items)).reshape(2, -1)
    return model.predict(users, items).reshape(train.n_users, train.n_items)


def test_one_anchor_and_a_huge_bandwidth_is_plain_low_rank(train: Dataset) -> None:
    model = LLORMA(anchors=1, rank=3, bandwidth=1e6, penalty=0.1, sweeps=6, guide_rank=2)
    model.fit(train, none(train), seed=5, n_threads=2)
    random = np.random.default_rng(5)
    first(random, train.n_items, 2)  # the guide's
    random.choice(len(train), 1, replace=False)  # the anchor
    U, V = plain(*dense(train), first(random, train.n_items, 3), 0.1, 6)
    np.testing.assert_allclose(
        all_cells(model, train), np.clip(U @ V.T, 1, 5), rtol=NEAR, atol=NEAR
    )


def test_the_local_models_and_their_average_by_the_paper(train: Dataset) -> None:
    """Angles, kernel, weighted fits and Nadaraya–Watson, each written out."""
    model = LLORMA(
        anchors=3, rank=2, bandwidth=0.35, penalty=0.1, sweeps=3, guide_rank=3, guide_penalty=0.2
    )
    model.fit(train, none(train), seed=7, n_threads=2)
    random = np.random.default_rng(7)
    values, mask = dense(train)
    guide = plain(values, mask, first(random, train.n_items, 3), 0.2, GUIDE_SWEEPS)
    anchors = random.choice(len(train), 3, replace=False)
    starts = first(random, 3, train.n_items, 2)
    total, weight = np.zeros_like(values), np.zeros_like(values)
    for anchor, start in zip(anchors, starts, strict=True):
        kernel = np.ones_like(values)
        for F, own, axis in (
            (guide[0], train.users[anchor], 0),
            (guide[1], train.items[anchor], 1),
        ):
            cosines = F @ F[own] / np.linalg.norm(F, axis=1) / np.linalg.norm(F[own])
            angle = 2 / np.pi * np.arccos(np.clip(cosines, -1, 1))
            kernel *= np.expand_dims(0.75 * np.maximum(1 - (angle / 0.35) ** 2, 0), 1 - axis)
        reached = mask * kernel
        kernel *= reached.any(1, keepdims=True) & reached.any(0)  # of others it knows nothing
        U, V = plain(values, reached, start, 0.1, 3)
        total += kernel * (U @ V.T)
        weight += kernel
    assert 0 < (weight == 0).mean() < 0.5  # both cases occur
    expected = np.where(weight > 0, total / np.where(weight > 0, weight, 1), guide[0] @ guide[1].T)
    np.testing.assert_allclose(
        all_cells(model, train), np.clip(expected, 1, 5), rtol=NEAR, atol=NEAR
    )


def joint_cost(model: LLORMA, train: Dataset, penalty: float) -> float:
    """Σ (r - average)² + penalty · Σ share · (|u|² + |v|²), over ratings and anchors."""
    KU, KV, U, V = (array.astype(np.float64) for array in (*model.kernels_, *model.factors_))
    weights = KU[:, train.users] * KV[:, train.items]  # (q, n)
    share = weights / weights.sum(0)
    U, V = U[:, train.users], V[:, train.items]  # (q, n, k)
    residuals = train.values - (share * (U * V).sum(2)).sum(0)
    norms = share * (np.square(U).sum(2) + np.square(V).sum(2))
    return float(np.square(residuals).sum() + penalty * norms.sum())


def test_joint_sweeps_go_down_to_a_minimum_of_the_joint_cost(train: Dataset) -> None:
    costs = []
    for sweeps in (0, 1, 5, 150):
        model = LLORMA(anchors=2, rank=2, bandwidth=1.5, joint_sweeps=sweeps, joint_penalty=0.1)
        model.fit(train, none(train), seed=3, n_threads=1)
        costs.append(joint_cost(model, train, 0.1))
    assert costs[0] > costs[1] > costs[2] > costs[3]
    # Where the last is, no small step of all factors leads down.
    random, factors = np.random.default_rng(0), model.factors_
    for _ in range(20):
        U, V = (F + random.normal(0, 0.02, F.shape).astype(np.float32) for F in factors)
        assert joint_cost(model._set(factors_=(U, V)), train, 0.1) > costs[-1]


def test_an_anchor_has_no_say_where_it_reaches_no_rating() -> None:
    """Factors would be zero there, and zero is not a rating."""
    train = synthetic(60, 40, 150, seed=2).ratings
    model = LLORMA(anchors=8, rank=2, bandwidth=0.3, guide_rank=3)
    KU, KV = model.fit(train, none(train), n_threads=1).kernels_
    weights = KU[:, train.users] * KV[:, train.items]  # (q, n)
    for kernel, index in ((KU, train.users), (KV, train.items)):
        for K, w in zip(kernel, weights, strict=True):
            reached = np.bincount(index, w, minlength=len(K)) > 0
            np.testing.assert_array_equal(K > 0, reached)


def test_threads_make_no_difference(train: Dataset) -> None:
    fits = []
    for threads in (1, 3):
        model = LLORMA(anchors=3, rank=3, joint_sweeps=2).fit(train, none(train), n_threads=threads)
        fits.append(all_cells(model, train))
    assert fits[0].tobytes() == fits[1].tobytes()


def test_the_sweep_that_validation_likes_best_is_kept(train: Dataset) -> None:
    part = np.random.default_rng(1).random(len(train)) < 0.3
    rest, valid = train.select(~part), train.select(part)
    options: Any = {"anchors": 3, "rank": 8, "penalty": 1e-3, "guide_rank": 3}
    errors = []
    for sweeps in range(1, 7):
        model = LLORMA(**options, sweeps=sweeps).fit(rest, none(train), n_threads=1)
        errors.append(np.square(model.predict(valid.users, valid.items) - valid.values).sum())
    assert errors[-1] > min(errors)  # it does overfit, else this shows nothing
    first_rise = next(i for i in range(1, 6) if errors[i] > errors[i - 1])
    model = LLORMA(**options, sweeps=6).fit(rest, valid, n_threads=1)
    error = np.square(model.predict(valid.users, valid.items) - valid.values).sum()
    np.testing.assert_allclose(error, errors[first_rise - 1])


def test_the_unknown_gets_means(train: Dataset) -> None:
    rest = train.select((train.users != 4) & (train.items != 7))
    model = LLORMA(anchors=3, rank=2).fit(rest, none(train), n_threads=1)
    mean = rest.values.mean()
    stars = model.predict(np.array([-1, 4, 4, -1]), np.array([-1, 7, -1, 0]))
    above = rest.values[rest.items == 0] - mean
    np.testing.assert_allclose(stars[:3], mean)
    np.testing.assert_allclose(stars[3], mean + above.sum() / (len(above) + 5))
