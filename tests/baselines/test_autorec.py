"""AutoRec's sparse loops against the dense net in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade_baselines.autorec import AutoRec, AutoRecNet, gradients, hidden_states
from cfnade_baselines.row_model import gather_ratings


@pytest.fixture(scope="module")
def made() -> Dataset:
    return synthetic(40, 25, 500, seed=2).ratings


def nothing(ratings: Dataset) -> Dataset:
    return ratings.select(np.zeros(len(ratings), bool))


def dense(ratings: Dataset, side: str) -> tuple[Tensor, Tensor]:
    """Ratings with zeros in the holes, and where there are any. Returns (N, M), (N, M)."""
    stars, mask = torch.zeros(2, ratings.n_users, ratings.n_items, dtype=torch.float64)
    cells = [torch.from_numpy(index.astype(int)) for index in (ratings.users, ratings.items)]
    stars[*cells], mask[*cells] = torch.from_numpy(ratings.values), 1.0
    return (stars, mask) if side == "user" else (stars.T, mask.T)


def dense_cost(net: list[Tensor], stars: Tensor, mask: Tensor, shift: float) -> Tensor:
    """The paper's masked squared error (without the penalty)."""
    V, mu, W, b = net
    h = torch.sigmoid((stars - shift * mask) @ V + mu)
    return (mask * (h @ W.T + b - stars) ** 2).sum()


def random_net(columns: int, hidden: int) -> AutoRecNet:
    random = np.random.default_rng(5)
    shapes = ((columns, hidden), (hidden,), (columns, hidden), (columns,))
    return AutoRecNet(*(random.normal(0, 0.3, shape).astype(np.float32) for shape in shapes))


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 3.2])
def test_cost_and_gradients_are_those_of_the_dense_net(
    made: Dataset, side: str, threads: int, shift: float
) -> None:
    rows = made.rows("user" if side == "user" else "item")
    net = random_net(rows.n_columns, 7)
    which = np.random.default_rng(1).permutation(len(rows))[:15]
    batch = gather_ratings(rows, which, made.scale.array())
    ours = AutoRecNet(*(np.full_like(array, np.nan) for array in net))
    cost = gradients(net, batch, threads, shift, out=ours)
    stars, mask = (matrix[torch.from_numpy(which)] for matrix in dense(made, side))
    tensors = [torch.from_numpy(array).double().requires_grad_() for array in net]
    expected = dense_cost(tensors, stars, mask, shift)
    assert cost == pytest.approx(expected.item(), rel=1e-5)
    for mine, theirs in zip(ours, torch.autograd.grad(expected, tensors), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    h = torch.sigmoid((stars - shift * mask) @ tensors[0] + tensors[1]).detach()
    np.testing.assert_allclose(hidden_states(net, batch, threads, shift), h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("center", [True, False])
def test_training_takes_the_steps_that_torch_takes(made: Dataset, center: bool) -> None:
    penalty, rate, epochs = 3.0, 0.01, 4
    autorec = AutoRec(
        side="user",
        hidden=6,
        epochs=epochs,
        batch_rows=1000,
        regularization=penalty,
        learning_rate=rate,
        center=center,
    )
    model = autorec.fit(made, nothing(made), seed=3)
    stars, mask = dense(made, "user")
    random, width = np.random.default_rng(3), np.sqrt(6 / (made.n_items + 6))
    V, W = torch.from_numpy(random.uniform(-width, width, (2, made.n_items, 6)))
    mean = float(made.values.mean())
    b = torch.full((made.n_items,), mean, dtype=torch.float64)
    shift = mean if center else 0.0
    net = [V, torch.zeros(6, dtype=torch.float64), W, b]
    optimiser = torch.optim.Adam([tensor.requires_grad_() for tensor in net], lr=rate)
    for step in range(epochs):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / epochs)
        optimiser.zero_grad()
        cost = dense_cost(net, stars, mask, shift)
        (cost + penalty / 2 * (net[0].square().sum() + net[2].square().sum())).backward()
        optimiser.step()
    for learnt, tensor in zip(model.net_, net, strict=True):
        np.testing.assert_allclose(learnt, tensor.detach(), atol=2e-4)
    cells = torch.sigmoid((stars - shift * mask) @ net[0] + net[1]) @ net[2].T + net[3]
    expected = cells.detach().clamp(1, 5)[torch.arange(5), torch.arange(5)]
    np.testing.assert_allclose(model.predict(np.arange(5), np.arange(5)), expected, atol=1e-3)


def test_the_penalty_is_that_of_the_whole_whatever_the_batches(made: Dataset) -> None:
    def size(batch_rows: int, penalty: float) -> float:
        autorec = AutoRec(
            side="user",
            hidden=4,
            epochs=300,
            batch_rows=batch_rows,
            regularization=penalty,
            learning_rate=0.02,
        )
        return float(np.square(autorec.fit(made, nothing(made), n_threads=1).net_.W).sum())

    whole = size(40, 8.0)
    assert size(10, 8.0) == pytest.approx(whole, rel=0.1)
    assert size(40, 32.0) < 0.7 * whole  # what a penalty counted once a batch would give


def test_validation_keeps_an_earlier_net_if_it_was_better(made: Dataset) -> None:
    odd = np.arange(len(made)) % 5 == 0
    train, valid = made.select(~odd), made.select(odd)
    options: Any = {"hidden": 40, "epochs": 100, "regularization": 0.0, "learning_rate": 0.02}
    errors = []
    for watched in (valid, nothing(made)):
        model = AutoRec(side="user", batch_rows=10, **options).fit(train, watched, n_threads=1)
        errors.append(np.square(model.predict(valid.users, valid.items) - valid.values).mean())
    assert errors[0] < errors[1]


def test_what_nobody_rated_gets_means(made: Dataset) -> None:
    rest = made.select((made.users != 3) & (made.items != 4))
    model = AutoRec(hidden=3, epochs=1).fit(rest, nothing(rest))
    stars = model.predict(np.array([3, 0, -1, 3]), np.array([0, 4, -1, 4]))
    mean = rest.values.mean()
    expected = [mean, mean]
    for own in (rest.users == 0, rest.items == 0):
        expected.insert(0, (rest.values[own].sum() + mean) / (own.sum() + 1))
    np.testing.assert_allclose(stars, expected, atol=1e-3)
