"""NNMF against sums written out, and against the minimum that least squares gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import ModelError, TrainingError
from cfnade_baselines.nnmf import NNMF, TrainingRatings

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def train() -> Dataset:
    return synthetic(40, 25, 500, seed=2).ratings


def none(train: Dataset) -> Dataset:
    return train.select(np.arange(0))


def fitted(train: Dataset, **options: Any) -> NNMF:
    small: Any = {"direct": 2, "product": 3, "epochs": 5, "batch": 64, "learning_rate": 0.02}
    return NNMF(**small | {"penalty": 0.5} | options).fit(train, none(train), seed=4, n_threads=1)


def learnt(model: NNMF) -> dict[str, Array]:
    network = model.network_
    arrays = {"mean": torch.tensor([model.mean_]), "users": network.users, "items": network.items}
    for i, (weights, bias) in enumerate(network.layers):
        arrays |= {f"weights_{i}": weights, f"bias_{i}": bias}
    return {name: array.numpy().astype(np.float64) for name, array in arrays.items()}


def test_a_linear_network_is_linear_terms_and_a_weighted_inner_product(train: Dataset) -> None:
    model = fitted(train, hidden=())
    a = learnt(model)
    (w,), bias = a["weights_0"], a["bias_0"][0]
    U, U2 = a["users"][train.users, :2], a["users"][train.users, 2:]
    V, V2 = a["items"][train.items, :2], a["items"][train.items, 2:]
    expected = a["mean"][0] + bias + U @ w[:2] + V @ w[2:4] + (U2 * V2) @ w[4:]
    stars = model.predict(train.users, train.items)
    np.testing.assert_allclose(stars, np.clip(expected, 1, 5), atol=1e-5)
    assert np.std((U2 * V2) @ w[4:]) > 0.01  # the product takes part


def test_hidden_layers_are_sigmoids_of_what_is_below(train: Dataset) -> None:
    model = fitted(train, hidden=(5, 4))
    a = learnt(model)
    for user, item in ((0, 0), (3, 20), (39, 7)):
        u, v = a["users"][user], a["items"][item]
        x = np.array([*u[:2], *v[:2], *(u[2:] * v[2:])])
        for layer in (0, 1):
            x = 1 / (1 + np.exp(-(a[f"weights_{layer}"] @ x + a[f"bias_{layer}"])))
        expected = a["mean"][0] + a["weights_2"][0] @ x + a["bias_2"][0]
        stars = model.predict(np.array([user]), np.array([item]))
        np.testing.assert_allclose(stars, np.clip(expected, 1, 5), atol=1e-5)


def cost(a: dict[str, Array], train: Dataset, penalty: float) -> float:
    """Squared errors plus penalty, shared out among ratings, of a linear net without products."""
    u, v = a["users"][train.users], a["items"][train.items]
    (w,), bias = a["weights_0"], a["bias_0"]
    D = u.shape[1]
    errors = train.values - (a["mean"] + bias + u @ w[:D] + v @ w[D:])
    seen = [a["users"][np.unique(train.users)], a["items"][np.unique(train.items)]]
    return float((errors**2).sum() + penalty * sum((x**2).sum() for x in seen)) / len(train)


def test_the_loss_is_squared_error_and_the_penalty_on_the_vectors(train: Dataset) -> None:
    model = fitted(train, direct=2, product=0, hidden=(), penalty=0.3)
    cells = TrainingRatings.prepare(train, float(train.values.mean()), 0.3)
    loss = float(model.network_.loss(cells, torch.arange(len(train))))
    assert loss == pytest.approx(cost(learnt(model), train, 0.3), rel=1e-5)


def test_weights_below_sigmoids_start_four_times_as_large(train: Dataset) -> None:
    a = learnt(fitted(train, hidden=(50, 40), epochs=1, learning_rate=1e-9))
    for layer, gain in enumerate((4, 4, 1)):
        largest = np.abs(a[f"weights_{layer}"]).max()
        bound = gain * np.sqrt(6 / sum(a[f"weights_{layer}"].shape))
        assert 0.9 * bound < largest <= bound + 1e-6


def test_training_ends_where_ridge_regression_does(train: Dataset) -> None:
    """One number each and a linear network: for its weights, the vectors solve a linear system."""
    options: Any = {"direct": 1, "product": 0, "hidden": (), "penalty": 0.6}
    a = learnt(fitted(train, epochs=400, batch=500, learning_rate=0.05, **options))
    w, n = a["weights_0"][0], len(train)
    X = np.zeros((n, 65))  # (n, N + M)
    X[np.arange(n), train.users], X[np.arange(n), 40 + train.items] = w[0], w[1]
    y = train.values - a["mean"] - a["bias_0"]
    best: Array = np.linalg.solve(X.T @ X + 0.6 * np.eye(65), X.T @ y).astype(np.float64)
    vectors = np.concatenate([a["users"][:40, 0], a["items"][:25, 0]])
    np.testing.assert_allclose(vectors, best, atol=0.02)  # the bias creeps
    solved: dict[str, Array] = {**a, "users": best[:40, None], "items": best[40:, None]}
    assert cost(a, train, 0.6) == pytest.approx(cost(solved, train, 0.6), abs=1e-4)


def test_the_epoch_that_validation_likes_best_is_kept(train: Dataset) -> None:
    part = np.random.default_rng(1).random(len(train)) < 0.3
    rest, valid = train.select(~part), train.select(part)
    options: Any = {"epochs": 25, "batch": 64, "learning_rate": 0.05, "penalty": 0.0}
    errors = []
    for held_out in (valid, none(train)):
        model = NNMF(**options).fit(rest, held_out, n_threads=1)
        errors.append(np.square(model.predict(valid.users, valid.items) - valid.values).mean())
    assert errors[0] < errors[1] - 0.05  # without validation it is the last, which overfits


def test_the_unknown_gets_the_mean_vector(train: Dataset) -> None:
    rest = train.select((train.users != 4) & (train.items != 7))
    model = fitted(rest, hidden=(3,))
    a = learnt(model)
    np.testing.assert_allclose(a["users"][-1], np.delete(a["users"], [4, 40], 0).mean(0), atol=1e-6)
    unknown = model.predict(np.array([-1, 4, 0, 0]), np.array([0, 0, -1, 7]))
    assert unknown[0] == unknown[1]
    assert unknown[2] == unknown[3]


def test_torch_keeps_its_number_of_threads(train: Dataset) -> None:
    before = torch.get_num_threads()
    NNMF(epochs=1).fit(train, none(train), n_threads=before + 1)
    assert torch.get_num_threads() == before


def test_divergence_is_said(train: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"diverged.*; lower learning_rate \(=1e\+30\)"):
        NNMF(hidden=(), learning_rate=1e30, epochs=1).fit(train, train, n_threads=1)


def test_a_network_without_inputs_is_refused() -> None:
    with pytest.raises(ModelError, match="direct and product are both 0"):
        NNMF(direct=0, product=0)
