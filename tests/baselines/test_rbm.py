"""RBM parameters against sums over all states."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from cfnade.data.csr import CsrRows
from cfnade.data.synthetic import synthetic
from cfnade_baselines.rbm import RBM, RBMParameters, RBMTrainer
from cfnade_baselines.row_model import RatedColumns, gather_ratings

M, K, F = 3, 3, 4
VISIBLE = torch.tensor(list(product(range(K), repeat=M)))  # (K^M, M)
HIDDEN = torch.tensor(list(product((0.0, 1.0), repeat=F)))  # (2^F, F)
STARS = np.arange(1.0, K + 1)


@pytest.fixture
def parameters() -> RBMParameters:
    random = torch.Generator().manual_seed(3)

    shapes: list[tuple[int, ...]] = [(M, K, F), (M, K), (F,)]
    return RBMParameters(*(torch.randn(*shape, generator=random) for shape in shapes))


def log_joint(parameters: RBMParameters) -> torch.Tensor:
    """−E(v, h) of all states, from the definition: Σ b + Σ c h + Σ h W. Returns (K^M, 2^F)."""
    total = (HIDDEN @ parameters.c).repeat(len(VISIBLE), 1)
    for m in range(M):
        levels = VISIBLE[:, m]
        total = total + parameters.b[m, levels][:, None] + parameters.W[m, levels] @ HIDDEN.T
    return total


def energies(parameters: RBMParameters) -> torch.Tensor:
    """F of all ratings of all columns: minus the log of the sum over hidden states. (K^M,)."""
    return -torch.logsumexp(log_joint(parameters), 1)


def ratings_of(visible: torch.Tensor, columns: int = M) -> RatedColumns:
    """Rows that rate the first columns at these levels."""
    levels = visible.numpy().astype(np.uint8)
    offsets = np.arange(len(levels) + 1) * columns
    rated = np.tile(np.arange(columns, dtype=np.int32), len(levels))
    rows = CsrRows(offsets, rated, levels.reshape(-1), n_columns=M, n_levels=K)
    return gather_ratings(rows, np.arange(len(levels)), STARS)


def energies_of_chances(parameters: RBMParameters, chances: torch.Tensor) -> torch.Tensor:
    """F where every rating is the chances (n, M, K) of its levels. Returns (n,)."""
    inputs = parameters.c + torch.einsum("nmk,mkf->nf", chances, parameters.W)
    return -(chances * parameters.b).sum((1, 2)) - softplus(inputs).sum(1)


def test_energies_of_chances_that_are_certain_are_those_of_the_ratings(
    parameters: RBMParameters,
) -> None:
    torch.testing.assert_close(
        energies_of_chances(parameters, torch.eye(K)[VISIBLE]), energies(parameters)
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_are_those_of_the_energy_of_data_less_that_of_a_reconstruction(
    parameters: RBMParameters, threads: int
) -> None:
    data = ratings_of(VISIBLE[[0, 5, 5]])
    inputs, random = parameters.inputs(data), torch.Generator().manual_seed(2)
    probabilities, rebuilt = parameters.reconstruct(data, inputs, 1, random, threads)
    tensors = [tensor.clone().requires_grad_() for tensor in vars(parameters).values()]
    by_row = torch.from_numpy(probabilities).view(M, 3, K).transpose(0, 1)
    copy = RBMParameters(*tensors)
    cost = energies(copy)[[0, 5, 5]].sum() - energies_of_chances(copy, by_row).sum()
    gradients = parameters.copy()
    parameters.gradients(data, probabilities, (inputs, rebuilt), gradients, threads)
    exact = torch.autograd.grad(cost, tensors)
    for ours, brute in zip(vars(gradients).values(), exact, strict=True):
        torch.testing.assert_close(ours, brute, atol=1e-5, rtol=1e-5)


def test_hidden_units_given_ratings(parameters: RBMParameters) -> None:
    chances = torch.softmax(log_joint(parameters), 1) @ HIDDEN
    torch.testing.assert_close(torch.sigmoid(parameters.inputs(ratings_of(VISIBLE))), chances)


def test_unrated_columns_take_no_part(parameters: RBMParameters) -> None:
    first = ratings_of(torch.tensor([[2], [0]]), columns=1)
    torch.testing.assert_close(parameters.inputs(first), parameters.c + parameters.W[0, [2, 0]])


def test_exact_prediction_is_the_conditional_of_one_rating_given_the_others(
    parameters: RBMParameters,
) -> None:
    weights = torch.logsumexp(log_joint(parameters), 1).exp().view(K, K, K)
    for first, second in product(range(K), repeat=2):
        others = ratings_of(torch.tensor([[first, second]]), columns=2)
        scores = parameters.level_scores(parameters.inputs(others), torch.tensor([2]), exact=True)
        brute = weights[first, second] / weights[first, second].sum()
        torch.testing.assert_close(torch.softmax(scores, 1)[0], brute)


def test_a_rating_given_hidden_units_and_the_mean_field_prediction(
    parameters: RBMParameters,
) -> None:
    joint = log_joint(parameters).exp().view(K, K, K, -1).sum((0, 1))  # (K, 2^F) of the last column
    brute = (joint / joint.sum(0)).T
    certain = 80 * HIDDEN - 40  # inputs at which the mean hidden state is 0 or 1
    scores = parameters.level_scores(certain, torch.full((len(certain),), 2), exact=False)
    torch.testing.assert_close(torch.softmax(scores, 1), brute)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_reconstruction_is_made_of_the_levels_chances_given_drawn_hidden_units(
    parameters: RBMParameters, threads: int
) -> None:
    count, row = 4_000, 5
    copies = ratings_of(VISIBLE[[row]].repeat(count, 1))
    random = torch.Generator().manual_seed(1)
    chances, inputs = parameters.reconstruct(copies, parameters.inputs(copies), 1, random, threads)
    by_column = torch.from_numpy(chances).view(M, count, K)
    scores = parameters.b[:, None] + torch.einsum("mkf,sf->msk", parameters.W, HIDDEN)
    given_h = torch.softmax(scores, 2)  # (M, 2^F, K): all that may come out
    h_given_v = torch.softmax(log_joint(parameters)[row], 0)
    nearest = (by_column[:, :, None] - given_h[:, None]).abs().sum((0, 3)).min(1)
    assert nearest.values.max() < 1e-4
    shares = torch.bincount(nearest.indices, minlength=len(HIDDEN)) / count
    spread = torch.sqrt(h_given_v * (1 - h_given_v) / count)
    assert torch.all((shares - h_given_v).abs() < 4.5 * spread + 1e-6)
    expected = parameters.c + torch.einsum("mnk,mkf->nf", by_column, parameters.W)
    torch.testing.assert_close(inputs, expected, atol=1e-4, rtol=1e-4)


def test_further_steps_go_on_from_the_last_reconstruction(parameters: RBMParameters) -> None:
    sure = RBMParameters(
        100 * parameters.W, parameters.b, 100 * parameters.c
    )  # hidden units are 0 or 1
    random = torch.Generator().manual_seed(1)

    def rebuilt(visible: torch.Tensor, steps: int) -> Any:
        ratings = ratings_of(visible)
        return sure.reconstruct(ratings, sure.inputs(ratings), steps, random)[0]

    once = rebuilt(VISIBLE, 1)
    assert np.all(once.max(1) > 0.999)
    levels = torch.from_numpy(once.argmax(1).reshape(M, -1).T.copy())
    again = rebuilt(levels, 1)
    twice = rebuilt(VISIBLE, 2)
    assert not np.allclose(once, twice)
    np.testing.assert_allclose(twice, again, atol=1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_training_takes_the_steps_of_momentum_that_torch_takes(threads: int) -> None:
    random = torch.Generator().manual_seed(4)
    shapes: list[tuple[int, ...]] = [(M, K, F), (M, K), (F,)]
    parameters, slopes = (
        RBMParameters(*(torch.randn(*shape, generator=random) for shape in shapes))
        for _ in range(2)
    )
    rbm, theirs = RBM(momentum=0.7, weight_decay=0.1), list(vars(parameters.copy()).values())
    groups: list[dict[str, Any]] = [
        {"params": theirs[:1], "weight_decay": 0.1},
        {"params": theirs[1:]},
    ]
    optimiser = torch.optim.SGD(groups, lr=0.05, momentum=0.7)
    trainer = RBMTrainer(rbm, parameters, slopes, parameters.zeros(), random, threads)
    for _ in range(3):
        trainer.update(5, 0.05)
        for tensor, slope in zip(theirs, vars(slopes).values(), strict=True):
            tensor.grad = slope / 5
        optimiser.step()
    for ours, tensor in zip(vars(parameters).values(), theirs, strict=True):
        torch.testing.assert_close(ours, tensor)


def test_the_seed_decides_what_is_drawn(parameters: RBMParameters) -> None:
    start, inputs = ratings_of(VISIBLE), parameters.inputs(ratings_of(VISIBLE))
    draws = [
        parameters.reconstruct(start, inputs, 1, torch.Generator().manual_seed(s))[0]
        for s in (1, 1, 2)
    ]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_a_batch_holds_the_ratings_of_its_rows() -> None:
    rows = CsrRows(
        offsets=np.array([0, 2, 2, 5]),
        columns=np.array([1, 0, 2, 0, 1], np.int32),
        levels=np.array([0, 1, 2, 0, 1], np.uint8),
        n_columns=3,
        n_levels=3,
    )
    batch = gather_ratings(rows, np.array([2, 1, 0]), STARS)
    assert batch.size == 3
    assert batch.starts.tolist() == [0, 2, 4, 5]
    assert batch.rows.tolist() == [0, 2, 0, 2, 0]
    assert batch.levels.tolist() == [0, 1, 1, 0, 2]
    assert batch.values.tolist() == [1, 2, 2, 1, 3]


def test_what_nobody_rated_gets_frequencies() -> None:
    made = synthetic(30, 20, 300, seed=1).ratings
    rest = made.select((made.users != 3) & (made.items != 4))
    rbm = RBM(side="item", hidden=3, epochs=1)
    model = rbm.fit(rest, rest.select(np.zeros(len(rest), bool)))
    chances = model.predict_proba(np.array([3, 0, -1, 3]), np.array([0, 4, -1, 4]))
    share = np.bincount(rest.levels, minlength=5) / len(rest)
    np.testing.assert_allclose(chances[2], share, atol=1e-4)
    np.testing.assert_allclose(chances[3], share, atol=1e-4)
    for cell, own in ((0, rest.items == 0), (1, rest.users == 0)):
        counts = np.bincount(rest.levels[own], minlength=5)
        expected = (counts + share) / (counts.sum() + 1)
        np.testing.assert_allclose(chances[cell], expected, atol=1e-4)
