"""The machine against sums over all its states."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.data.ratings import Rows
from cfnade.data.synthetic import synthetic
from cfnade.errors import ModelError
from cfnade_rivals.batches import RatedColumns, by_column
from cfnade_rivals.rbm import RBM, Machine, _centre_weights, _give_gradients

M, K, F = 3, 3, 4
VISIBLE = torch.tensor(list(product(range(K), repeat=M)))  # (K^M, M)
HIDDEN = torch.tensor(list(product((0.0, 1.0), repeat=F)))  # (2^F, F)
STARS = np.arange(1.0, K + 1)


@pytest.fixture
def machine() -> Machine:
    random = torch.Generator().manual_seed(3)

    shapes: list[tuple[int, ...]] = [(M, K, F), (M, K), (F,)]
    return Machine(*(torch.randn(*shape, generator=random) for shape in shapes))


def log_joint(machine: Machine) -> torch.Tensor:
    """−E(v, h) of all states, from the definition: Σ b + Σ c h + Σ h W. Returns (K^M, 2^F)."""
    total = (HIDDEN @ machine.c).repeat(len(VISIBLE), 1)
    for m in range(M):
        levels = VISIBLE[:, m]
        total = total + machine.b[m, levels][:, None] + machine.W[m, levels] @ HIDDEN.T
    return total


def energies(machine: Machine) -> torch.Tensor:
    """F of all ratings of all columns: minus the log of the sum over hidden states. (K^M,)."""
    return -torch.logsumexp(log_joint(machine), 1)


def ratings_of(visible: torch.Tensor, columns: int = M) -> RatedColumns:
    """Rows that rate the first columns at these levels."""
    levels = visible.numpy().astype(np.uint8)
    offsets = np.arange(len(levels) + 1) * columns
    rated = np.tile(np.arange(columns, dtype=np.int32), len(levels))
    rows = Rows(offsets, rated, levels.reshape(-1), n_columns=M, n_levels=K)
    return by_column(rows, np.arange(len(levels)), STARS)


@pytest.mark.parametrize("threads", [1, 2])
def test_slopes_are_those_of_the_energy_of_data_less_that_of_a_sample(
    machine: Machine, threads: int
) -> None:
    parameters = [tensor.clone().requires_grad_() for tensor in vars(machine).values()]
    every = energies(Machine(*parameters))
    exact = torch.autograd.grad(every[[0, 5, 5]].sum() - every[[13, 26, 7]].sum(), parameters)
    data, sample = ratings_of(VISIBLE[[0, 5, 5]]), ratings_of(VISIBLE[[13, 26, 7]])
    slopes = vars(machine.slopes(data, sample, threads)).values()
    for ours, brute in zip(slopes, exact, strict=True):
        torch.testing.assert_close(ours, brute, atol=1e-5, rtol=1e-5)


def test_hidden_units_given_ratings(machine: Machine) -> None:
    chances = torch.softmax(log_joint(machine), 1) @ HIDDEN
    torch.testing.assert_close(torch.sigmoid(machine.inputs(ratings_of(VISIBLE))), chances)


def test_unrated_columns_take_no_part(machine: Machine) -> None:
    first = ratings_of(torch.tensor([[2], [0]]), columns=1)
    torch.testing.assert_close(machine.inputs(first), machine.c + machine.W[0, [2, 0]])


def test_exact_prediction_is_the_conditional_of_one_rating_given_the_others(
    machine: Machine,
) -> None:
    weights = torch.logsumexp(log_joint(machine), 1).exp().view(K, K, K)
    for first, second in product(range(K), repeat=2):
        others = ratings_of(torch.tensor([[first, second]]), columns=2)
        scores = machine.level_scores(machine.inputs(others), torch.tensor([2]), exact=True)
        brute = weights[first, second] / weights[first, second].sum()
        torch.testing.assert_close(torch.softmax(scores, 1)[0], brute)


def test_a_rating_given_hidden_units_and_the_mean_field_prediction(machine: Machine) -> None:
    joint = log_joint(machine).exp().view(K, K, K, -1).sum((0, 1))  # (K, 2^F) of the last column
    brute = (joint / joint.sum(0)).T
    certain = 80 * HIDDEN - 40  # inputs at which the mean hidden state is 0 or 1
    scores = machine.level_scores(certain, torch.full((len(certain),), 2), exact=False)
    torch.testing.assert_close(torch.softmax(scores, 1), brute)


def test_a_long_gibbs_chain_draws_from_the_model(machine: Machine) -> None:
    weights = (-energies(machine)).softmax(0)
    count = 8_000
    start = ratings_of(torch.zeros(count, M, dtype=torch.int64))
    random = torch.Generator().manual_seed(1)
    drawn = machine.gibbs(start, 40, random).levels.reshape(M, count).astype(np.int64)
    state = np.ravel_multi_index(tuple(drawn), (K,) * M)
    shares = np.bincount(state, minlength=K**M) / count
    spread = torch.sqrt(weights * (1 - weights) / count).numpy()
    assert np.all(np.abs(shares - weights.numpy()) < 4.5 * spread)


def test_centred_weights_have_no_mean_and_score_the_same(machine: Machine) -> None:
    h, column = torch.sigmoid(machine.c)[None], torch.tensor([1])
    before = torch.softmax(machine.b[1] + machine.W[1] @ h[0], 0)
    shares = torch.softmax(machine.b, 1)
    _centre_weights(machine, shares)
    means = (shares[..., None] * machine.W).sum(1)
    torch.testing.assert_close(means, torch.zeros_like(means))
    after = torch.softmax(machine.level_scores(torch.logit(h), column, exact=False)[0], 0)
    torch.testing.assert_close(after, before)


def test_centred_gradients_are_those_of_scores_less_the_mean_hidden_state(
    machine: Machine,
) -> None:
    data, sample, rows = VISIBLE[3:8], VISIBLE[10:15], 5
    slopes = machine.slopes(ratings_of(data), ratings_of(sample))
    _give_gradients(machine, slopes, rows)
    mean = torch.sigmoid(machine.c)
    W = machine.W.clone().requires_grad_()
    start = (machine.b + machine.W @ mean).requires_grad_()  # b' of the scores b' + W·(h − mean)
    every = energies(Machine(W, start - W @ mean, machine.c))
    cost = (every[3:8].sum() - every[10:15].sum()) / rows
    d_W, d_start = torch.autograd.grad(cost, (W, start))
    torch.testing.assert_close(machine.W.grad, d_W, atol=1e-5, rtol=1e-4)
    # A step of W and b' moves b = b' − W·mean by as much.
    torch.testing.assert_close(machine.b.grad, d_start - d_W @ mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(machine.c.grad, slopes.c / rows)


def test_one_step_of_gibbs_keeps_the_cells_and_the_seed_decides(machine: Machine) -> None:
    start = ratings_of(VISIBLE)
    draws = [machine.gibbs(start, 1, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert np.array_equal(draws[0].levels, draws[1].levels)
    assert not np.array_equal(draws[0].levels, draws[2].levels)
    assert draws[0].rows is start.rows


def test_a_batch_holds_the_ratings_of_its_rows() -> None:
    rows = Rows(
        offsets=np.array([0, 2, 2, 5]),
        columns=np.array([1, 0, 2, 0, 1], np.int32),
        levels=np.array([0, 1, 2, 0, 1], np.uint8),
        n_columns=3,
        n_levels=3,
    )
    batch = by_column(rows, np.array([2, 1, 0]), STARS)
    assert batch.size == 3
    assert batch.starts.tolist() == [0, 2, 4, 5]
    assert batch.rows.tolist() == [0, 2, 0, 2, 0]
    assert batch.levels.tolist() == [0, 1, 1, 0, 2]
    assert batch.values.tolist() == [1, 2, 2, 1, 3]
    assert batch.counts(3).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_what_nobody_rated_gets_frequencies() -> None:
    made = synthetic(30, 20, 300, seed=1).ratings
    rest = made.select((made.users != 3) & (made.items != 4))
    rival = RBM(side="item", hidden=3, epochs=1)
    model = rival.fit(rest, rest.select(np.zeros(len(rest), bool)))
    chances = model.probabilities(np.array([3, 0, -1, 3]), np.array([0, 4, -1, 4]))
    share = np.bincount(rest.levels, minlength=5) / len(rest)
    np.testing.assert_allclose(chances[2], share, atol=1e-4)
    np.testing.assert_allclose(chances[3], share, atol=1e-4)
    for cell, own in ((0, rest.items == 0), (1, rest.users == 0)):
        counts = np.bincount(rest.levels[own], minlength=5)
        expected = (counts + share) / (counts.sum() + 1)
        np.testing.assert_allclose(chances[cell], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"side": "row"}, r"side \(='row'\) must be one of user, item"),
        ({"hidden": 0}, r"hidden \(=0\) must be a whole number of at least 1"),
        ({"momentum": 1.0}, r"momentum \(=1.0\) must be a number of at least 0 and below 1"),
        ({"learning_rate": 0}, r"learning_rate \(=0\) must be a number above 0"),
        ({"exact": 1}, r"exact \(=1\) must be true or false"),
    ],
)
def test_bad_options_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        RBM(**option)
