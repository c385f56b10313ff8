"""What a prediction costs, as functions of the scores before the softmax.

Scores are (T, K), levels (T,) count from 0, costs (T,). All are exact for scores of ±1e4 and more:
nothing is exponentiated but differences from a running log-sum-exp.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Beyond this, log(1 + exp(x)) equals x in float64 too (torch's own threshold, 20, is for float32).
_LINEAR_FROM = 40.0


def regular_cost(scores: Tensor, levels: Tensor) -> Tensor:
    """-log p(level), Eq. 3 and 5. Returns (T,)."""
    return functional.cross_entropy(scores, levels.long(), reduction="none")


def ordinal_cost(scores: Tensor, levels: Tensor) -> Tensor:
    """-log of Eq. 17: how likely k beats k-1 beats ... 1, and k beats k+1 beats ... K. (T,).

    Eq. 17 is the likelihood of two rankings. It does not sum to 1 over levels, so it is a cost
    to train with and never a probability to report: predictions use Eq. 3 on the same scores.
    """
    K = scores.shape[-1]
    down = _costs_of_beating_those_before(scores)  # (T, K)
    up = _costs_of_beating_those_before(scores.flip(-1)).flip(-1)  # (T, K)
    j = torch.arange(K, device=scores.device)  # (K,)
    k = levels.long().unsqueeze(-1)  # (T, 1)
    # At the ends of the scale one product is a single 1: Eq. 13 or 14 falls away by itself.
    zero = scores.new_zeros(())
    return (torch.where(j <= k, down, zero) + torch.where(j >= k, up, zero)).sum(-1)


def hybrid_cost(scores: Tensor, levels: Tensor, ordinal_weight: float) -> Tensor:
    """(1 - λ) regular + λ ordinal, Eq. 18 and 21. Returns (T,)."""
    if ordinal_weight == 0.0:
        return regular_cost(scores, levels)
    if ordinal_weight == 1.0:
        return ordinal_cost(scores, levels)
    regular, ordinal = regular_cost(scores, levels), ordinal_cost(scores, levels)
    return (1.0 - ordinal_weight) * regular + ordinal_weight * ordinal


def _costs_of_beating_those_before(scores: Tensor) -> Tensor:
    """log Σ_{t≤j} exp(s_t) - s_j for every j. Returns (T, K), 0 for the first.

    Written as log(1 + exp(earlier - s_j)), which keeps its digits where both terms are huge;
    torch.logcumsumexp loses four of them in float32 gradients at scores of 1e4.
    """
    columns = scores.unbind(-1)
    earlier = columns[0]  # log-sum-exp of the scores before the current one, (T,)
    costs = [torch.zeros_like(earlier)]
    for score in columns[1:]:
        costs.append(functional.softplus(earlier - score, threshold=_LINEAR_FROM))
        earlier = torch.logaddexp(earlier, score)
    return torch.stack(costs, -1)
