"""The fused step against torch's Adam and against a plain transcription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels.adam import Rule
from cfnade.kernels.dense import Network
from cfnade.kernels.grouping import Grouped
from cfnade.kernels.layout import Array, scratch_of, shape_of
from cfnade.kernels.sampling import DrawnBatch, Sampler
from cfnade.kernels.step import Engine
from cfnade.kernels.targets import cost_of_scores
from cfnade.models import CFNADE, Batch

M, K, ROWS = 40, 5, 30
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {"hidden": (20,)},
    "unshared": {"hidden": (20,), "shared": False},
    "factored": {"hidden": (20,), "factors": 6},
    "deep": {"hidden": (20, 12)},
    "deep-factored": {"hidden": (12, 20, 7), "factors": 6},
    "sqrt": {"hidden": (20,), "context_scale": "sqrt", "mean_context": 4.0},
    "regular": {"hidden": (20,), "ordinal_weight": 0.0},
    "sigmoid": {"hidden": (20,), "activation": "sigmoid"},
    "relu": {"hidden": (20, 5), "activation": "relu"},
    "softplus": {"hidden": (20, 5), "activation": "softplus"},
    "elu": {"hidden": (20, 5), "activation": "elu"},
}
# A larger eps than usual: where a gradient is nearly 0, Adam would blow rounding up to full steps.
EPS = 1e-3
BIASES = ("bias", "c")
NetworkOf = Callable[[CFNADE], Network]
Plain = Callable[[DrawnBatch], Batch]


def make_model(**fields: Any) -> CFNADE:
    model = CFNADE(**{"columns": M, "levels": K, **fields})
    generator = torch.Generator().manual_seed(1)
    model.initialise(generator)
    with torch.no_grad():
        for parameter in model.biases():
            parameter.normal_(0.0, 0.3, generator=generator)
    return model


def make_sampler(threads: int = 2) -> Sampler:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 12, ROWS)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    # The last columns are never rated: they show what happens to untouched ones.
    columns = [rng.choice(M - 5, count, replace=False) for count in counts]
    levels = rng.integers(0, K, offsets[-1]).astype(np.uint8)
    flat = np.concatenate(columns).astype(np.int32)
    return Sampler(offsets, flat, levels, n_columns=M, n_levels=K, threads=threads)


def batches(steps: int, size: int = 13) -> list[DrawnBatch]:
    sampler, rng = make_sampler(), np.random.default_rng(3)
    return [sampler.draw(rng.permutation(ROWS)[:size], seed=5, step=i) for i in range(steps)]


def rules_of(network: Network) -> dict[str, Rule]:
    """Different rates and decays, so that no two can be mixed up."""
    return {
        name: Rule(rate=0.01 * (i + 2), decay=0.02 * (i + 1) * (name not in BIASES), eps=EPS)
        for i, name in enumerate(network.named())
    }


def scale_of(model: CFNADE, batch: DrawnBatch) -> Array | None:
    mean = model.config.mean_context
    return None if mean is None else np.sqrt(mean / np.maximum(batch.counts, 1))


def engine_steps(
    model: CFNADE, network: Network, drawn: list[DrawnBatch], **how: Any
) -> list[float]:
    engine = Engine(network, rules_of(network), ordinal_weight=model.config.ordinal_weight, **how)
    return [engine.step(batch, scale=scale_of(model, batch)) for batch in drawn]


def assert_same_parameters(got: Network, wanted: Network) -> None:
    for name, tensor in wanted.named().items():
        torch.testing.assert_close(
            {name: got.named()[name].detach().double()},
            {name: tensor.detach().double()},
            rtol=1e-4,
            atol=2e-5,
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_equal_autograd_and_torchs_adam(
    variant: str, network_of: NetworkOf, plain: Plain
) -> None:
    model, reference = make_model(**VARIANTS[variant]), make_model(**VARIANTS[variant]).double()
    drawn = batches(6)
    costs = engine_steps(model, network_of(model), drawn, threads=2)

    network = network_of(reference)
    groups = [
        {"params": [network.named()[name]], "lr": rule.rate, "weight_decay": rule.decay, "eps": EPS}
        for name, rule in rules_of(network).items()
    ]
    optimiser = torch.optim.Adam(groups)
    for batch, cost in zip(drawn, costs, strict=True):
        optimiser.zero_grad()
        wanted = reference.cost(plain(batch))
        wanted.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        assert cost == pytest.approx(float(wanted.detach()), rel=1e-4)
    assert_same_parameters(network_of(model), network)


class PlainAdam:
    """Adam in numpy's words: only given columns of a table move; one v per level if rowwise."""

    def __init__(self, rowwise: bool) -> None:
        self.rowwise, self.state = rowwise, dict[str, tuple[Tensor, Tensor]]()

    def move(self, name: str, p: Tensor, rule: Rule, step: int, columns: Tensor | None) -> None:
        assert p.grad is not None
        table = p.ndim == 3
        m, v = self.state.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
        which = slice(None) if columns is None else columns
        g = p.grad[which] + rule.decay * p.data[which]
        square = g.square().mean(2, keepdim=True) if self.rowwise and table else g.square()
        m[which] = 0.9 * m[which] + 0.1 * g
        v[which] = 0.999 * v[which] + 0.001 * square
        spread = (v[which] / (1 - 0.999**step)).sqrt() + rule.eps
        p.data[which] -= rule.rate * (m[which] / (1 - 0.9**step)) / spread


