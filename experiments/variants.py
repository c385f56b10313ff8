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

from cfnade.components import KINDS, Axis, Kind
from cfnade.components.base import Array, Before
from cfnade.components.batches import Batch
from cfnade.components.nade import NadeComponent, NadeTrainer
from cfnade.components.nade_rows import NadeWeights
from cfnade.components.optimizers import TorchTrainer
from cfnade.components.trainable import Trainer, tables_of
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import CfnadeError
from cfnade.models.cfnade import CFNADENetwork


@contextmanager
def variant(name: str | None) -> Iterator[None]:
    """New CF-NADE sides inside are of the variant; None is the product as it is."""
    if name is not None and name not in _VARIANTS:
        raise CfnadeError(f"unknown variant {name!r}; known: {', '.join(_VARIANTS)}")
    own = _VARIANTS[name] if name else NadeComponent
    kinds = {key: Kind(own, kind.axis) for key, kind in KINDS.items() if kind.side is NadeComponent}
    with patch.dict(KINDS, kinds):
        yield


class SlopeNetwork(CFNADENetwork):
    """CF-NADE whose context embeddings have the slope S of each column added at every level."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.S = nn.Parameter(torch.zeros(self.config.columns, self.W.shape[2]))  # (M, H)

    @property
    def input_table(self) -> Tensor:
        return self.W + self.S[:, None, :]  # (M, K, H)


class SlopeSide(NadeComponent):
    """Its gradients come by autograd: the compiled step knows nothing of S."""

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        plain = NadeComponent.sized(axis, ratings, fields)
        return cls(plain.axis, SlopeNetwork.from_config(plain.network.config))

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        super().start(ratings, generator, settings, before)
        unseen = torch.from_numpy(ratings.level_counts(_COLUMNS[self.axis])).sum(1) == 0
        with torch.no_grad():
            self.network.W[unseen] = 0.0  # the input table is a sum here, which keeps nothing

    def weights(self) -> NadeWeights:
        """With S in W, as they are always added."""
        whole = {"W": self.network.input_table.detach().numpy()}
        return NadeWeights(self.axis, self.network.config, tables_of(self.network) | whole)

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        del threads
        return TorchTrainer(self, self.rules(ratings, settings, share=share))


_COLUMNS: dict[Axis, Axis] = {"user": "item", "item": "user"}


class UncorrectedSide(NadeComponent):
    """Adam as the authors' code has it: decay rates 0.9 and 0.999, corrected for 0.1 and 0.001."""

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        rules = self.rules(ratings, settings, share=share)
        return UncorrectedStepper(self, rules, settings, threads)


class UncorrectedStepper(NadeTrainer):
    """Every step is as much longer as the wrong correction makes it."""

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        super().fit(draw, slopes, self._lengthened(rate))

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        return super().step_at_once(draw, self._lengthened(rate))

    def _lengthened(self, rate: float) -> float:
        return rate * uncorrected_factor(self._engine.steps + 1)


def uncorrected_factor(t: int) -> float:
    """How much longer the uncorrected step t is than the corrected one; t counts from 1."""
    theirs = math.sqrt(1 - 0.001**t) / (1 - 0.1**t)
    right = math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return theirs / right


class FlatStartSide(NadeComponent):
    """All levels are equally likely before the first step."""

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        super().start(ratings, generator, settings, before)
        nn.init.zeros_(self.network.b)


_VARIANTS: dict[str, type[NadeComponent]] = {
    "slope": SlopeSide,
    "adam": UncorrectedSide,
    "flat_start": FlatStartSide,
}
