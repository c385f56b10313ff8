"""Averaged weights: what is evaluated, selected and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def averaged(model: nn.Module, keep: float) -> AveragedModel:
    """A copy of the model whose weights are a running average of it."""
    return AveragedModel(model, multi_avg_fn=_growing(keep))


def _growing(keep: float) -> Callable[[Any, Any, Tensor | int], None]:
    """An exponential average whose horizon grows with the number of updates, up to `keep`.

    From the start on it forgets the beginning quickly, later slowly: (1+m)/(4+m) after m updates.
    """

    @torch.no_grad()
    def update(average: Any, current: Any, updates: Tensor | int) -> None:
        m = float(updates)
        torch._foreach_lerp_(average, current, 1.0 - min(keep, (1.0 + m) / (4.0 + m)))

    return update
