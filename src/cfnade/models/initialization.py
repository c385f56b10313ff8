"""Initial values: weights as in the authors' code, output biases from the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cfnade.models.config import require

_CHUNK = 1 << 22  # numbers that are values at a time, where only some are owned


class OwnedColumns(NamedTuple):
    """Which columns of all a network has; those of the others are somewhere else."""

    columns: Tensor  # (C,) int64, rising
    n_columns: int  # M, of all ranks


def fill_columns_(
    weights: Tensor, draw: Callable[[tuple[int, ...]], Tensor], owned: OwnedColumns | None = None
) -> None:
    """Fill a table with what draw(shape) gives.

    Of one that has some columns alone, those of the whole are values and some kept: the same
    numbers whoever has which.
    """
    shape, begin = weights.shape[1:], 0
    n_columns = len(weights) if owned is None else owned.n_columns
    size = n_columns if owned is None else max(1, _CHUNK // max(1, shape.numel()))
    with torch.no_grad():
        for first in range(0, n_columns, max(1, size)):
            count = min(size, n_columns - first)
            values = draw((count, *shape))
            if owned is not None:
                end = int(torch.searchsorted(owned.columns, first + count))
                values, count = values[owned.columns[begin:end] - first], end - begin
            weights[begin : begin + count] = values
            begin += count


def glorot_(
    weights: Tensor,
    fan_in: int,
    fan_out: int,
    generator: torch.Generator,
    owned: OwnedColumns | None = None,
) -> None:
    """Fill with uniform numbers in ±√(6 / (fan_in + fan_out))."""
    bound, kind = math.sqrt(6.0 / (fan_in + fan_out)), weights.dtype

    def draw(shape: tuple[int, ...]) -> Tensor:
        values = torch.rand(shape, generator=generator, device=generator.device, dtype=kind)
        return (2.0 * values - 1.0) * bound

    fill_columns_(weights, draw, owned)


def smoothed_log_frequencies(
    counts: Tensor, smoothing: float, total: Tensor | None = None
) -> Tensor:
    """log p(level) of each column, pulled towards all columns' by `smoothing` ratings. (M, K).

    A column with n ratings weighs its own n against `smoothing` ratings spread like everyone's;
    a column without any gets everyone's. One more rating of each level keeps the latter above 0.
    total (K,) are everyone's ratings, if these are the counts of some columns alone.
    """
    require(
        smoothing > 0.0 and math.isfinite(smoothing),
        f"smoothing (={smoothing}) must be a positive number of ratings: log 0 is no start",
    )
    require(
        counts.ndim == 2 and not bool((counts < 0).any()),
        f"counts of shape {tuple(counts.shape)} must be (columns, levels) and not negative",
    )
    counts = counts.to(torch.float64)
    everyone = (counts.sum(0) if total is None else total.to(torch.float64)) + 1.0  # (K,)
    smoothed = counts + smoothing * everyone / everyone.sum()  # (M, K)
    return (smoothed / smoothed.sum(1, keepdim=True)).log()


def level_steps(cumulative: Tensor) -> Tensor:
    """What must be summed over levels (Eq. 10) to give these scores; the first step is the first
    score itself. The softmax does not feel it, but so the sums equal the scores. (M, K)."""
    return torch.cat([cumulative[:, :1], cumulative.diff(dim=1)], dim=1)
