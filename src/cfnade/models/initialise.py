"""Where training starts: weights as in the authors' code, output biases from the data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cfnade.models.checks import require


def glorot_(weights: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    """Fill with uniform numbers in ±√(6 / (fan_in + fan_out))."""
    drawn = torch.rand(
        weights.shape, generator=generator, device=generator.device, dtype=weights.dtype
    )
    with torch.no_grad():
        weights.copy_((2.0 * drawn - 1.0) * math.sqrt(6.0 / (fan_in + fan_out)))


def smoothed_log_frequencies(counts: Tensor, smoothing: float) -> Tensor:
    """log p(level) of each column, pulled towards all columns' by `smoothing` ratings. (M, K).

    A column with n ratings weighs its own n against `smoothing` ratings spread like everyone's;
    a column without any gets everyone's. One more rating of each level keeps the latter above 0.
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
    everyone = counts.sum(0) + 1.0  # (K,)
    smoothed = counts + smoothing * everyone / everyone.sum()  # (M, K)
    return (smoothed / smoothed.sum(1, keepdim=True)).log()


def steps(cumulative: Tensor) -> Tensor:
    """What must be summed over levels (Eq. 10) to give these scores; the first step is the first
    score itself. The softmax does not feel it, but so the sums equal the scores. (M, K)."""
    return torch.cat([cumulative[:, :1], cumulative.diff(dim=1)], dim=1)