@pytest.mark.parametrize("rowwise", [True, False])
@pytest.mark.parametrize("touched_only", [True, False])
@pytest.mark.parametrize("variant", ["full", "factored"])
def test_touched_columns_and_rowwise_moments_equal_a_transcription(
    variant: str, touched_only: bool, rowwise: bool, network_of: NetworkOf, plain: Plain
) -> None:
    model, reference = make_model(**VARIANTS[variant]), make_model(**VARIANTS[variant]).double()
    drawn = batches(6, size=4)
    engine_steps(
        model, network_of(model), drawn, threads=2, touched_only=touched_only, rowwise=rowwise
    )
    network = network_of(reference)
    adam = PlainAdam(rowwise)
    for step, batch in enumerate(drawn, 1):
        reference.zero_grad()
        reference.cost(plain(batch)).backward()  # type: ignore[no-untyped-call]
        known = torch.from_numpy(batch.context.touched.astype(np.int64))
        wanted = torch.from_numpy(batch.targets.touched.astype(np.int64))
        which = {"input_table": known, "output_table": wanted, "bias": wanted}
        for name, rule in rules_of(network).items():
            columns = which.get(name) if touched_only else None
            adam.move(name, network.named()[name], rule, step, columns)
    assert_same_parameters(network_of(model), network)


def test_untouched_columns_stay_only_if_told_so(network_of: NetworkOf) -> None:
    start = make_model().input_table.detach().clone()
    for touched_only in (True, False):
        model = make_model()
        engine_steps(model, network_of(model), batches(2), touched_only=touched_only)
        never = model.input_table.detach()[M - 5 :]
        assert torch.equal(never, start[M - 5 :]) is touched_only


@pytest.mark.parametrize("variant", ["full", "deep-factored"])
def test_same_bits_twice_and_close_for_any_threads(variant: str, network_of: NetworkOf) -> None:
    def train(threads: int) -> dict[str, Tensor]:
        model = make_model(**VARIANTS[variant])
        engine_steps(model, network_of(model), batches(5), threads=threads)
        return network_of(model).named()

    first, second, single, three = train(2), train(2), train(1), train(3)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        torch.testing.assert_close(tensor, single[name], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tensor, three[name], rtol=1e-4, atol=1e-5)


def with_order(grouped: Grouped) -> Grouped:
    return grouped._replace(order=np.arange(len(grouped.rows)))


