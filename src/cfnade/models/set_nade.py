"""Implicit CF-NADE: what a person takes up next, given the set of what they took up so far.

The paper leaves feedback without ratings to the future (its section 7). Here a set S of D items is
drawn without replacement, one after the other in some order o:

    p(S in the order o) = Π_d p(o_d | C_d),     C_d = {o_1 … o_{d-1}}
    h(C)     = tanh( c + √(n̄ / n_C) Σ_{i∈C} w_i W^{k_i}_i ),     n_C = Σ_{i∈C} w_i
    p(i | C) = e^{s_i} / Σ_{j∉C} e^{s_j},       s_i = b_i + V_i·h(C)

No mass falls on what is known. k_i is how it was taken up (stars; view, like, buy), one level where
the data say nothing; w_i how much it counts, 1 unless the data say so; n̄ what a person's picks
count on average. Orderless training (Eq. 19) draws a context C from S and scores T = S∖C at once:

    cost = mean over people of |T|^{-γ} Σ_{t∈T} -w_t log p(t | C)  +  decay (‖W‖² + ‖V‖²)

With |C| even on 0..D-1, γ = 1 and the weight D, that is Eq. 19 for sets. M items, K levels, H
units.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cfnade.models.batch import Context, require_shape
from cfnade.models.config import SetNADEConfig


class SetNADENetwork(nn.Module):
    """Parameters are zero until a start or a checkpoint fills them."""

    def __init__(self, config: SetNADEConfig) -> None:
        super().__init__()
        self.config = config
        M, K, H = config.columns, config.levels, config.hidden
        self.W = nn.Parameter(torch.zeros(K, M, H))
        self.c = nn.Parameter(torch.zeros(H))
        self.V = nn.Parameter(torch.zeros(M, H))
        self.b = nn.Parameter(torch.zeros(M))

    def hidden(self, context: Context, weights: Tensor | None = None) -> Tensor:
        """h(C) of each row; weights are those of the context's picks. Returns (B, H)."""
        context.check(columns=self.config.columns, levels=self.config.levels)
        counts = (
            torch.ones_like(context.columns, dtype=self.W.dtype) if weights is None else weights
        )
        require_shape("context weights", counts, tuple(context.columns.shape))
        rows = context.rows()
        parts = counts.unsqueeze(1) * self.W[context.levels.long(), context.columns.long()]
        sums = self.W.new_zeros(context.size, self.config.hidden).index_add(0, rows, parts)
        total = self.W.new_zeros(context.size).index_add(0, rows, counts)
        ratio = torch.where(total > 0, self.config.mean_count / total.clamp(min=1e-12), 0.0)
        factor = ratio.sqrt()
        return torch.tanh(self.c + factor.unsqueeze(1) * sums)

    def scores(self, context: Context, weights: Tensor | None = None) -> Tensor:
        """s_i of every item. Returns (B, M)."""
        return self.b + self.hidden(context, weights) @ self.V.T

    def log_choices(self, context: Context, weights: Tensor | None = None) -> Tensor:
        """log p(i | C), -∞ for what is known. Returns (B, M)."""
        return log_choices(self.scores(context, weights), context)

    def ordered_log_likelihood(self, order: Tensor, levels: Tensor | None = None) -> Tensor:
        """log p of a set drawn in this order, by the chain rule: exact. Returns a scalar."""
        kinds = torch.zeros_like(order) if levels is None else levels
        prefixes = [order[:d] for d in range(len(order))]
        sizes = torch.arange(len(order))
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        known = [kinds[:d] for d in range(len(order))]
        context = Context(offsets, torch.cat(prefixes), torch.cat(known))
        return self.log_choices(context)[torch.arange(len(order)), order].sum()


def log_choices(scores: Tensor, context: Context) -> Tensor:
    """The log-softmax of scores (B, M) over what is outside each row's context."""
    known = torch.zeros_like(scores, dtype=torch.bool)
    known[context.rows(), context.columns.long()] = True
    return scores.masked_fill(known, -torch.inf).log_softmax(1)


@dataclass(frozen=True)
class SetTargets:
    """Contexts and targets of some people, as one step of training draws them."""

    context: Context
    context_weights: Tensor  # (C,)
    rows: Tensor  # (T,) whose each target is
    columns: Tensor  # (T,)
    weights: Tensor  # (T,) w_t |T|^{-γ}


def set_nade_cost(network: SetNADENetwork, drawn: SetTargets) -> Tensor:
    """The mean over people of what their targets cost, without decay. Returns a scalar."""
    logs = network.log_choices(drawn.context, drawn.context_weights)
    return -(drawn.weights * logs[drawn.rows, drawn.columns]).sum() / drawn.context.size
