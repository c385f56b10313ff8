"""Shrunken means: the floor that every other model must beat.

mean + b_i + b_u, where b_i = Σ (r - mean) / (n_i + shrinkage) over the item's ratings, and
b_u = Σ (r - mean - b_i) / (n_u + shrinkage) over the user's. Unknown ones have b = 0.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import FloatArray, IntArray, NonNegative
from cfnade_baselines.factor_model import FactorModel


@options(ModelError)
class Means(FactorModel):
    """Global mean, item offsets, user offsets."""

    name: ClassVar[str] = "means"

    kind: Literal["global", "user", "item", "both"] = "both"
    """Which offsets are added to the global mean."""
    item_shrinkage: NonNegative = 5.0
    """Pseudo-ratings at the mean of each item."""
    user_shrinkage: NonNegative = 5.0
    """Pseudo-ratings at the item means of each user."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid, seed, n_threads
        mean = float(train.values.mean())
        residuals = train.values - mean  # (n,)
        items, users = np.zeros(train.n_items), np.zeros(train.n_users)
        if self.kind in ("item", "both"):
            items = _offsets(train.items, residuals, train.n_items, self.item_shrinkage)
            residuals = residuals - items[train.items]
        if self.kind in ("user", "both"):
            users = _offsets(train.users, residuals, train.n_users, self.user_shrinkage)
        no_factors = np.zeros((train.n_users, 0)), np.zeros((train.n_items, 0))
        self._set_factors(train, mean, (users, items), no_factors)


def _offsets(index: IntArray, residuals: FloatArray, size: int, shrinkage: float) -> FloatArray:
    """Return Σ residuals / (n + shrinkage) for each index, 0 for those without any. (size,)."""
    sums = np.bincount(index, residuals, minlength=size)
    weights = np.bincount(index, minlength=size) + shrinkage
    offsets: FloatArray = np.divide(sums, weights, out=np.zeros(size), where=weights > 0)
    return offsets
