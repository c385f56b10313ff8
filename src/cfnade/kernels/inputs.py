"""From torch tensors in any order to ratings grouped by column, every index checked."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels.checks import require_tensor
from cfnade.kernels.grouping import NO_WEIGHTS, Grouped, group
from cfnade.kernels.layout import Array


class Ragged(Protocol):
    """Known ratings, row after row: row r has those from offsets[r] to offsets[r+1]."""

    @property
    def offsets(self) -> Tensor: ...  # (B+1,)
    @property
    def columns(self) -> Tensor: ...  # (C,)
    @property
    def levels(self) -> Tensor: ...  # (C,)


def group_context(context: Ragged, n_columns: int, n_levels: int) -> Grouped:
    """Known ratings by column."""
    offsets = integers("offsets", context.offsets).astype(np.int64)
    columns, levels = integers("columns", context.columns), integers("levels", context.levels)
    counts = np.diff(offsets)
    rises = len(offsets) > 0 and offsets[0] == 0 and bool((counts >= 0).all())
    if not rises or not len(columns) == len(levels) == offsets[-1]:
        raise ModelError(
            f"offsets must rise from 0 to the number of ratings; there are {len(columns)} columns "
            f"and {len(levels)} levels"
        )
    size = len(counts)
    rows = np.repeat(np.arange(size, dtype=np.int32), counts)
    return group(rows, columns, levels, size=size, n_columns=n_columns, n_levels=n_levels)


def group_cells(
    rows: Tensor,
    columns: Tensor,
    levels: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    size: int,
    n_columns: int,
    n_levels: int,
) -> Grouped:
    """Cells to predict by column, with their true levels and weights if they have any."""
    row, column = integers("rows", rows), integers("columns", columns)
    level = np.zeros(len(column), np.uint8) if levels is None else integers("levels", levels)
    weight = NO_WEIGHTS if weights is None else np.asarray(weights.numpy())
    for name, array in (("rows", row), ("levels", level), ("weights", weight)):
        given = name != "weights" or weights is not None
        if given and array.shape != column.shape:
            raise ModelError(
                f"{name} has shape {array.shape}; columns have {column.shape}: one entry per cell"
            )
    return group(row, column, level, weight, size=size, n_columns=n_columns, n_levels=n_levels)


def integers(name: str, values: Tensor) -> Array:
    """A one-dimensional tensor of whole numbers as an array."""
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ModelError(f"{name} has dtype {values.dtype}; it must be an integer type")
    require_tensor(name, values, (None,), values.dtype)
    return np.ascontiguousarray(values.detach().numpy())
