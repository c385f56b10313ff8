"""Means with shrinkage: the floor that every other model must beat.

mean + b_i + b_u, where b_i = Σ (r - mean) / (n_i + shrinkage) over the item's ratings, and
b_u = Σ (r - mean - b_i) / (n_u + shrinkage) over the user's. Unknown ones have b = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade_baselines.base import FloatArray, IntArray, NotNegative, Rival
from cfnade_baselines.factor_model import FactorTables


@dataclass(frozen=True, kw_only=True)
class Means(Rival[FactorTables]):
    """Global mean, item offsets, user offsets."""

    name: ClassVar[str] = "means"

    of: Literal["global", "user", "item", "both"] = "both"
    """global, user, item or both: whose mean is predicted."""
    item_shrinkage: NotNegative = 5.0
    """Imagined ratings at the mean that each item has."""
    user_shrinkage: NotNegative = 5.0
    """Imagined ratings at their items' means that each user has."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FactorTables:
        """Count; validation, seed and threads make no difference."""
        del valid, seed, threads
        mean = float(train.values.mean())
        above = train.values - mean  # (n,)
        items, users = np.zeros(train.n_items), np.zeros(train.n_users)
        if self.of in ("item", "both"):
            items = _offsets(train.items, above, train.n_items, self.item_shrinkage)
            above = above - items[train.items]
        if self.of in ("user", "both"):
            users = _offsets(train.users, above, train.n_users, self.user_shrinkage)
        no_tastes = np.zeros((train.n_users, 0)), np.zeros((train.n_items, 0))
        return FactorTables.of(train, mean, (users, items), no_tastes)


def _offsets(index: IntArray, above: FloatArray, count: int, shrinkage: float) -> FloatArray:
    """Σ above / (n + shrinkage) for each index; 0 where there is nothing. Returns (count,)."""
    sums = np.bincount(index, above, minlength=count)
    weights = np.bincount(index, minlength=count) + shrinkage
    offsets: FloatArray = np.divide(sums, weights, out=np.zeros(count), where=weights > 0)
    return offsets
