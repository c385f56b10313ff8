"""The same training step written the two obvious ways in torch: dense one-hot, and gather.

Both use torch's fused Adam on the same model, and autograd. Neither is held back: the dense way
makes each one-hot array once and copies nothing that it need not.
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


def _optimiser(model: CFNADENetwork) -> torch.optim.Adam:
    biases = model.biases()
    weights = [one for one in model.parameters() if not any(one is bias for bias in biases)]
    decaying: dict[str, Any] = {"params": weights, "weight_decay": 1e-3}
    groups = [decaying, {"params": biases}]
    return torch.optim.Adam(groups, lr=1e-3, fused=True)


def _ordinal(scores: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Σ of the ordinal cost where down and up (weights of j ≤ k and j ≥ k) are not 0.

    With a running log-sum-exp, as stable as ours. torch.logcumsumexp would take twice as long; the
    logarithm of a running sum of exponentials a third less, but fails where they underflow.
    """
    return (down * _beaten(scores)).sum() + (up * _beaten(scores.flip(-1)).flip(-1)).sum()


def _beaten(scores: Tensor) -> Tensor:
    """log Σ_{t≤j} exp(s_t) - s_j for every level j."""
    levels = scores.unbind(-1)
    earlier, costs = levels[0], [torch.zeros_like(levels[0])]
    for score in levels[1:]:
        costs.append(functional.softplus(earlier - score))
        earlier = torch.logaddexp(earlier, score)
    return torch.stack(costs, -1)


def _hidden(model: CFNADENetwork, sums: Tensor) -> Tensor:
    return model.output_state(model.hidden_from_sums(sums, torch.ones(len(sums))))


def dense_step(case: Case) -> Callable[[GroupedBatch], None]:
    """The paper's way: rows × columns × levels in float32, two large matrix products."""
    model = case.network()
    adam = _optimiser(model)
    M, K = case.rows.n_columns, case.rows.n_levels
    levels = torch.arange(K)

    def step(batch: GroupedBatch) -> None:
        adam.zero_grad(set_to_none=True)
        known = torch.zeros(batch.size, M, K)
        rows, columns, level = _cells(batch.context)
        known[rows, columns] = (levels <= level[:, None]).float()
        down, up = torch.zeros(2, batch.size, M, K)
        rows, columns, level = _cells(batch.targets)
        weights = torch.from_numpy(batch.targets.weights)[:, None]
        down[rows, columns] = weights * (levels <= level[:, None])
        up[rows, columns] = weights * (levels >= level[:, None])
        table = model.input_table.view(M * K, -1)
        state = _hidden(model, known.view(batch.size, -1) @ table)  # (B, D)
        scores = state @ model.output_table.view(M * K, -1).T  # (B, M·K)
        scores = (scores.view(batch.size, M, K) + model.b).cumsum(-1)
        (_ordinal(scores, down, up) / batch.size).backward()  # type: ignore[no-untyped-call]
        adam.step()

    return step


def gather_step(case: Case) -> Callable[[GroupedBatch], None]:
    """Sparse the obvious way: embedding_bag in, the table gathered for every target out."""
    model = case.network()
    adam = _optimiser(model)
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
