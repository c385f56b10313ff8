"""The paper's equations in plain torch: dense, slow and obvious, from no code of the package.

Shapes as in docs/concepts/model.md: B rows, M columns, K levels (from 0 here), D the width of a
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Params = dict[str, Tensor]
ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}


@dataclass(frozen=True)
class Cells:
    """Ratings one by one."""

    rows: Tensor
    columns: Tensor
    levels: Tensor
    weights: Tensor

    @staticmethod
    def of(rows: Any, columns: Any, levels: Any, weights: Any = ()) -> Cells:
        return Cells(
            torch.from_numpy(np.array(rows, np.int64)),
            torch.from_numpy(np.array(columns, np.int64)),
            torch.from_numpy(np.array(levels, np.int64)),
            torch.from_numpy(np.array(weights, np.float64)),
        )


def cumulated(table: Tensor, shared: bool) -> Tensor:
    """Sharing, Eq. 9 and 10: level k is the sum of the levels up to k. (M, K, ...)."""
    if not shared:
        return table
    return torch.stack([table[:, : k + 1].sum(1) for k in range(table.shape[1])], 1)


def context_sum(table: Tensor, context: Cells, size: int, shared: bool) -> Tensor:
    """Eq. 2 and 9, inside the activation: one-hot ratings (B, M·K) times the table. (B, D)."""
    M, K, D = table.shape
    ratings = torch.zeros(size, M * K, dtype=table.dtype)
    places = context.rows, context.columns * K + context.levels
    ratings.index_put_(places, torch.ones((), dtype=table.dtype), accumulate=True)
    return ratings @ cumulated(table, shared).reshape(M * K, D)


def cell_scores(
    state: Tensor, table: Tensor, bias: Tensor, rows: Tensor, columns: Tensor, shared: bool
) -> Tensor:
    """Eq. 4 and 10: scores of every cell there is, then those asked for. (T, K)."""
    everything = torch.einsum("bd,mkd->bmk", state, cumulated(table, shared))
    return (everything + cumulated(bias, shared))[rows, columns]


def regular_cost(scores: Tensor, levels: Tensor) -> Tensor:
    """Eq. 3 and 5. (T,)."""
    return torch.logsumexp(scores, 1) - scores[torch.arange(len(scores)), levels.long()]


def ordinal_cost(scores: Tensor, levels: Tensor) -> Tensor:
    """-log of Eq. 17: k beats k-1 beats … 1, and k beats k+1 beats … K. (T,)."""
    cost = torch.zeros(len(scores), dtype=scores.dtype)
    for j in range(scores.shape[1]):
        down = torch.logsumexp(scores[:, : j + 1], 1) - scores[:, j]
        up = torch.logsumexp(scores[:, j:], 1) - scores[:, j]
        cost = cost + down * (j <= levels) + up * (j >= levels)
    return cost


def costs(scores: Tensor, levels: Tensor, ordinal_weight: float) -> Tensor:
    """Eq. 18. (T,)."""
    regular, ordinal = regular_cost(scores, levels), ordinal_cost(scores, levels)
    return (1 - ordinal_weight) * regular + ordinal_weight * ordinal


def states(
    p: Params,
    context: Cells,
    size: int,
    *,
    shared: bool,
    activation: str,
    scale: Tensor | None = None,
) -> Tensor:
    """Eq. 2, 9, 11, 12 and 20: what meets the output table. (B, D')."""
    g = ACTIVATIONS[activation]
    sums = context_sum(p["input_table"], context, size, shared)
    if scale is not None:
        sums = sums * scale[:, None]
    h = g((sums @ p["B"].T if "B" in p else sums) + p["c"])
    for i in range(sum(name.startswith("deep_W") for name in p)):
        h = g(h @ p[f"deep_W.{i}"].T + p[f"deep_c.{i}"])
    return h @ p["Q"].T if "Q" in p else h


def batch_cost(
    p: Params,
    context: Cells,
    targets: Cells,
    size: int,
    *,
    shared: bool = True,
    activation: str = "tanh",
    ordinal_weight: float = 1.0,
    scale: Tensor | None = None,
) -> Tensor:
    """Eq. 19 and 21: Σ weight·cost over the targets, by rows of the batch."""
    state = states(p, context, size, shared=shared, activation=activation, scale=scale)
    cells = targets.rows, targets.columns
    scores = cell_scores(state, p["output_table"], p["bias"], *cells, shared)
    return (targets.weights * costs(scores, targets.levels, ordinal_weight)).sum() / size


def leaves(tensors: Mapping[str, Tensor]) -> Params:
    """Copies in double precision that collect gradients."""
    return {n: t.detach().double().clone().requires_grad_() for n, t in tensors.items()}


class Adam:
    """Adam with L2 in the gradient, written out: only given columns of a table move, and the
    weights of a level share a second moment if rowwise."""

    def __init__(self, rules: Mapping[str, Any], *, rowwise: bool = False) -> None:
        self.rules, self.rowwise, self.steps = rules, rowwise, 0
        self.m: Params = {}
        self.v: Params = {}

    def step(self, params: Params, columns: Mapping[str, Tensor] | None = None) -> None:
        self.steps += 1
        for name, p in params.items():
            assert p.grad is not None
            rule, together = self.rules[name], self.rowwise and p.ndim == 3
            m = self.m.setdefault(name, torch.zeros_like(p))
            v = self.v.setdefault(name, torch.zeros_like(p))
            which = (columns or {}).get(name, slice(None))
            g = p.grad[which] + rule.decay * p.data[which]
            square = g.square().mean(2, keepdim=True).expand_as(g) if together else g.square()
            (b1, b2), t = rule.betas, self.steps
            m[which] = b1 * m[which] + (1 - b1) * g
            v[which] = b2 * v[which] + (1 - b2) * square
            first, second = m[which] / (1 - b1**t), v[which] / (1 - b2**t)
            p.data[which] -= rule.rate * first / (second.sqrt() + rule.eps)
            p.grad = None


def torch_adam(params: Params, rules: Mapping[str, Any]) -> torch.optim.Adam:
    """Torch's own, one group a parameter."""
    groups = [
        {"params": [p], "lr": r.rate, "weight_decay": r.decay, "eps": r.eps, "betas": r.betas}
        for p, r in ((params[name], rules[name]) for name in params)
    ]
    return torch.optim.Adam(groups)


def assert_close(got: Any, expected: Any, *, single: float = 3e-5, double: float = 1e-10) -> None:
    """Equal up to rounding, in relation to the largest number."""
    ours, right = torch.as_tensor(got).detach(), torch.as_tensor(expected).detach().double()
    error = single if ours.dtype == torch.float32 else double
    largest = float(right.abs().max()) if right.numel() else 1.0
    torch.testing.assert_close(
        ours.double(), right, rtol=error, atol=error * max(largest, 1e-6), check_stride=False
    )