def test_scores_apart_from_costs_make_the_same_step(network_of: NetworkOf) -> None:
    """What a model of two engines does: scores, cost of their sum, back into the engine."""
    model, other = make_model(), make_model()
    one = Engine(network_of(model), rules_of(network_of(model)), threads=2)
    two = Engine(network_of(other), rules_of(network_of(other)), threads=2)
    for batch in batches(4):
        cost = one.step(batch)
        targets = with_order(batch.targets)
        two.encode(batch.context)
        two.begin()
        scores = np.zeros((len(targets.rows), K), np.float32)
        two.add_scores(targets, scores)
        slopes, scratch = np.empty_like(scores), scratch_of(np.float32, shape_of(K, 1))
        weights = targets.weights / np.float32(batch.size)
        flat = (scores.reshape(-1), targets.levels, weights, 1.0, slopes.reshape(-1), scratch)
        assert cost_of_scores(0, len(weights), *flat) == pytest.approx(cost, rel=1e-5)
        two.fit_scores(targets, slopes)
        two.fit_context(batch.context)
    for name, tensor in one.network.named().items():
        torch.testing.assert_close(tensor, two.network.named()[name], rtol=1e-5, atol=1e-6)


def test_training_with_kernels_and_with_torch_stays_together(
    network_of: NetworkOf, plain: Plain
) -> None:
    """Five epochs of the usual Adam, float32 both: the costs agree, and they fall."""
    model, reference = make_model(), make_model()
    drawn = batches(15)
    network = network_of(model)
    rules = {name: Rule(5e-3, 1e-3 * (name not in BIASES)) for name in network.named()}
    engine = Engine(network, rules)
    groups: list[dict[str, Any]] = [
        {"params": reference.weights(), "weight_decay": 1e-3},
        {"params": reference.biases()},
    ]
    optimiser = torch.optim.Adam(groups, lr=5e-3)
    costs = []
    for batch in drawn * 2:
        optimiser.zero_grad()
        cost = reference.cost(plain(batch))
        cost.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        costs.append((engine.step(batch), float(cost.detach())))
    got, wanted = np.array(costs).T
    np.testing.assert_allclose(got, wanted, rtol=2e-3)
    assert got[15:].mean() < 0.8 * got[:15].mean()


def test_a_rate_factor_scales_the_step(network_of: NetworkOf) -> None:
    model = make_model()
    start = model.V.detach().clone()
    Engine(network_of(model), rules_of(network_of(model))).step(batches(1)[0], rate=0.0)
    assert torch.equal(model.V.detach(), start)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": torch.zeros(M, K + 1)}, "bias has shape"),
        ({"c": torch.zeros(3)}, r"c has shape \(3,\); it must be \(20,\)"),
        ({"B": torch.zeros(20, 20)}, "B and Q come together"),
        ({"activation": "sine"}, r"activation \(='sine'\) must be one of tanh"),
        ({"output_table": torch.zeros(M, K, 7)}, "output_table has width 7; the last hidden layer"),
        (
            {"input_table": torch.zeros(M, K, 20, dtype=torch.int32)},
            "input_table has dtype torch.int32",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused(
    change: dict[str, Any], message: str, network_of: NetworkOf
) -> None:
    network = network_of(make_model(hidden=(20,)))
    with pytest.raises(ModelError, match=message):
        Engine(replace(network, **change), rules_of(network))


def test_rules_must_name_every_parameter(network_of: NetworkOf) -> None:
    network = network_of(make_model())
    with pytest.raises(ModelError, match=r"these differ: \['c'\]"):
        Engine(network, {n: r for n, r in rules_of(network).items() if n != "c"})


def test_an_empty_batch_is_refused(network_of: NetworkOf) -> None:
    network = network_of(make_model())
    batch = make_sampler().draw(np.empty(0, np.int64), seed=0, step=0)
    with pytest.raises(ModelError, match="the batch has 0 rows"):
        Engine(network, rules_of(network)).step(batch)
