"""Behavior of the authors' released code that differs from the paper and is no training option.

slope       hidden states also receive r_i · S_i: a direction per column that grows with the rating.
            It equals W_{i,j} + S_i for every level j, so the trained S is folded into W.
adam        Adam without the correction of its first steps, which makes early steps up to 6.5 times
            as long: the same as a schedule that multiplies the rate.
flat_start  output biases start at zero instead of the data's frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor, nn

from cfnade.components import COMPONENTS, ArraySpec, Axis, FitData, Trainer
from cfnade.components.base import Array, other_axis
from cfnade.components.batches import Batch
from cfnade.components.nade import NadeComponent, NadeTrainer
from cfnade.components.optimizers import TorchTrainer
from cfnade.components.registry import Kind
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import CfnadeError
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig


@contextmanager
def variant(name: str | None) -> Iterator[None]:
    """Make new CF-NADE components of the variant inside the block; None changes nothing."""
    if name is not None and name not in _VARIANTS:
        raise CfnadeError(f"unknown variant {name!r}; known: {', '.join(_VARIANTS)}")
    component = _VARIANTS[name] if name else NadeComponent
    kinds = {
        key: Kind(component, kind.axis)
        for key, kind in COMPONENTS.items()
        if kind.component is NadeComponent
    }
    with patch.dict(COMPONENTS, kinds):
        yield


class SlopeNetwork(CFNADENetwork):
    """CF-NADE whose context embeddings have the slope S of each column added at every level."""

    def __init__(self, config: CFNADEConfig) -> None:
        super().__init__(config)
        self.S = nn.Parameter(torch.zeros(config.columns, self.W.shape[2]))  # (M, H)

    @property
    def input_table(self) -> Tensor:
        return self.W + self.S[:, None, :]  # (M, K, H)


class SlopeComponent(NadeComponent):
    """Trained by autograd: the compiled step has no S."""

    @classmethod
    def spec(cls, config: CFNADEConfig) -> dict[str, ArraySpec]:
        shape = (config.columns, config.hidden[0])
        return super().spec(config) | {"S": ArraySpec(shape)}

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        new = super().fit(axis, data, options)
        unseen = data.dataset.level_counts(other_axis(new.axis)).sum(1) == 0
        new.arrays["W"][unseen] = 0.0  # their input is S alone
        return new

    @property
    def input_table(self) -> Array:
        """Return W + S, (M, K, H)."""
        return self.arrays["W"] + self.arrays["S"][:, None]

    def module(self) -> nn.Module:
        return SlopeNetwork(self.config)

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        del threads
        return TorchTrainer(self, self.rules(ratings, settings, share=share))


class UncorrectedComponent(NadeComponent):
    """Adam as the authors' code has it: decay rates 0.9 and 0.999, corrected for 0.1 and 0.001."""

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        rules = self.rules(ratings, settings, share=share)
        return UncorrectedTrainer(self, rules, settings, threads)


class UncorrectedTrainer(NadeTrainer):
    """Lengthens every step by the factor of the wrong correction."""

    def backward(self, draw: Batch, gradient: Array, rate: float) -> None:
        super().backward(draw, gradient, self._lengthened(rate))

    def fused_step(self, draw: Batch, rate: float) -> float | None:
        return super().fused_step(draw, self._lengthened(rate))

    def _lengthened(self, rate: float) -> float:
        return rate * uncorrected_factor(self._engine.parameters.steps + 1)


def uncorrected_factor(t: int) -> float:
    """Return the ratio of the uncorrected step t to the corrected one; t counts from 1."""
    uncorrected = math.sqrt(1 - 0.001**t) / (1 - 0.1**t)
    corrected = math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return uncorrected / corrected


class FlatStartComponent(NadeComponent):
    """Starts with equally likely levels."""

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        new = super().fit(axis, data, options)
        new.arrays["b"][...] = 0.0
        return new


_VARIANTS: dict[str, type[NadeComponent]] = {
    "slope": SlopeComponent,
    "adam": UncorrectedComponent,
    "flat_start": FlatStartComponent,
}
