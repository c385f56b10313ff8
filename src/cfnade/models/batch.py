"""What a model sees of some rows: context (known ratings) and targets (cells to predict).

Rows are numbered 0..n-1 inside a batch. Columns and levels count from 0. Each check names the
argument, its value and the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.models.config import require


@dataclass(frozen=True)
class Context:
    """Ragged known ratings: row r knows columns[offsets[r]:offsets[r+1]], at the same levels."""

    offsets: Tensor  # (B+1,) int64, rising from 0
    columns: Tensor  # (C,) int64
    levels: Tensor  # (C,) int64

    @property
    def size(self) -> int:
        """How many rows."""
        return self.offsets.numel() - 1

    def counts(self) -> Tensor:
        """How many ratings each row knows. Returns (B,)."""
        return self.offsets.diff()

    def rows(self) -> Tensor:
        """The row of each rating. Returns (C,)."""
        numbers = torch.arange(self.size, device=self.offsets.device)
        return numbers.repeat_interleave(self.counts(), output_size=self.columns.numel())

    def check(self, *, columns: int, levels: int) -> None:
        """Refuse offsets, columns or levels that a model of this size cannot read."""
        check_offsets("context offsets", self.offsets, self.columns.numel())
        require_shape("context levels", self.levels, tuple(self.columns.shape))
        require_indices("context columns", self.columns, columns, "columns")
        require_indices("context levels", self.levels, levels, "levels")

    def to(self, device: torch.device | str) -> Context:
        return Context(*(t.to(device) for t in (self.offsets, self.columns, self.levels)))


@dataclass(frozen=True)
class Targets:
    """Cells to predict: rows[t] rated columns[t] at levels[t]; its cost counts weights[t] times."""

    rows: Tensor  # (T,) int64
    columns: Tensor  # (T,) int64
    levels: Tensor  # (T,) int64
    weights: Tensor  # (T,) float

    def check(self, *, rows: int, columns: int, levels: int) -> None:
        """Refuse cells outside rows × columns × levels, and parts of unequal length."""
        for name in ("columns", "levels", "weights"):
            require_shape(f"target {name}", getattr(self, name), tuple(self.rows.shape))
        require_indices("target rows", self.rows, rows, "rows")
        require_indices("target columns", self.columns, columns, "columns")
        require_indices("target levels", self.levels, levels, "levels")

    def to(self, device: torch.device | str) -> Targets:
        parts = (self.rows, self.columns, self.levels, self.weights)
        return Targets(*(t.to(device) for t in parts))


@dataclass(frozen=True)
class ModelBatch:
    """Some rows of a data set, each split into context and targets."""

    context: Context
    targets: Targets

    def check(self, *, columns: int, levels: int) -> None:
        """Refuse a bad context, bad targets, or a cell that is in both."""
        self.context.check(columns=columns, levels=levels)
        self.targets.check(rows=self.context.size, columns=columns, levels=levels)
        context = self.context
        require_disjoint(self.targets.rows, self.targets.columns, context.rows(), context.columns)

    def to(self, device: torch.device | str) -> ModelBatch:
        return ModelBatch(self.context.to(device), self.targets.to(device))


def check_offsets(name: str, offsets: Tensor, entries: int) -> None:
    """Offsets of ragged rows start at 0, never fall, and end at the number of entries."""
    sound = (
        offsets.ndim == 1
        and offsets.numel() > 0
        and int(offsets[0]) == 0
        and int(offsets[-1]) == entries
        and not bool((offsets.diff() < 0).any())
    )
    require(
        sound,
        f"{name} (={_brief(offsets)}) must rise from 0 to the number of entries, {entries}",
    )


def _brief(values: Tensor) -> str:
    flat = values.flatten().tolist()
    return str(flat) if len(flat) <= 6 else f"[{flat[0]}, {flat[1]}, ..., {flat[-1]}]"


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
