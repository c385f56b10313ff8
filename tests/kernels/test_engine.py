"""The training step in all its variants against autograd and Adam on the paper's equations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels import reference
from tests.kernels.cases import (
    COLUMNS,
    ROWS,
    Case,
    Parameters,
    batch_of,
    parameters,
    plain,
    rules_of,
)
from tests.kernels.reference import Params, assert_close
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.block_sampling import BlockBatch, BlockSampler
from cfnade.kernels.buffers import Array
from cfnade.kernels.engine import Engine
from cfnade.kernels.ordinal_cost import cost_of_scores
from cfnade.kernels.sampling import GroupedBatch, RowSampler

CASE = Case(20, 5, torch.float32, 2, True)
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "factored": {"hidden": (29,), "factors": True},
    "deep": {"hidden": (20, 12)},
    "deep-factored": {"hidden": (32, 12, 27), "factors": True},
    "sigmoid": {"activation": "sigmoid"},
    "relu": {"hidden": (20, 5), "activation": "relu"},
}


def right_cost(
    params: Params, batch: GroupedBatch, net: Parameters, scale: Array | None = None, **how: Any
) -> Tensor:
    return reference.batch_cost(
        params,
        plain(batch.context),
        plain(batch.targets),
        ROWS,
        shared=net.shared,
        activation=net.activation,
        scale=None if scale is None else torch.from_numpy(scale),
        **how,
    )


def assert_same(net: Parameters, params: Params, **error: float) -> None:
    for name, p in params.items():
        assert_close(net.tensors[name], p, **({"single": 2e-4, "double": 1e-9} | error))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_layer_moves_as_autograd_and_torchs_adam_say(
    variant: str, dtype: torch.dtype
) -> None:
    """With sums scaled row by row, and twice the rate in the second step."""
    case = replace(CASE, dtype=dtype)
    net = parameters(case, **VARIANTS[variant])
    params, rules = reference.leaves(net.tensors), rules_of(net)
    engine, adam = net.engine(rules, threads=2), reference.torch_adam(params, rules)
    for number, rate in enumerate((1.0, 2.0, 1.0)):
        batch = batch_of(case, number)
        scale = np.sqrt(3.0 / np.maximum(batch.context_sizes, 1))
        cost = engine.step(batch, scale=scale, rate=rate)
        adam.zero_grad()
        expected = right_cost(params, batch, net, scale)
        expected.backward()  # type: ignore[no-untyped-call]
        for group, rule in zip(adam.param_groups, rules.values(), strict=True):
            group["lr"] = rule.rate * rate
        adam.step()
        assert cost == pytest.approx(float(expected.detach()), rel=1e-5)
    assert_same(net, params)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("width", [4, 17, 70])
def test_touched_columns_and_shared_moments(width: int, sparse: bool) -> None:
    case = replace(CASE, width=width, dtype=torch.float32 if width > 4 else torch.float64)
    net = parameters(case)
    params, rules = reference.leaves(net.tensors), rules_of(net)
    engine = net.engine(rules, threads=2, sparse=sparse)
    adam = reference.Adam(rules, rowwise=sparse)
    for number in range(4):
        batch = batch_of(case, number)
        engine.step(batch)
        right_cost(params, batch, net).backward()  # type: ignore[no-untyped-call]
        context, targets = (g.present.astype(np.int64) for g in (batch.context, batch.targets))
        assert len(context) < COLUMNS
        assert len(targets) < COLUMNS
        touched = {"input_table": context, "output_table": targets, "bias": targets}
        adam.step(params, {n: torch.from_numpy(c) for n, c in touched.items()} if sparse else {})
    assert_same(net, params)
    for name, (first, second) in engine.parameters.moments.items():
        together = sparse and first.ndim == 3
        assert_close(first, adam.m[name], single=2e-4)
        assert_close(second, adam.v[name][..., 0] if together else adam.v[name], single=2e-4)


@pytest.mark.parametrize("variant", ["full", "deep-factored"])
def test_same_bits_twice_and_close_for_any_threads(variant: str) -> None:
    def train(threads: int) -> dict[str, Tensor]:
        net = parameters(CASE, **VARIANTS[variant])
        engine = net.engine(rules_of(net), threads=threads)
        for number in range(4):
            engine.step(batch_of(CASE, number))
        return net.tensors

    first, second, single, three = train(2), train(2), train(1), train(3)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert_close(tensor, single[name], single=2e-4)
        assert_close(tensor, three[name], single=2e-4)


def test_a_drawn_batch_trains_as_its_cells_do() -> None:
    """What the sampler gives the kernels is what it gives everybody else."""
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 8, ROWS)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([rng.choice(COLUMNS, n, replace=False) for n in counts])
    levels = rng.integers(0, 5, len(columns)).astype(np.uint8)
    data = (offsets, columns.astype(np.int32), levels)
    sampler = RowSampler(*data, n_columns=COLUMNS, n_levels=5, threads=2)
    net = parameters(CASE)
    params, rules = reference.leaves(net.tensors), rules_of(net)
    engine, adam = net.engine(rules, threads=2), reference.torch_adam(params, rules)
    for step in range(4):
        batch = sampler.sample(rng.permutation(ROWS)[:40], seed=5, step=step)
        adam.zero_grad()
        cells = batch.context_cells(), batch.target_cells()
        context, targets = (reference.Cells.of(*part) for part in cells)
        expected = reference.batch_cost(params, context, targets, batch.size)
        expected.backward()  # type: ignore[no-untyped-call]
        adam.step()
        assert engine.step(batch) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert_same(net, params)


# -- two engines whose scores are added -----------------------------------------------------------

USERS, ITEMS = 30, 40


def sampler_of(**changes: Any) -> BlockSampler:
    rng = np.random.default_rng(2)
    table = np.where(rng.random((USERS, ITEMS)) < 0.4, rng.integers(0, 5, (USERS, ITEMS)), -1)

    def ragged(table: Array) -> tuple[Array, Array, Array]:
        rows, columns = np.nonzero(table >= 0)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(table)))])
        return offsets, columns.astype(np.int32), table[rows, columns].astype(np.uint8)

    how: dict[str, Any] = {"columns": 15, "n_levels": 5, "rate": (0.7, 1.0), "threads": 2}
    return BlockSampler(ragged(table), ragged(table.T.copy()), **(how | changes))


@dataclass
class Pair:
    """Both sides of a model."""

    networks: tuple[Parameters, Parameters]
    engines: tuple[Engine, Engine]

    @staticmethod
    def of(case: Case, **how: Any) -> Pair:
        networks = (
            parameters(case, columns=ITEMS),
            parameters(replace(case, width=17), columns=USERS),
        )
        user, item = (net.engine(rules_of(net), **how) for net in networks)
        return Pair(networks, (user, item))

    def step(self, block: BlockBatch, ordinal_weight: float) -> float:
        scores = np.zeros((block.n_targets, 5), self.networks[0].tensors["bias"].numpy().dtype)
        for engine, side in zip(self.engines, (block.user, block.item), strict=True):
            engine.encode(side.context)
            engine.add_scores(side.targets, scores)
        targets = block.user.targets
        weights = targets.weights.astype(float) / block.n_targets
        how: dict[str, Any] = {"ordinal_weight": ordinal_weight, "threads": 2}
        cost = cost_of_scores(scores, targets.levels, weights, **how)
        for engine, side in zip(self.engines, (block.user, block.item), strict=True):
            engine.start_step()
            engine.fit_scores(side.targets, cost.gradient)
            engine.fit_context(side.context)
        return cost.total


def summed_cost(
    params: list[Params], block: BlockBatch, shared: bool, ordinal_weight: float
) -> Tensor:
    """The mean cost of the block's targets, both sides' cells in the block's one order."""
    scores = torch.zeros(block.n_targets, 5, dtype=torch.float64)
    for p, side in zip(params, (block.user, block.item), strict=True):
        context = reference.Cells.of(*side.context_cells())
        targets = reference.Cells.of(*side.target_cells())
        state = reference.states(p, context, side.size, shared=shared, activation="tanh")
        cells = targets.rows, targets.columns
        scores = scores + reference.cell_scores(state, p["output_table"], p["bias"], *cells, shared)
    return reference.costs(scores, targets.levels, ordinal_weight).mean()


