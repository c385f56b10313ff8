"""The step of two engines against autograd and torch's Adam on the plain joint model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.errors import ModelError
from cfnade.kernels.adam import Rule
from cfnade.kernels.block_sampling import Block, BlockSampler
from cfnade.kernels.dense import Network
from cfnade.kernels.joint import Joint, mean_cost
from cfnade.kernels.layout import Array
from cfnade.kernels.sampling import DrawnBatch
from cfnade.kernels.step import Engine
from cfnade.models import CFNADE, Batch, Targets
from cfnade.models.costs import hybrid_cost
from cfnade.models.joint import JointBatch, JointCFNADE

USERS, ITEMS, LEVELS = 30, 40, 5
EPS = 1e-3  # as in test_step.py: where a gradient is nearly 0, rounding would become whole steps
NetworkOf = Callable[[CFNADE], Network]
Plain = Callable[[DrawnBatch], Batch]
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {"hidden": (20,)},
    "sqrt": {"hidden": (20,), "context_scale": "sqrt", "mean_context": 4.0},
    "unshared": {"hidden": (20,), "shared": False, "ordinal_weight": 0.4},
    "factored": {"hidden": (20,), "factors": 6},
    "deep": {"hidden": (20, 12)},
}


def make_model(**fields: Any) -> JointCFNADE:
    sides = [CFNADE(columns=size, levels=LEVELS, **fields) for size in (ITEMS, USERS)]
    model = JointCFNADE(sides[0], sides[1])
    generator = torch.Generator().manual_seed(1)
    model.initialise(generator)
    with torch.no_grad():
        for side in sides:
            for parameter in side.biases():
                parameter.normal_(0.0, 0.3, generator=generator)
    return model


def blocks(count: int) -> list[Block]:
    rng = np.random.default_rng(2)
    table = np.where(rng.random((USERS, ITEMS)) < 0.4, rng.integers(0, LEVELS, (USERS, ITEMS)), -1)

    def ragged(table: Array) -> tuple[Array, Array, Array]:
        rows, columns = np.nonzero(table >= 0)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(table)))])
        return offsets, columns.astype(np.int32), table[rows, columns].astype(np.uint8)

    by_user, by_item = ragged(table), ragged(table.T.copy())
    sampler = BlockSampler(by_user, by_item, columns=15, n_levels=LEVELS, rate=(0.7, 1.0))
    return [sampler.draw(rng.permutation(USERS)[:12], seed=3, step=i) for i in range(count)]


def rules_of(network: Network) -> dict[str, Rule]:
    return {
        name: Rule(rate=0.01 * (i + 2), decay=0.02 * (i + 1) * (name not in ("bias", "c")), eps=EPS)
        for i, name in enumerate(network.named())
    }


def joint_of(model: JointCFNADE, network_of: NetworkOf, **how: Any) -> Joint:
    how = {"threads": 2, "ordinal_weight": model.config.user.ordinal_weight} | how
    networks = network_of(model.user), network_of(model.item)
    return Joint(*(Engine(network, rules_of(network), **how) for network in networks))


def step(joint: Joint, model: JointCFNADE, block: Block) -> float:
    scales = []
    for side, drawn in ((model.user, block.user), (model.item, block.item)):
        mean = side.config.mean_context
        scales.append(None if mean is None else np.sqrt(mean / np.maximum(drawn.counts, 1)))
    cost = joint.cost(block, joint.scores(block, (scales[0], scales[1])))
    joint.fit(block, cost.slopes)
    return cost.mean


def plain_block(block: Block, plain: Plain) -> JointBatch:
    """Both sides' targets in the one order."""
    sides = []
    for drawn in (block.user, block.item):
        batch, back = plain(drawn), torch.from_numpy(np.argsort(drawn.targets.order))
        targets = batch.targets
        parts = (targets.rows, targets.columns, targets.levels, targets.weights)
        sides.append(replace(batch, targets=Targets(*(part[back] for part in parts))))
    return JointBatch(sides[0], sides[1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_equal_autograd_and_torchs_adam(
    variant: str, network_of: NetworkOf, plain: Plain
) -> None:
    model, reference = make_model(**VARIANTS[variant]), make_model(**VARIANTS[variant]).double()
    joint = joint_of(model, network_of)
    networks = network_of(reference.user), network_of(reference.item)
    groups = [
        {"params": [net.named()[name]], "lr": rule.rate, "weight_decay": rule.decay, "eps": EPS}
        for net in networks
        for name, rule in rules_of(net).items()
    ]
    optimiser = torch.optim.Adam(groups)
    for block in blocks(6):
        cost = step(joint, model, block)
        optimiser.zero_grad()
        wanted = reference.cost(plain_block(block, plain))
        wanted.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        assert cost == pytest.approx(float(wanted.detach()), rel=1e-4)
    for (name, ours), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        got, right = {name: ours.detach().double()}, {name: theirs.detach()}
        torch.testing.assert_close(got, right, rtol=1e-4, atol=2e-5)


def test_touched_columns_alone_move_if_told_so(network_of: NetworkOf) -> None:
    model, start = make_model(hidden=(20,)), make_model(hidden=(20,))
    joint, block = joint_of(model, network_of, touched_only=True, rowwise=True), blocks(1)[0]
    step(joint, model, block)
    for side, drawn in (("user", block.user), ("item", block.item)):
        for table, grouped in (("V", drawn.targets), ("W", drawn.context)):
            name = f"{side}.{table}"
            moved = (model.get_parameter(name) != start.get_parameter(name)).any(2).any(1)
            assert moved.nonzero().flatten().tolist() == grouped.touched.tolist()


def test_same_bits_twice_and_close_for_any_threads(network_of: NetworkOf) -> None:
    def train(threads: int) -> torch.Tensor:
        model = make_model(hidden=(20,))
        joint = joint_of(model, network_of, threads=threads, rowwise=True, touched_only=True)
        for block in blocks(5):
            step(joint, model, block)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first = train(2)
    assert torch.equal(first, train(2))
    torch.testing.assert_close(first, train(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first, train(3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 16, 77])
def test_the_mean_cost_and_its_slopes_are_autograds(count: int, threads: int) -> None:
    rng = np.random.default_rng(count)
    scores, levels = rng.normal(size=(count, 4)), rng.integers(0, 4, count).astype(np.uint8)
    found = mean_cost(scores, levels, ordinal_weight=0.7, threads=threads)
    given = torch.from_numpy(scores.copy()).requires_grad_()
    wanted = hybrid_cost(given, torch.from_numpy(levels.astype(np.int64)), 0.7).mean()
    wanted.backward()  # type: ignore[no-untyped-call]
    assert found.mean == pytest.approx(float(wanted.detach()), rel=1e-12)
    assert given.grad is not None
    np.testing.assert_allclose(found.slopes, given.grad.numpy(), rtol=1e-9, atol=1e-14)


def test_engines_with_different_costs_are_refused(network_of: NetworkOf) -> None:
    model = make_model(hidden=(20,))
    networks = network_of(model.user), network_of(model.item)
    engines = [
        Engine(network, rules_of(network), ordinal_weight=weight)
        for network, weight in zip(networks, (1.0, 0.5), strict=True)
    ]
    with pytest.raises(ModelError, match="one cost needs one"):
        Joint(*engines)
