"""The same training step in plain torch, in two ways: dense one-hot arrays, and gather.

Both use autograd and torch's fused Adam on the same model. The dense step makes each one-hot array
once and copies nothing that it need not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.common import Case, ColumnGroups, GroupedBatch
from cfnade.models import CFNADENetwork


def _cells(grouped: ColumnGroups) -> tuple[Tensor, Tensor, Tensor]:
    columns = np.repeat(np.arange(grouped.n_columns), np.diff(grouped.starts))
    parts = grouped.rows.astype(np.int64), columns, grouped.levels.astype(np.int64)
    rows, column, level = (torch.from_numpy(part) for part in parts)
    return rows, column, level


def _optimizer(model: CFNADENetwork) -> torch.optim.Adam:
    biases = model.biases()
    weights = [w for w in model.parameters() if not any(w is bias for bias in biases)]
    decaying: dict[str, Any] = {"params": weights, "weight_decay": 1e-3}
    groups = [decaying, {"params": biases}]
    return torch.optim.Adam(groups, lr=1e-3, fused=True)


def _ordinal(scores: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return Σ of the ordinal cost where down and up (weights of j ≤ k and j ≥ k) are not 0.

    With a running log-sum-exp, as stable as the kernels. torch.logcumsumexp would take twice as
    long; the logarithm of a running sum of exponentials a third less, but fails where they
    underflow.
    """
    return (down * _level_costs(scores)).sum() + (up * _level_costs(scores.flip(-1)).flip(-1)).sum()


def _level_costs(scores: Tensor) -> Tensor:
    """Return log Σ_{t≤j} exp(s_t) - s_j for every level j."""
    levels = scores.unbind(-1)
    earlier, costs = levels[0], [torch.zeros_like(levels[0])]
    for score in levels[1:]:
        costs.append(functional.softplus(earlier - score))
        earlier = torch.logaddexp(earlier, score)
    return torch.stack(costs, -1)


def _hidden(model: CFNADENetwork, sums: Tensor) -> Tensor:
    return model.output_state(model.hidden_from_sums(sums, torch.ones(len(sums))))


def dense_step(case: Case) -> Callable[[GroupedBatch], None]:
    """Return the paper's step: rows × columns × levels in float32, two large matrix products."""
    model = case.network()
    adam = _optimizer(model)
    M, K = case.rows.n_columns, case.rows.n_levels
    levels = torch.arange(K)

    def step(batch: GroupedBatch) -> None:
        adam.zero_grad(set_to_none=True)
        context = torch.zeros(batch.size, M, K)
        rows, columns, level = _cells(batch.context)
        context[rows, columns] = (levels <= level[:, None]).float()
        down, up = torch.zeros(2, batch.size, M, K)
        rows, columns, level = _cells(batch.targets)
        weights = torch.from_numpy(batch.targets.weights)[:, None]
        down[rows, columns] = weights * (levels <= level[:, None])
        up[rows, columns] = weights * (levels >= level[:, None])
        table = model.input_table.view(M * K, -1)
        state = _hidden(model, context.view(batch.size, -1) @ table)  # (B, D)
        scores = state @ model.output_table.view(M * K, -1).T  # (B, M·K)
        scores = (scores.view(batch.size, M, K) + model.b).cumsum(-1)
        (_ordinal(scores, down, up) / batch.size).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step


def gather_step(case: Case) -> Callable[[GroupedBatch], None]:
    """Return a sparse step: embedding_bag for the context, a table row for every target."""
    model = case.network()
    adam = _optimizer(model)
    K = case.rows.n_levels
    levels = torch.arange(K)

    def step(batch: GroupedBatch) -> None:
        adam.zero_grad(set_to_none=True)
        rows, columns, level = _cells(batch.context)
        order = rows.argsort(stable=True)
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(batch.context_sizes)]))
        table = model.input_table.cumsum(1).view(-1, model.input_table.shape[2])
        cells = (columns * K + level)[order]
        sums = functional.embedding_bag(cells, table, offsets, mode="sum", include_last_offset=True)
        rows, columns, level = _cells(batch.targets)
        state = _hidden(model, sums)[rows]  # (T, D)
        scores = torch.einsum("tkd,td->tk", model.output_table[columns], state)
        scores = (scores + model.b[columns]).cumsum(-1)
        weights = torch.from_numpy(batch.targets.weights)[:, None]
        down, up = levels <= level[:, None], levels >= level[:, None]
        cost = _ordinal(scores, weights * down, weights * up)
        (cost / batch.size).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step
