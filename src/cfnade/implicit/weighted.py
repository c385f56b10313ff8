"""What the least-squares components share: weights of interactions, users and items."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt

from cfnade._typing import IntArray
from cfnade.exceptions import ModelError
from cfnade.implicit.base import FEW, ImplicitComponent, Options, ScoreArray
from cfnade.implicit.rows import InteractionRows, Weighting, mean_weight, weigh
from cfnade.kernels.scoring import affine
from cfnade.kernels.sparse import sum_rows
from cfnade.utils.validation import options

FloatArray = npt.NDArray[np.float64]


@options(ModelError, "model option")
class WeightedConfig:
    """The size of the catalog, and how counts of interactions become weights."""

    columns: Annotated[int, Ge(1)]
    weighting: Weighting = "binary"
    mean_weight: Annotated[float, Gt(0)] = 1.0
    """Mean weight of the training interactions, which weights are divided by."""


class WeightedComponent(ImplicitComponent):
    """A component that weighs interactions as its config says."""

    config: WeightedConfig

    def weighed(self, rows: InteractionRows) -> InteractionRows:
        """Return rows with the weights that the component was fitted with."""
        return weigh(rows, self.config.weighting, self.config.mean_weight)


class LinearComponent(WeightedComponent):
    """A component whose scores are sums over interactions."""

    def scores_without(self, row: InteractionRows, places: IntArray) -> ScoreArray:
        scores = self.scores(row) - self.scores(row.singly(places))
        return scores if len(row.columns) > 1 else np.zeros_like(scores)


def weighed_rows(rows: InteractionRows, options: Options) -> tuple[InteractionRows, dict[str, Any]]:
    """Return training rows with their weights, and the options as fields of a config."""
    weighting: Weighting = options.get("weighting", "binary")
    mean = mean_weight(rows, weighting)
    fields = {"columns": rows.n_columns, "mean_weight": mean, **options, "weighting": weighting}
    return weigh(rows, weighting, mean), fields


class RidgeWeights(NamedTuple):
    """How much the regressions count a user and penalize an item."""

    users: FloatArray  # (B,) n_u^-γ
    items: FloatArray  # (M,) n_i^a


def ridge_weights(rows: InteractionRows, user_power: float, item_power: float) -> RidgeWeights:
    """Return n_u^-γ and n_i^a, both scaled to a mean of 1 over the interactions."""
    users, items = rows.counts, rows.item_counts()
    by_user = np.maximum(users, 1).astype(np.float64) ** -user_power
    by_item = np.maximum(items, 1).astype(np.float64) ** item_power
    return RidgeWeights(by_user * _scale(users, by_user), by_item * _scale(items, by_item))


def _scale(counts: IntArray, values: FloatArray) -> float:
    return float(counts.sum() / max(1e-12, (counts * values).sum()))


def times_transpose(states: ScoreArray, table: ScoreArray) -> ScoreArray:
    """Return states (B, D) times table (M, D) transposed: (B, M)."""
    if len(states) <= FEW:
        return np.asarray(affine(states, table, np.zeros(len(table), np.float32)))
    from cfnade.kernels.scoring import product

    return product(states, table)


def scaled(rows: InteractionRows, by_row: Any = 1.0, by_column: Any = 1.0) -> InteractionRows:
    """Return the rows with entries times a factor of their row and one of their column."""
    row_factors = np.broadcast_to(np.asarray(by_row, np.float64), (len(rows),))[rows.rows]
    column_factors = np.broadcast_to(np.asarray(by_column, np.float64), (rows.n_columns,))[
        rows.columns
    ]
    return rows.with_weights(rows.weights * row_factors * column_factors)


def multiply(rows: InteractionRows, table: ScoreArray) -> ScoreArray:
    """Return sparse rows (B, M) times a table (M, D): (B, D)."""
    return np.asarray(sum_rows(rows.indptr, rows.columns, rows.weights, table))
