"""Refusals shared by the model's doors: each names the argument, its value and the rule."""

from __future__ import annotations

import torch
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.models.config import require

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def require_shape(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    require(
        tuple(values.shape) == shape,
        f"{name} has shape {tuple(values.shape)}; it must have shape {shape}",
    )


def require_indices(name: str, values: Tensor, stop: int, of: str) -> None:
    """One dimension, whole numbers, each in 0..stop-1; `of` says what stop counts."""
    require(values.ndim == 1, f"{name} has shape {tuple(values.shape)}; it must be one-dimensional")
    require(values.dtype in _INTEGERS, f"{name} has dtype {values.dtype}; it must hold integers")
    if values.numel():
        low, high = (int(v) for v in torch.aminmax(values))
        bad = low if low < 0 else high
        require(
            low >= 0 and high < stop,
            f"{name} contains {bad}; it must lie in 0..{stop - 1} ({of} = {stop})",
        )


def require_disjoint(
    rows: Tensor, columns: Tensor, other_rows: Tensor, other_columns: Tensor
) -> None:
    """No target (row, column) may lie in the context: the question would hold the answer."""
    if not columns.numel() or not other_columns.numel():
        return
    stride = int(torch.maximum(columns.max(), other_columns.max())) + 1
    seen = torch.isin(
        rows.long() * stride + columns.long(), other_rows.long() * stride + other_columns.long()
    )
    if bool(seen.any()):
        first = int(seen.nonzero()[0])
        raise ModelError(
            f"targets overlap the context in {int(seen.sum())} cells, first row {int(rows[first])} "
            f"column {int(columns[first])}; a cell must be either known or predicted, not both"
        )
