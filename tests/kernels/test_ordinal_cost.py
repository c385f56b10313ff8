"""Costs of tiles: extreme scores, every number of levels, and padding that must not count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.kernels import reference
from torch import Tensor

from cfnade.kernels.buffers import Array
from cfnade.kernels.ordinal_cost import cost_of_scores


def kernel(
    scores: Array, levels: Array, weights: Array, ordinal: float, threads: int = 1
) -> tuple[float, Array]:
    return cost_of_scores(scores, levels, weights, ordinal_weight=ordinal, threads=threads)


def right(scores: Array, levels: Array, weights: Array, ordinal: float) -> tuple[float, Tensor]:
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    cost = (torch.tensor(weights) * reference.costs(leaf, torch.tensor(levels), ordinal)).sum()
    (slopes,) = torch.autograd.grad(cost, leaf)
    return float(cost.detach()), slopes


@pytest.mark.parametrize("ordinal", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("levels", [2, 3, 5, 10, 60])
def test_costs_and_slopes_at_any_scale(levels: int, scale: float, ordinal: float) -> None:
    rng = np.random.default_rng(levels)
    scores = (rng.normal(size=(37, levels)) * scale).astype(np.float32)
    truth = rng.integers(0, levels, 37).astype(np.uint8)
    truth[:2] = 0, levels - 1
    weights = rng.random(37).astype(np.float32)
    cost, slopes = kernel(scores, truth, weights, ordinal)
    expected, expected_slopes = right(scores, truth, weights, ordinal)
    assert cost == pytest.approx(expected, rel=1e-5)
    # A slope is a sum of up to `levels` shares.
    torch.testing.assert_close(
        torch.from_numpy(slopes).double(), expected_slopes, rtol=1e-5, atol=1e-6 * levels**0.5
    )


@pytest.mark.parametrize("ordinal", [0.0, 1.0])
@pytest.mark.parametrize("rising", [True, False])
def test_steps_of_ten_thousand_neither_overflow_nor_lose_the_slope(
    rising: bool, ordinal: float
) -> None:
    scores = np.linspace(-1e4, 1e4, 5, dtype=np.float32)[None].repeat(5, 0)
    scores = np.ascontiguousarray(scores if rising else scores[:, ::-1])
    truth, weights = np.arange(5, dtype=np.uint8), np.ones(5, np.float32)
    cost, slopes = kernel(scores, truth, weights, ordinal)
    expected, expected_slopes = right(scores, truth, weights, ordinal)
    assert cost == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(
        torch.from_numpy(slopes).double(), expected_slopes, rtol=1e-6, atol=1e-6
    )


def test_as_many_levels_as_there_can_be() -> None:
    rng = np.random.default_rng(3)
    scores, truth = rng.normal(size=(3, 255)), np.array([0, 77, 254], np.uint8)
    cost, slopes = kernel(scores, truth, np.ones(3), 0.5)
    expected, expected_slopes = right(scores, truth, np.ones(3), 0.5)
    assert cost == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(slopes, expected_slopes.numpy(), rtol=1e-9, atol=1e-12)


def test_two_levels_in_closed_form() -> None:
    """With K = 2 both costs are log(1 + exp(wrong - right))."""
    scores = np.array([[0.3, -1.2], [2.0, 5.0]], np.float32)
    truth, weights = np.array([0, 0], np.uint8), np.array([1.0, 3.0], np.float32)
    expected = np.log1p(np.exp(-1.5)) + 3.0 * np.log1p(np.exp(3.0))
    for ordinal in (0.0, 0.5, 1.0):
        assert kernel(scores, truth, weights, ordinal)[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 16, 77])
def test_any_number_of_targets_in_double_precision(count: int, threads: int) -> None:
    rng = np.random.default_rng(count)
    scores, truth = rng.normal(size=(count, 4)), rng.integers(0, 4, count).astype(np.uint8)
    weights = rng.random(count)
    cost, slopes = kernel(scores, truth, weights, 0.7, threads)
    expected, expected_slopes = right(scores, truth, weights, 0.7)
    assert cost == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(slopes, expected_slopes.numpy(), rtol=1e-9, atol=1e-14)
