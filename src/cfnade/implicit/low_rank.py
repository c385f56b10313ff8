"""Scores through few dimensions: s = ((x ∘ d^-½) V) Vᵀ ∘ d^-½ ∘ P_ii^-θ.

The spectral filter and, where users are fewer than items, EASE have this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from annotated_types import Ge, Gt

from cfnade.components.base import ArraySpec
from cfnade.exceptions import ModelError
from cfnade.implicit.base import Arrays, ScoreArray
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import (
    LinearComponent,
    WeightedConfig,
    multiply,
    scaled,
    times_transpose,
)
from cfnade.utils.validation import options

OUTPUT_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Values of θ that are tried; each costs one pass over the scores and no fit."""


@options(ModelError, "model option")
class RidgeConfig(WeightedConfig):
    """A ridge regression of every item on all others."""

    penalty: Annotated[float, Gt(0)]
    """λ."""
    item_power: Annotated[float, Ge(0)] = 0.0
    """a: an item of n interactions is penalized in proportion to n^a."""
    user_power: Annotated[float, Ge(0)] = 0.0
    """γ: a user of n interactions counts in proportion to n^-γ."""
    output_power: Annotated[float, Ge(0)] = 1.0
    """θ: scores are divided by P_ii^θ."""
    rank: Annotated[int, Ge(0)] = 0
    """Columns of V; 0: a matrix of all items by all items."""


def output_factors(diagonal: Any, power: float) -> ScoreArray:
    """Return P_ii^-θ, 1 where P_ii is at its mean."""
    safe = np.maximum(np.asarray(diagonal, np.float64), 1e-12)
    return np.asarray((safe / safe.mean()) ** -power, np.float32)


class LowRankComponent(LinearComponent):
    """V (M, R) with the factors of an item's entry and of its score."""

    config: RidgeConfig

    def __init__(self, config: RidgeConfig, arrays: Arrays, diagonal: Any = None) -> None:
        super().__init__(config, arrays)
        self._diagonal = diagonal
        """P_ii of a component whose θ is yet to be chosen."""

    def variants(self) -> Mapping[float, ScoreArray]:
        return {power: output_factors(self._diagonal, power) for power in OUTPUT_POWERS}

    def scores(self, rows: InteractionRows) -> ScoreArray:
        entries = scaled(self.weighed(rows), by_column=self.arrays["input"])
        total = times_transpose(multiply(entries, self.arrays["V"]), self.arrays["V"])
        total *= self.arrays["output"]
        return total

    def item_vectors(self) -> ScoreArray | None:
        return self.arrays["V"]

    @classmethod
    def low_rank_spec(cls, config: RidgeConfig) -> dict[str, ArraySpec]:
        M = config.columns
        return {
            "V": ArraySpec((M, config.rank)),
            "input": ArraySpec((M,)),
            "output": ArraySpec((M,)),
        }

    def scaled_output(self, factors: ScoreArray, config: RidgeConfig) -> Self:
        """Return the component with its scores multiplied by factors (M,)."""
        arrays = dict(self.arrays) | {"output": self.arrays["output"] * factors}
        return type(self)(config, arrays)
