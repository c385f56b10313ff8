# ruff: noqa: ARG002, ARG003
"""A small side, as a new kind begins: biases of columns, and how high a row's other ratings are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from cfnade.components import Axis, TorchComponent
from cfnade.components.base import Before
from cfnade.components.plain import PlainComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.models.batch import Context


class ToySide(PlainComponent):
    network: nn.ParameterDict

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        rows = ratings.rows(axis or "user")
        sizes = {"columns": rows.n_columns, "levels": rows.n_levels}
        return cls(axis or "user", cls.empty(sizes))

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        nn.init.normal_(self.network["w"], 0.0, 0.01, generator)

    def to_dict(self) -> dict[str, Any]:
        columns, levels = self.network["b"].shape
        return {"columns": columns, "levels": levels}

    @staticmethod
    def empty(fields: Mapping[str, Any]) -> nn.ParameterDict:
        sizes = {"b": (fields["columns"], fields["levels"]), "w": (fields["levels"],)}
        return nn.ParameterDict({name: torch.zeros(size) for name, size in sizes.items()})

    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        self.network.load_state_dict(earlier.network.state_dict())

    def fault(self, ratings: Dataset) -> str | None:
        fits = self.sized(self.axis, ratings, {}).to_dict() == self.to_dict()
        return None if fits else "the data has other sizes"

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        b, w = self.network.values()
        sums = w.new_zeros(context.size).index_add(0, context.rows(), context.levels.to(w))
        means = sums / context.counts().clamp(min=1)
        return torch.addcmul(b[columns], means[rows].unsqueeze(1), w)