@pytest.mark.parametrize(("shared", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_two_sides_move_down_one_cost(shared: bool, dtype: torch.dtype) -> None:
    case = replace(CASE, shared=shared, dtype=dtype)
    pair, sampler, rng = Pair.of(case, threads=2), sampler_of(), np.random.default_rng(3)
    params = [reference.leaves(net.tensors) for net in pair.networks]
    adams = [
        reference.torch_adam(p, rules_of(net)) for p, net in zip(params, pair.networks, strict=True)
    ]
    for step in range(4):
        block = sampler.sample(rng.permutation(USERS)[:12], seed=3, step=step)
        for adam in adams:
            adam.zero_grad()
        expected = summed_cost(params, block, shared, 0.4)
        expected.backward()  # type: ignore[no-untyped-call]
        for adam in adams:
            adam.step()
        assert pair.step(block, 0.4) == pytest.approx(float(expected.detach()), rel=1e-4)
    for net, p in zip(pair.networks, params, strict=True):
        assert_same(net, p)


def test_of_two_sides_touched_columns_alone_move_if_told_so() -> None:
    pair, start = Pair.of(CASE, threads=2, sparse=True), Pair.of(CASE)
    block = sampler_of().sample(np.arange(12), seed=3, step=0)
    pair.step(block, 1.0)
    for moved, old, side in zip(
        pair.networks, start.networks, (block.user, block.item), strict=True
    ):
        for name, grouped in (("output_table", side.targets), ("input_table", side.context)):
            differs = (moved.tensors[name] != old.tensors[name]).any(2).any(1)
            assert differs.nonzero().flatten().tolist() == grouped.present.tolist()


# -- what is refused ------------------------------------------------------------------------------


def test_rules_must_name_every_parameter() -> None:
    net = parameters(CASE)
    with pytest.raises(ModelError, match=r"these differ: \['c'\]"):
        net.engine({n: r for n, r in rules_of(net).items() if n != "c"})


def test_an_empty_batch_is_refused() -> None:
    data = (np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.uint8))
    batch = RowSampler(*data, n_columns=COLUMNS, n_levels=5).sample(
        np.empty(0, int), seed=0, step=0
    )
    net = parameters(CASE)
    with pytest.raises(ModelError, match="the batch has 0 rows"):
        net.engine(dict.fromkeys(net.tensors, AdamRule())).step(batch)
