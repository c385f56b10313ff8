"""Popularity: how often each item was taken up, whoever asks."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from annotated_types import Ge

from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.exceptions import ModelError
from cfnade.implicit.base import (
    DataShape,
    FitCache,
    ImplicitComponent,
    Options,
    ScoreArray,
    SearchSpace,
)
from cfnade.implicit.rows import InteractionRows
from cfnade.utils.validation import options


@options(ModelError, "model option")
class PopularityConfig:
    """The size of the catalog."""

    columns: Annotated[int, Ge(1)]


@register("popularity")
class Popularity(ImplicitComponent):
    """log(1 + n_i), where n_i is the total weight of an item's interactions."""

    config_type = PopularityConfig

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace:
        return SearchSpace({}, {}, 1)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        return 1e-8 * shape.interactions

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        counts = np.bincount(rows.columns, rows.weights, minlength=rows.n_columns)
        config = PopularityConfig(columns=rows.n_columns)
        return cls(config, {"logs": np.log1p(counts).astype(np.float32)})

    def scores(self, rows: InteractionRows) -> ScoreArray:
        return np.tile(self.arrays["logs"], (len(rows), 1))

    @classmethod
    def spec(cls, config: PopularityConfig) -> dict[str, ArraySpec]:
        return {"logs": ArraySpec((config.columns,))}
