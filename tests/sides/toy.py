# ruff: noqa: ARG002, ARG003
"""A small side, as a new kind begins: biases of columns, and how high a row's other ratings are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from cfnade.data.ratings import Ratings
from cfnade.models.batch import Context
from cfnade.settings import Settings
from cfnade.sides import Axis, Side
from cfnade.sides.plain import PlainSide
from cfnade.sides.side import Before


class ToySide(PlainSide):
    network: nn.ParameterDict

    def __init__(self, axis: Axis | None, columns: int, levels: int) -> None:
        sizes = {"b": (columns, levels), "w": (levels,)}
        tables = {name: torch.zeros(size) for name, size in sizes.items()}
        super().__init__(axis or "user", nn.ParameterDict(tables))

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Ratings, fields: Mapping[str, Any]) -> Self:
        rows = ratings.rows(axis or "user")
        return cls(axis, rows.n_columns, rows.n_levels)

    def start(
        self, ratings: Ratings, generator: torch.Generator, settings: Settings, before: Before
    ) -> None:
        nn.init.normal_(self.network["w"], 0.0, 0.01, generator)

    def to_dict(self) -> dict[str, Any]:
        columns, levels = self.network["b"].shape
        return {"columns": columns, "levels": levels}

    @classmethod
    def from_saved(cls, axis: Axis | None, fields: Mapping[str, Any], arrays: object) -> Self:
        return cls(axis, **fields)

    def take_over(self, earlier: Side, ratings: Ratings, earlier_ratings: Ratings) -> None:
        self.network.load_state_dict(earlier.network.state_dict())

    def fault(self, ratings: Ratings) -> str | None:
        fits = self.sized(self.axis, ratings, {}).to_dict() == self.to_dict()
        return None if fits else "the data has other sizes"

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        b, w = self.network.values()
        sums = w.new_zeros(context.size).index_add(0, context.rows(), context.levels.to(w))
        means = sums / context.counts().clamp(min=1)
        return torch.addcmul(b[columns], means[rows].unsqueeze(1), w)
