"""What the authors' released code does beside the paper's text, where it is no product option.

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
    """New CF-NADE components inside are of the variant; None is the product as it is."""
    if name is not None and name not in _VARIANTS:
        raise CfnadeError(f"unknown variant {name!r}; known: {', '.join(_VARIANTS)}")
    own = _VARIANTS[name] if name else NadeComponent
    kinds = {
        key: Kind(own, kind.axis)
        for key, kind in COMPONENTS.items()
        if kind.component is NadeComponent
    }
    with patch.dict(COMPONENTS, kinds):
        yield


class SlopeNetwork(CFNADENetwork):
    """CF-NADE whose context embeddings have the slope S of each column added at every level."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.S = nn.Parameter(torch.zeros(self.config.columns, self.W.shape[2]))  # (M, H)

    @property
    def input_table(self) -> Tensor:
        return self.W + self.S[:, None, :]  # (M, K, H)


class SlopeComponent(NadeComponent):
    """Its gradients come by autograd: the compiled step knows nothing of S."""

    @classmethod
    def spec(cls, config: CFNADEConfig) -> dict[str, ArraySpec]:
        shape = (config.columns, config.hidden[0])
        return super().spec(config) | {"S": ArraySpec(shape)}

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        new = super().fit(axis, data, options)
        unseen = data.dataset.level_counts(other_axis(new.axis)).sum(1) == 0
        new.arrays["W"][unseen] = 0.0  # the input table is a sum here, which keeps nothing
        return new

    @property
    def input_table(self) -> Array:
        """W with S in it, as they are always added."""
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
    """Every step is as much longer as the wrong correction makes it."""

    def backward(self, draw: Batch, gradient: Array, rate: float) -> None:
        super().backward(draw, gradient, self._lengthened(rate))

    def fused_step(self, draw: Batch, rate: float) -> float | None:
        return super().fused_step(draw, self._lengthened(rate))

    def _lengthened(self, rate: float) -> float:
        return rate * uncorrected_factor(self._engine.parameters.steps + 1)


def uncorrected_factor(t: int) -> float:
    """How much longer the uncorrected step t is than the corrected one; t counts from 1."""
    theirs = math.sqrt(1 - 0.001**t) / (1 - 0.1**t)
    right = math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return theirs / right


class FlatStartComponent(NadeComponent):
    """All levels are equally likely before the first step."""

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
