"""The costs say what Eq. 3, 17 and 18 say, for any K and for scores far out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cfnade.models.losses import hybrid_cost, ordinal_cost, regular_cost


def eq_17(s: list[float], k: int) -> float:
    """Both products of Eq. 17, literally; s[0] is the score of level 1, k counts from 1.

    The footnote's omissions: no first product for k = 1, no second one for k = K.
    """
    K = len(s)
    p = 1.0
    if k != 1:
        for j in range(k, 0, -1):
            p *= math.exp(s[j - 1]) / sum(math.exp(s[t - 1]) for t in range(1, j + 1))
    if k != K:
        for j in range(k, K + 1):
            p *= math.exp(s[j - 1]) / sum(math.exp(s[t - 1]) for t in range(j, K + 1))
    return p


def log_eq_17(s: list[float], k: int) -> float:
    """The same in logarithms, each sum freed of its largest term, for scores of any size."""

    def lse(part: list[float]) -> float:
        top = max(part)
        return top + math.log(math.fsum(math.exp(x - top) for x in part))

    down = sum(s[j - 1] - lse(s[:j]) for j in range(1, k + 1))
    up = sum(s[j - 1] - lse(s[j - 1 :]) for j in range(k, len(s) + 1))
    return down + up


def random_scores(K: int, size: float, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(K)
    return (torch.rand(40, K, generator=generator, dtype=dtype) * 2 - 1) * size


@pytest.mark.parametrize("K", [2, 3, 5, 10])
def test_regular_cost_is_minus_log_of_the_softmax(K: int) -> None:
    scores = random_scores(K, 3.0, torch.float64)
    for k in range(K):
        cost = regular_cost(scores, torch.full((40,), k))
        for s, c in zip(scores.tolist(), cost.tolist(), strict=True):
            assert math.exp(-c) == pytest.approx(math.exp(s[k]) / sum(map(math.exp, s)))


@pytest.mark.parametrize("K", [2, 3, 5, 10])
def test_ordinal_cost_is_a_literal_reading_of_eq_17(K: int) -> None:
    scores = random_scores(K, 3.0, torch.float64)
    for k in range(1, K + 1):
        cost = ordinal_cost(scores, torch.full((40,), k - 1))
        for s, c in zip(scores.tolist(), cost.tolist(), strict=True):
            assert math.exp(-c) == pytest.approx(eq_17(s, k), rel=1e-12)


def test_eq_17_does_not_sum_to_one_over_levels() -> None:
    # Two equal levels: each beats the other half the time. Three: 1/6, 1/4, 1/6.
    sums = [
        sum(math.exp(-float(ordinal_cost(torch.zeros(1, K), torch.tensor([k])))) for k in range(K))
        for K in (2, 3)
    ]
    assert sums == pytest.approx([1.0, 1 / 6 + 1 / 4 + 1 / 6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_costs_keep_their_digits_for_huge_scores(dtype: torch.dtype, size: float) -> None:
    rel = 1e-6 if dtype == torch.float32 else 1e-13
    for K in (2, 5, 10):
        scores = random_scores(K, size, dtype)
        for k in range(1, K + 1):
            cost = ordinal_cost(scores, torch.full((40,), k - 1))
            expected = [-log_eq_17(s, k) for s in scores.tolist()]
            assert cost.tolist() == pytest.approx(expected, rel=rel, abs=rel)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.5, 1.0])
def test_float32_gradients_agree_with_float64_at_huge_scores(ordinal_weight: float) -> None:
    single = random_scores(5, 1e4, torch.float32).requires_grad_()
    double = single.detach().double().requires_grad_()
    levels, grads = torch.arange(40) % 5, []
    for scores in (single, double):
        (grad,) = torch.autograd.grad(hybrid_cost(scores, levels, ordinal_weight).sum(), scores)
        grads.append(grad.double())
    assert torch.isfinite(grads[0]).all()
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("K", [2, 3, 5])
def test_gradients_of_the_costs(ordinal_weight: float, K: int) -> None:
    scores = random_scores(K, 2.0, torch.float64)[:6].clone().requires_grad_()
    levels = torch.arange(6) % K
    assert torch.autograd.gradcheck(lambda s: hybrid_cost(s, levels, ordinal_weight), (scores,))


def test_hybrid_cost_runs_straight_from_regular_to_ordinal() -> None:
    scores, levels = random_scores(5, 2.0, torch.float64), torch.arange(40) % 5
    regular, ordinal = regular_cost(scores, levels), ordinal_cost(scores, levels)
    assert torch.equal(hybrid_cost(scores, levels, 0.0), regular)
    assert torch.equal(hybrid_cost(scores, levels, 1.0), ordinal)
    torch.testing.assert_close(hybrid_cost(scores, levels, 0.25), 0.75 * regular + 0.25 * ordinal)


def test_ordinal_cost_prefers_a_near_miss() -> None:
    # Five stars, the truth is 2: all hope on 3, on 4, on 5.
    hopes = 4.0 * torch.eye(5, dtype=torch.float64)[2:]
    truth = torch.tensor([1, 1, 1])
    near, far, farthest = ordinal_cost(hopes, truth).tolist()
    assert near < far < farthest
    assert len(set(regular_cost(hopes, truth).tolist())) == 1


def test_costs_do_not_feel_a_shift_of_all_scores() -> None:
    scores, levels = random_scores(5, 2.0, torch.float64), torch.arange(40) % 5
    for cost in (regular_cost, ordinal_cost):
        torch.testing.assert_close(cost(scores + 7.0, levels), cost(scores, levels))


def test_the_ordinal_optimum_keeps_the_mean_and_narrows_the_spread() -> None:
    # docs/concepts/model.md describes λ = 1: find the scores that cost least for known frequencies.
    truth = torch.tensor([0.05, 0.10, 0.25, 0.40, 0.20], dtype=torch.float64)
    stars = torch.arange(1.0, 6.0, dtype=torch.float64)
    found = []
    for ordinal_weight in (0.0, 1.0):
        scores = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        for _ in range(300):
            costs = hybrid_cost(scores.expand(5, 5), torch.arange(5), ordinal_weight)
            (grad,) = torch.autograd.grad((truth * costs).sum(), scores)
            scores = (scores - 2.0 * grad).detach().requires_grad_()
        p = scores.detach().softmax(0)
        mean = float(p @ stars)
        found.append((mean, float(p @ (stars - mean).square()) ** 0.5))
    assert found[0] == pytest.approx((3.60, 1.07), abs=0.005)
    assert found[1] == pytest.approx((3.60, 0.75), abs=0.005)
