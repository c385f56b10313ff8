"""Local ridge: EASE for catalogs whose matrix of all items does not fit into memory.

Item j is regressed on the m items N with the largest cosine of G = Xᵀ diag(w) X:

    b = (G_NN + λ diag(d_N))⁻¹ G_Nj,     s_j = Σ_{i∈N} x_i b_i · n_j^-δ
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from annotated_types import Ge, Gt

from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.exceptions import ModelError
from cfnade.implicit.base import DataShape, FitCache, Options, ScoreArray, SearchSpace
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import (
    LinearComponent,
    WeightedConfig,
    ridge_weights,
    scaled,
    weighed_rows,
)
from cfnade.kernels.neighbor_regression import gram_lines, neighbor_regressions
from cfnade.kernels.sparse import add_entries, transposed
from cfnade.utils.validation import options

LINE_NUMBERS = 80_000_000
"""Numbers of G that are kept: 640 MB with their columns."""
POPULARITY_POWERS = (-0.1, 0.0, 0.1, 0.2, 0.3)
"""Values of δ that are tried; each costs one pass over the scores and no fit."""


@options(ModelError, "model option")
class LocalConfig(WeightedConfig):
    """A ridge regression of every item on its neighbors."""

    penalty: Annotated[float, Gt(0)]
    """λ."""
    neighbors: Annotated[int, Ge(1)] = 100
    """m."""
    item_power: Annotated[float, Ge(0)] = 0.25
    """a, as in ease.py."""
    user_power: Annotated[float, Ge(0)] = 0.5
    """γ, as in ease.py."""
    popularity_power: float = 0.0
    """δ."""


def _lines(items: int, neighbors: int) -> int:
    """How many numbers of G are kept of each item."""
    return int(max(1, min(items - 1, max(4 * neighbors, LINE_NUMBERS // items))))


@register("local")
class LocalRidge(LinearComponent):
    """neighbors (M, m) of each item and their weights."""

    config_type = LocalConfig
    config: LocalConfig

    def __init__(self, config: LocalConfig, arrays: Mapping[str, Any], counts: Any = None) -> None:
        super().__init__(config, arrays)
        neighbors = self.arrays.get("neighbors", np.empty(0, np.int32))
        if neighbors.size and not -1 <= neighbors.min() <= neighbors.max() < config.columns:
            raise ModelError("neighbors of the component 'local' are outside of the catalog")
        self._counts = counts
        """n_j of a component whose δ is yet to be chosen."""

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        values = {
            "penalty": (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0),
            "item_power": (0.0, 0.25, 0.5),
            "user_power": (0.0, 0.5, 1.0),
            "neighbors": (50, 100, 200),
        }
        start = {"penalty": 80.0, "item_power": 0.25, "user_power": 0.5, "neighbors": 100}
        return SearchSpace(values, start, 18)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        M = shape.items
        met = M * -np.expm1(-shape.pairs / M**2)  # items that an item occurs with
        line = min(met, _lines(M, options["neighbors"]))
        m = min(options["neighbors"], line)
        passes = 6e-8 * line + m * (5e-7 + 1.2e-9 * line)  # sort the line; read those of neighbors
        return float(4e-9 * shape.pairs + M * (passes + 1.6e-11 * m**3))

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        weighed, fields = weighed_rows(rows, options)
        config = LocalConfig(**(fields | {"popularity_power": 0.0}))
        m, M = min(config.neighbors, max(1, rows.n_columns - 1)), rows.n_columns
        config = replace(config, neighbors=m)
        users, items = ridge_weights(weighed, config.user_power, config.item_power)
        scaled_rows = scaled(weighed, by_row=np.sqrt(users))
        key = config.weighting, config.user_power, _lines(M, m)
        data = scaled_rows.indptr, scaled_rows.columns, scaled_rows.weights, M
        lines = cache.get("lines", key, lambda: gram_lines(*data, _lines(M, m)))
        neighbors, weights = neighbor_regressions(*lines, config.penalty * items, m)
        counts = np.maximum(weighed.item_counts(), 1)
        return cls(config, {"neighbors": neighbors, "weights": weights}, counts)

    def variants(self) -> Mapping[float, ScoreArray]:
        return {power: self._factors(power) for power in POPULARITY_POWERS}

    def with_variant(self, value: float) -> Self:
        weights = self.arrays["weights"] * self._factors(value)[:, None]
        config = replace(self.config, popularity_power=value)
        return type(self)(config, dict(self.arrays) | {"weights": weights})

    def _factors(self, power: float) -> ScoreArray:
        return np.asarray(self._counts.astype(np.float64) ** -power, np.float32)

    def scores(self, rows: InteractionRows) -> ScoreArray:
        weighed = self.weighed(rows)
        data = weighed.indptr, weighed.columns, weighed.weights
        return np.asarray(add_entries(*data, *self._by_source))

    @cached_property
    def _by_source(self) -> tuple[Any, Any, Any]:
        """Which items each item adds to, and how much."""
        neighbors = self.arrays["neighbors"]
        targets, places = np.nonzero(neighbors >= 0)
        weights = self.arrays["weights"][targets, places]
        sources = neighbors[targets, places]
        return transposed(targets.astype(np.int32), sources, weights, len(neighbors))

    @classmethod
    def spec(cls, config: LocalConfig) -> dict[str, ArraySpec]:
        shape = config.columns, config.neighbors
        return {"neighbors": ArraySpec(shape, dtype="int32"), "weights": ArraySpec(shape)}
