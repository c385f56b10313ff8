"""The model's sparse hot spots: compiled kernels on a CPU, plain torch on any other device.

Both paths have the signatures of plain.py, where what is computed is written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from cfnade.models import plain
from cfnade.models.batch import Context, Targets

Path = Literal["kernels", "plain"]
_KERNEL_TYPES = (torch.float32, torch.float64)
_forced: list[Path] = []


@contextmanager
def forced(path: Path) -> Iterator[None]:
    """Take this path whatever the device, for tests and measurements."""
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


def context_sum(table: Tensor, context: Context, *, shared: bool) -> Tensor:
    """Sum what each row's context says (Eq. 2, 9). Returns (B, D)."""
    if not _takes_kernels(table):
        return plain.context_sum(table, context, shared=shared)
    from cfnade.kernels import autograd

    return autograd.context_sum(table, context, shared=shared)


def cell_scores(
    state: Tensor, table: Tensor, bias: Tensor, rows: Tensor, columns: Tensor, *, shared: bool
) -> Tensor:
    """Scores of every level for the given cells, before the softmax (Eq. 4, 10). (T, K)."""
    if not _takes_kernels(table):
        return plain.cell_scores(state, table, bias, rows, columns, shared=shared)
    from cfnade.kernels import autograd

    return autograd.cell_scores(state, table, bias, rows, columns, shared=shared)


def target_cost(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    targets: Targets,
    *,
    shared: bool,
    ordinal_weight: float,
) -> Tensor:
    """Σ weight · cost over the targets (Eq. 18, 21). A scalar."""
    if not _takes_kernels(table):
        return plain.target_cost(
            state, table, bias, targets, shared=shared, ordinal_weight=ordinal_weight
        )
    from cfnade.kernels import autograd

    cells = targets.rows, targets.columns, targets.levels, targets.weights
    return autograd.target_cost(
        state, table, bias, *cells, shared=shared, ordinal_weight=ordinal_weight
    )


def all_scores(
    state: Tensor, table: Tensor, bias: Tensor, *, shared: bool
) -> Iterator[tuple[int, Tensor]]:
    """Scores of every column for a few rows: one matrix product, so torch on every device."""
    return plain.all_scores(state, table, bias, shared=shared)


def _takes_kernels(table: Tensor) -> bool:
    if _forced:
        return _forced[-1] == "kernels"
    return table.device.type == "cpu" and table.dtype in _KERNEL_TYPES
