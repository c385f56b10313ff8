"""Written-out gradients against autograd of the plain network; sampled softmaxes; steps of Adam."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.implicit.cases import M, some_network, some_rows

from cfnade.exceptions import TrainingError
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade import SetNade
from cfnade.implicit.set_nade_training import (
    Candidates,
    CandidateSampler,
    FusedAdam,
    SetBatch,
    SetNadeSettings,
    initial_network,
    sample_batch,
    training_loop,
    write_gradients,
)
from cfnade.models.batch import Context
from cfnade.models.set_nade import SetNADENetwork, SetTargets, set_nade_cost
from cfnade.training.loop import TrainingLoop
from cfnade.training.state import StateStore

SETTINGS = SetNadeSettings(hidden=5, batch=8, epochs=4, learning_rate=0.01, weight_decay=0.02)
CHECKED = replace(SETTINGS, check_every=1)
PEOPLE = np.arange(12)


def context_of(rows: InteractionRows) -> Context:
    columns = torch.from_numpy(rows.columns.astype(np.int64))
    return Context(torch.from_numpy(rows.indptr), columns, torch.zeros_like(columns))


def as_plain(drawn: SetBatch) -> SetTargets:
    """The same draw for the plain network."""
    return SetTargets(
        context_of(drawn.context),
        torch.from_numpy(drawn.context.weights).double(),
        torch.from_numpy(drawn.rows),
        torch.from_numpy(drawn.columns),
        drawn.weights.double(),
    )


def double(network: SetNADENetwork) -> SetNADENetwork:
    copy = SetNADENetwork(network.config)
    copy.load_state_dict(network.state_dict())
    return copy.double()


def with_grads(network: SetNADENetwork) -> SetNADENetwork:
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)  # all of it must be written
    return network


def slope_of(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def plain_cost(network: SetNADENetwork, drawn: SetBatch, candidates: Candidates) -> Any:
    """The sampled softmax, written out over candidates that stand for e^log_weights items each."""
    plain = as_plain(drawn)
    scores = network.scores(plain.context, plain.context_weights)
    stands = torch.full((network.config.columns,), -torch.inf, dtype=torch.float64)
    stands[torch.from_numpy(candidates.items)] = candidates.log_weights.double()
    known = torch.zeros(scores.shape, dtype=torch.bool)
    known[plain.context.rows(), plain.context.columns] = True
    logs = (scores + stands).masked_fill(known, -torch.inf).log_softmax(1)
    return -(plain.weights * logs[plain.rows, plain.columns]).sum() / plain.context.size


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("head", [0, 2])
def test_gradients_are_those_of_autograd(weighted: bool, head: int) -> None:
    rows = some_rows(weighted=weighted)
    settings = replace(SETTINGS, head=head, tail=2, target_power=0.7)
    drawn = sample_batch(rows, PEOPLE, settings, 3)
    drawn = drawn._replace(**few_targets(drawn, 3 if head else M))
    candidates = CandidateSampler(rows, settings).sample(drawn.columns, 3)
    assert (len(candidates.items) < M) == bool(head)
    network = with_grads(some_network())
    found = write_gradients(network, drawn, candidates)
    plain = double(network)
    cost = plain_cost(plain, drawn, candidates)
    if not head:
        torch.testing.assert_close(cost, set_nade_cost(plain, as_plain(drawn)))
    cost.backward()
    assert found == pytest.approx(float(cost.detach()), rel=1e-5)
    for name, parameter in network.named_parameters():
        expected = slope_of(plain.get_parameter(name)).float()
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def few_targets(drawn: SetBatch, below: int) -> dict[str, Any]:
    """Only targets among the first items, so that a tail is left to be sampled."""
    keep = drawn.columns < below
    return {
        "rows": drawn.rows[keep],
        "columns": drawn.columns[keep],
        "weights": drawn.weights[torch.from_numpy(keep)],
    }


def test_slopes_do_not_reach_what_is_known() -> None:
    """An item that everybody has in their context is in no softmax: nothing moves its output."""
    rows = some_rows()
    item = int(rows.columns[0])
    context = rows.where(np.ones(len(rows.columns), bool)).select(
        np.unique(rows.rows[rows.columns == item]).astype(np.int64)
    )
    others = np.setdiff1d(np.arange(M), context.columns[: context.counts[0]])[:1]
    target = SetBatch(context, np.zeros(1, np.int64), others.astype(np.int64), torch.ones(1))
    for head in (0, 1):
        settings = replace(SETTINGS, head=head, tail=3)
        network = with_grads(some_network())
        write_gradients(network, target, CandidateSampler(rows, settings).sample(target.columns, 0))
        assert float(slope_of(network.V)[item].abs().max()) < 1e-30
        assert float(slope_of(network.b)[item].abs()) < 1e-30
        assert float(slope_of(network.b).sum()) == pytest.approx(0.0, abs=1e-6)


# -- the sampled softmax ---------------------------------------------------------------------------


def test_a_tail_that_holds_the_rest_is_the_exact_softmax() -> None:
    """The targets of a batch may leave less than a tail: then everything is there, in its order."""
    rows = some_rows()
    drawn = sample_batch(rows, PEOPLE, SETTINGS, 1)
    drawn = drawn._replace(**few_targets(drawn, 4))
    whole, exact = with_grads(some_network()), 0
    cost = write_gradients(whole, drawn, CandidateSampler(rows, SETTINGS).sample(drawn.columns, 1))
    for tail in range(1, M + 2):
        candidates = CandidateSampler(rows, replace(SETTINGS, head=2, tail=tail)).sample(
            drawn.columns, 1
        )
        if len(candidates.items) < M:
            continue
        exact += 1
        network = with_grads(some_network())
        assert write_gradients(network, drawn, candidates) == cost
        for one, other in zip(whole.parameters(), network.parameters(), strict=True):
            assert torch.equal(slope_of(one), slope_of(other))
    assert 0 < exact < M


def test_the_partition_sum_is_right_on_average() -> None:
    columns, draws = 40, 3000
    rows = some_rows(50, columns=columns)
    settings = replace(SETTINGS, head=5, tail=6)
    pool, rng = CandidateSampler(rows, settings), np.random.default_rng(0)
    odds, targets = np.exp(rng.normal(size=columns)), np.array([39, 20, 39])
    known = np.array([0, 7, 30])  # left out of every sum, as the softmax masks them
    odds[known] = 0.0
    sums = np.empty(draws)
    for step in range(draws):
        found = pool.sample(targets, step)
        assert len(np.unique(found.items)) == len(found.items)
        assert (found.place[found.items] == np.arange(len(found.items))).all()
        assert (found.place[targets] >= 0).all()
        assert np.count_nonzero(found.place >= 0) == len(found.items) == 5 + 2 + 6
        sums[step] = (odds[found.items] * np.exp(found.log_weights.numpy())).sum()
    error = sums.std() / np.sqrt(draws)
    assert error > 0
    assert abs(sums.mean() - odds.sum()) < 4 * error


# -- draws and the start ---------------------------------------------------------------------------


def test_a_draw_parts_each_persons_rows_and_weighs_targets() -> None:
    rows = some_rows(200, weighted=True)
    settings = replace(SETTINGS, context_rate=0.25, target_power=0.5)
    people = np.random.default_rng(0).permutation(200)
    shares = []
    for step in range(8):
        drawn = sample_batch(rows, people, settings, step)
        mine = rows.select(people)
        targets = set(zip(drawn.rows.tolist(), drawn.columns.tolist(), strict=True))
        known = set(zip(drawn.context.rows.tolist(), drawn.context.columns.tolist(), strict=True))
        whole = set(zip(mine.rows.tolist(), mine.columns.tolist(), strict=True))
        assert targets | known == whole
        assert not targets & known
        counts = np.bincount(drawn.rows, minlength=200)
        weight_of = dict(
            zip(
                zip(mine.rows.tolist(), mine.columns.tolist(), strict=True),
                mine.weights,
                strict=True,
            )
        )
        for row, column, weight in zip(drawn.rows, drawn.columns, drawn.weights, strict=True):
            expected = weight_of[(int(row), int(column))] / np.sqrt(counts[row])
            assert float(weight) == pytest.approx(float(expected), rel=1e-5)
        shares.append(len(known) / len(whole))
    assert np.mean(shares) == pytest.approx((0.25 + 1) / 2, abs=0.02)


def test_the_start_says_how_often_items_are_picked() -> None:
    rows = some_rows(weighted=True)
    network = initial_network(rows, SETTINGS)
    weights = np.bincount(rows.columns, rows.weights, minlength=M)
    expected = np.log(weights + 1) - np.log(weights.mean())
    np.testing.assert_allclose(network.b.detach(), expected, rtol=1e-5)
    people = np.count_nonzero(rows.counts)
    assert network.config.mean_count == pytest.approx(float(rows.weights.sum()) / people)
    bound = np.sqrt(6 / (M + 5))
    for table in (network.W.detach(), network.V.detach()):
        assert float(table.abs().max()) <= bound
        assert float(table.std()) == pytest.approx(bound / np.sqrt(3), rel=0.25)


# -- steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("falls", [False, True])
def test_a_run_is_torchs_adam_on_the_written_out_cost(falls: bool) -> None:
    """With decay (‖W‖² + ‖V‖²), batches, rates and averages as they are documented."""
    rows, settings = some_rows(), replace(SETTINGS, falls=falls, average_every=2, average=0.6)
    loop = training_loop(rows, settings)
    network, averaged = loop.model, loop._average.module  # type: ignore[union-attr]
    plain = double(network)
    adam = torch.optim.Adam(plain.parameters(), lr=settings.learning_rate)
    average = {name: t.detach().clone() for name, t in plain.named_parameters()}
    people = np.flatnonzero(rows.counts > 1)
    steps = -(-len(people) // settings.batch)
    step = 0
    for epoch in range(settings.epochs):
        order = np.random.default_rng((settings.seed, 1, epoch, 0)).permutation(people)
        for batch in np.array_split(order, steps):
            drawn = sample_batch(rows, np.sort(batch), settings, step)
            rate = settings.learning_rate
            if falls:
                rate *= min(1, max(0.05, 2 * (1 - step / (steps * settings.epochs))))
            adam.param_groups[0]["lr"] = rate
            adam.zero_grad()
            decay = settings.weight_decay * (plain.W.square().sum() + plain.V.square().sum())
            cost: Any = set_nade_cost(plain, as_plain(drawn)) + decay
            cost.backward()
            adam.step()
            step += 1
            if step % 2 == 0:
                keep = min(0.6, (1 + step / 2) / (4 + step / 2))
                for name, tensor in plain.named_parameters():
                    average[name] = keep * average[name] + (1 - keep) * tensor.detach()
    loop.restore_best = lambda: None  # type: ignore[method-assign]
    loop.run()
    assert loop.state.step == step
    for name, tensor in network.named_parameters():
        torch.testing.assert_close(
            tensor.detach().double(), plain.get_parameter(name).detach(), rtol=1e-3, atol=2e-4
        )
        torch.testing.assert_close(
            averaged.get_parameter(name).double(), average[name], rtol=1e-3, atol=2e-4
        )


def test_who_picked_one_thing_is_not_trained_on() -> None:
    """Nothing is left to know them by; where there are no others the start stays."""
    rows = some_rows().select(np.array([0, 1, 3, 4]))
    first = rows.where(np.isin(np.arange(len(rows.columns)), rows.indptr[:-1]))
    assert (first.counts == 1).all()
    loop = training_loop(first, SETTINGS)
    before = [parameter.detach().clone() for parameter in loop.model.parameters()]
    loop.run()
    assert [record["cost"] for record in loop.state.history] == [0.0] * SETTINGS.epochs
    for one, other in zip(before, loop.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_scores_are_those_of_the_plain_network() -> None:
    rows, network = some_rows(), some_network()
    expected = double(network).scores(context_of(rows)).detach()
    found = torch.from_numpy(SetNade.of_network(network).scores(rows)).double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_training_stops_when_validation_no_longer_improves() -> None:
    """And keeps the weights of the best epoch."""
    values = iter([0.1, 0.3, 0.2, 0.25, 0.29])
    settings = replace(SETTINGS, epochs=50, check_every=2, patience=2)
    seen: list[torch.Tensor] = []

    def validate(network: SetNADENetwork) -> dict[str, float]:
        seen.append(network.V.detach().clone())
        return {"ndcg": next(values)}

    loop = training_loop(some_rows(), settings, validate=validate)
    loop.run()
    assert loop.selected_epochs == 4
    scores = [record["valid_ndcg"] for record in loop.state.history]
    assert scores == [None, 0.1, None, 0.3, None, 0.2, None, 0.25]
    assert torch.equal(loop.model.V, seen[1])


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_resumed_training_ends_with_the_same_bits(steps: int, tmp_path: Path) -> None:
    """Interrupted after any step: in the middle of an epoch, or between two."""
    scores = [0.1, 0.3, 0.2, 0.25]

    def loop(**options: Any) -> TrainingLoop:
        found = iter(scores)
        validate = lambda _: {"ndcg": next(found)}  # noqa: E731
        return training_loop(some_rows(), CHECKED, validate=validate, **options)

    whole = loop()
    whole.run()
    first = loop(store=StateStore(tmp_path, seconds=0.0))
    real = first.stepper.step

    def step(batch: Any, *, rate: float) -> float:
        if first.state.step == steps:
            raise KeyboardInterrupt
        return real(batch, rate=rate)

    first.stepper.step = step  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.run()
    again = loop(store=StateStore(tmp_path, resume=True))
    again.validate = lambda _: {"ndcg": scores[again.state.epoch - 1]}
    assert again.state.step == steps
    again.run()
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert again.selected_epochs == whole.selected_epochs == 2


@pytest.mark.parametrize("name", ["hidden", "batch", "learning_rate", "context_rate", "average"])
def test_settings_out_of_bounds_are_named(name: str) -> None:
    with pytest.raises(TrainingError, match=name):
        SetNadeSettings(**{name: -1})  # type: ignore[arg-type]


def test_fused_adam_has_the_bits_of_torchs_own() -> None:
    shapes, decays = [(7, 3), (5, 3), (3,), (5,)], (0.02, 0.0)
    torch.manual_seed(0)
    ours = [torch.randn(shape) for shape in shapes]
    theirs = [tensor.clone() for tensor in ours]
    adam = FusedAdam([(ours[:2], decays[0]), (ours[2:], decays[1])])
    groups = [
        {"params": theirs[:2], "weight_decay": decays[0]},
        {"params": theirs[2:], "weight_decay": decays[1]},
    ]
    reference = torch.optim.Adam(groups, fused=True)
    for rate in (0.1, 0.03, 0.01):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        adam.step(rate)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_training_does_not_import_torchs_compiler() -> None:
    code = (
        "import sys, cfnade.implicit.set_nade_training as training, torch\n"
        "parameter = torch.ones(2)\n"
        "parameter.grad = torch.ones(2)\n"
        "training.FusedAdam([([parameter], 0.0)]).step(0.1)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
