"""What the moment of a rating adds to its scores: a small network of F time features.

F·A + tanh(F·M1 + m1)·M2 is added to the steps between levels. A and M2 start at 0, so that a model
begins as if it knew nothing of time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cfnade.models.config import TIME_UNITS, require
from cfnade.models.initialization import glorot_


class TimeNetwork(nn.Module):
    """From time features (T, F) to what they add to the scores (T, K)."""

    def __init__(self, features: int, levels: int, *, shared: bool) -> None:
        super().__init__()
        self.shared = shared
        self.A = nn.Parameter(torch.zeros(features, levels))
        self.M1 = nn.Parameter(torch.zeros(features, TIME_UNITS))
        self.m1 = nn.Parameter(torch.zeros(TIME_UNITS))
        self.M2 = nn.Parameter(torch.zeros(TIME_UNITS, levels))

    def initialise(self, generator: torch.Generator) -> None:
        glorot_(self.M1, self.M1.shape[0], TIME_UNITS, generator)

    def forward(self, features: Tensor) -> Tensor:
        width = self.A.shape[0]
        require(
            features.ndim == 2 and features.shape[1] == width,
            f"time features have shape {tuple(features.shape)}; it must be (cells, {width})",
        )
        steps: Tensor = features @ self.A + torch.tanh(features @ self.M1 + self.m1) @ self.M2
        return steps.cumsum(1) if self.shared else steps
