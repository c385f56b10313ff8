"""A model starts where the authors' does, with output biases from smoothed frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.models import CFNADEConfig, CFNADENetwork, Context
from cfnade.models.initialization import level_steps, smoothed_log_frequencies


def test_nothing_is_random_but_initialise(generator: torch.Generator) -> None:
    before = torch.get_rng_state()
    model = CFNADENetwork(CFNADEConfig(columns=3, levels=2, hidden=(4, 3)))
    assert not any(p.any() for p in model.parameters())
    model.initialise(generator)
    again = CFNADENetwork(CFNADEConfig(columns=3, levels=2, hidden=(4, 3)))
    again.initialise(torch.Generator().manual_seed(1))
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_weights_fill_the_authors_range(generator: torch.Generator) -> None:
    M, H, J = 300, 40, 10
    full = CFNADENetwork(CFNADEConfig(columns=M, levels=5, hidden=(H, 20)))
    factored = CFNADENetwork(CFNADEConfig(columns=M, levels=5, hidden=(H,), factors=J))
    bounds = {(full, "W"): M + H, (full, "V"): M + 20, (full, "deep_W.0"): H + 20}
    bounds |= {(factored, "A"): M + J, (factored, "P"): M + J}
    bounds |= {(factored, "B"): J + H, (factored, "Q"): J + H}
    full.initialise(generator)
    factored.initialise(generator)
    for (model, name), fans in bounds.items():
        weights, bound = model.get_parameter(name), math.sqrt(6 / fans)
        assert 0.98 * bound < float(weights.detach().abs().max()) <= bound
        spread = bound / math.sqrt(3) / math.sqrt(weights.numel())
        assert abs(float(weights.detach().mean())) < 4 * spread
    assert not any(bias.any() for model in (full, factored) for bias in model.biases())


@pytest.mark.parametrize("shared", [True, False])
def test_initial_biases_predict_smoothed_frequencies(
    make_context: Callable[..., Context], shared: bool
) -> None:
    counts = torch.tensor([[8, 0, 2], [0, 0, 0], [1, 1, 1]])
    model = CFNADENetwork(CFNADEConfig(columns=3, levels=3, hidden=(4,), shared=shared)).double()
    model.initialise_biases(counts, smoothing=5.0)
    cells = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2])
    everyone = [10 / 16, 2 / 16, 4 / 16]  # 9, 1 and 3 ratings in all, and one more of each
    expected = [
        [(8 + 5 * everyone[0]) / 15, 5 * everyone[1] / 15, (2 + 5 * everyone[2]) / 15],
        everyone,
        [(1 + 5 * p) / 8 for p in everyone],
    ]
    scores = model.scores(model.hidden(make_context([[]])), *cells)
    torch.testing.assert_close(scores, torch.tensor(expected).double().log())


def test_smoothing_lies_between_a_column_and_everyone() -> None:
    counts = torch.tensor([[90, 10], [0, 0], [0, 100]])
    everyone = torch.tensor([91 / 202, 111 / 202], dtype=torch.float64)
    weak = smoothed_log_frequencies(counts, 1e-9).exp()
    strong = smoothed_log_frequencies(counts, 1e9).exp()
    torch.testing.assert_close(weak[0], torch.tensor([0.9, 0.1]).double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(strong, everyone.expand(3, 2), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(weak[1], everyone)


def test_frequencies_are_finite_even_of_a_level_never_used() -> None:
    logs = smoothed_log_frequencies(torch.tensor([[3, 0, 0], [0, 0, 0]]), 5.0)
    assert torch.isfinite(logs).all()
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(2).double())


def test_steps_sum_to_the_scores() -> None:
    scores = torch.tensor([[-1.0, -2.5, -0.5], [0.0, 3.0, 1.0]])
    torch.testing.assert_close(level_steps(scores).cumsum(1), scores)
    assert torch.equal(level_steps(scores)[:, 0], scores[:, 0])


@pytest.mark.parametrize("smoothing", [0.0, -1.0, float("inf"), float("nan")])
def test_smoothing_must_be_positive(smoothing: float) -> None:
    with pytest.raises(ModelError, match=r"smoothing \(=.*\) must be a positive number of ratings"):
        smoothed_log_frequencies(torch.ones(2, 2), smoothing)


def test_counts_must_be_counts() -> None:
    with pytest.raises(ModelError, match=r"counts of shape \(2,\) must be \(columns, levels\)"):
        smoothed_log_frequencies(torch.ones(2), 1.0)
    with pytest.raises(ModelError, match="not negative"):
        smoothed_log_frequencies(-torch.ones(2, 2), 1.0)
