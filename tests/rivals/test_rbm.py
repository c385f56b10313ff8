"""The machine against sums over all its states."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from cfnade.data.ratings import Rows
from cfnade.data.synthetic import synthetic
from cfnade.errors import ModelError
from cfnade.kernels.grouping import Grouped, group
from cfnade_rivals.batches import grouped
from cfnade_rivals.rbm import RBM, Machine, _centre_gradients, _centre_weights

M, K, F = 3, 3, 4
VISIBLE = torch.tensor(list(product(range(K), repeat=M)))  # (K^M, M)
HIDDEN = torch.tensor(list(product((0.0, 1.0), repeat=F)), dtype=torch.float64)  # (2^F, F)


@pytest.fixture
def machine() -> Machine:
    random = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return Machine(draw(M, K, F), draw(M, K), draw(F))


def log_joint(machine: Machine) -> torch.Tensor:
    """−E(v, h) of all states, from the definition: Σ b + Σ c h + Σ h W. Returns (K^M, 2^F)."""
    total = (HIDDEN @ machine.c).repeat(len(VISIBLE), 1)
    for m in range(M):
        levels = VISIBLE[:, m]
        total = total + machine.b[m, levels][:, None] + machine.W[m, levels] @ HIDDEN.T
    return total


def ratings_of(visible: torch.Tensor) -> Grouped:
    """Rows that rate every column."""
    rows, columns = np.divmod(np.arange(visible.numel(), dtype=np.int32), np.int32(M))
    levels = visible.reshape(-1).to(torch.uint8).numpy()
    return group(rows, columns, levels, size=len(visible), n_columns=M, n_levels=K)


def test_free_energy_is_minus_the_log_of_the_sum_over_hidden_states(machine: Machine) -> None:
    brute = -torch.logsumexp(log_joint(machine), 1)
    ours = torch.stack([machine.free_energy(ratings_of(v[None])) for v in VISIBLE])
    torch.testing.assert_close(ours, brute)
    torch.testing.assert_close(machine.free_energy(ratings_of(VISIBLE)), brute.sum())


def test_hidden_units_given_ratings(machine: Machine) -> None:
    chances = torch.softmax(log_joint(machine), 1) @ HIDDEN
    torch.testing.assert_close(torch.sigmoid(machine.inputs(ratings_of(VISIBLE))), chances)


def test_unrated_columns_take_no_part(machine: Machine) -> None:
    one = group(*np.array([[0], [1], [2]]), size=1, n_columns=M, n_levels=K)
    torch.testing.assert_close(machine.inputs(one)[0], machine.c + machine.W[1, 2])


def test_exact_prediction_is_the_conditional_of_one_rating_given_the_others(
    machine: Machine,
) -> None:
    weights = torch.logsumexp(log_joint(machine), 1).exp().view(K, K, K)
    for first, second in product(range(K), repeat=2):
        known = group(*np.array([[0, 0], [0, 1], [first, second]]), size=1, n_columns=M, n_levels=K)
        scores = machine.level_scores(machine.inputs(known), torch.tensor([2]), exact=True)
        brute = weights[first, second] / weights[first, second].sum()
        torch.testing.assert_close(torch.softmax(scores, 1)[0], brute)


def test_a_rating_given_hidden_units_and_the_mean_field_prediction(machine: Machine) -> None:
    joint = log_joint(machine).exp().view(K, K, K, -1).sum((0, 1))  # (K, 2^F) of the last column
    brute = (joint / joint.sum(0)).T
    certain = 80 * HIDDEN - 40  # inputs at which the mean hidden state is 0 or 1
    scores = machine.level_scores(certain, torch.full((len(certain),), 2), exact=False)
    torch.testing.assert_close(torch.softmax(scores, 1), brute)


def test_a_long_gibbs_chain_draws_from_the_model(machine: Machine) -> None:
    weights = torch.logsumexp(log_joint(machine), 1).softmax(0)
    count = 20_000
    start = ratings_of(torch.zeros(count, M, dtype=torch.int64))
    random = torch.Generator().manual_seed(1)
    drawn = machine.gibbs(start, 60, random).levels.reshape(M, count).astype(np.int64)
    state = np.ravel_multi_index(tuple(drawn), (K,) * M)
    found = np.bincount(state, minlength=K**M) / count
    spread = torch.sqrt(weights * (1 - weights) / count).numpy()
    assert np.all(np.abs(found - weights.numpy()) < 4.5 * spread)


def test_contrastive_divergence_tends_to_the_gradient_of_the_likelihood(
    machine: Machine,
) -> None:
    parameters = [tensor.requires_grad_() for tensor in vars(machine).values()]
    likelihood = torch.logsumexp(log_joint(machine), 1).log_softmax(0)
    exact = torch.autograd.grad(-likelihood[5], parameters)
    count = 20_000
    data = ratings_of(VISIBLE[5].repeat(count, 1))
    with torch.no_grad():
        sample = machine.gibbs(data, 60, torch.Generator().manual_seed(2))
    cost = (machine.free_energy(data) - machine.free_energy(sample)) / count
    for ours, wanted in zip(torch.autograd.grad(cost, parameters), exact, strict=True):
        torch.testing.assert_close(ours, wanted, atol=4.5 * 0.5 / count**0.5, rtol=0)


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
    W, b, c = (tensor.requires_grad_() for tensor in vars(machine).values())
    torch.autograd.backward(machine.free_energy(ratings_of(VISIBLE[3:8])))
    _centre_gradients(machine)
    mean = torch.sigmoid(c.detach())
    start = (b + W @ mean).detach().requires_grad_()  # b' of the scores b' + W·(h − mean)
    centred = Machine(W, start - W @ mean, c)
    d_W, d_start = torch.autograd.grad(centred.free_energy(ratings_of(VISIBLE[3:8])), (W, start))
    torch.testing.assert_close(W.grad, d_W)
    # A step of W and b' moves b = b' − W·mean by as much.
    torch.testing.assert_close(b.grad, d_start - d_W @ mean)


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
    batch = grouped(rows, np.array([2, 1, 0]), np.arange(5, dtype=np.float32))
    assert batch.size == 3
    assert batch.starts.tolist() == [0, 2, 4, 5]
    assert batch.rows.tolist() == [0, 2, 0, 2, 0]
    assert batch.levels.tolist() == [0, 1, 1, 0, 2]
    assert batch.weights.tolist() == [3, 1, 4, 0, 2]


def test_what_nobody_rated_gets_frequencies() -> None:
    made = synthetic(30, 20, 300, seed=1).ratings
    known = made.select((made.users != 3) & (made.items != 4))
    model = RBM(side="item", hidden=3, epochs=1)
    model.fit(known, known.select(np.zeros(len(known), bool)))
    chances = model.probabilities(np.array([3, 0, -1, 3]), np.array([0, 4, -1, 4]))
    share = np.bincount(known.levels, minlength=5) / len(known)
    np.testing.assert_allclose(chances[2], share, atol=1e-4)
    np.testing.assert_allclose(chances[3], share, atol=1e-4)
    for at, own in ((0, known.items == 0), (1, known.users == 0)):
        counts = np.bincount(known.levels[own], minlength=5)
        expected = (counts + share) / (counts.sum() + 1)
        np.testing.assert_allclose(chances[at], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"side": "row"}, r"side \(='row'\) must be one of user, item"),
        ({"hidden": 0}, r"hidden \(=0\) must be a whole number of 1 or more"),
        ({"momentum": 1.0}, r"momentum \(=1.0\) must be below 1"),
        ({"learning_rate": 0}, r"learning_rate \(=0\) must be a number above 0"),
        ({"exact": 1}, r"exact \(=1\) must be true or false"),
    ],
)
def test_bad_options_are_refused(option: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        RBM(**option)
