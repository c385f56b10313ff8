"""Means with shrinkage: the floor that every other model must beat.

mean + b_i + b_u, where b_i = Σ (r - mean) / (n_i + shrinkage) over the item's ratings, and
b_u = Σ (r - mean - b_i) / (n_u + shrinkage) over the user's. Unknown ones have b = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError
from cfnade_rivals.interface import (
    Arrays,
    FloatArray,
    IntArray,
    checked_cells,
    require_fitted,
    take,
)
from cfnade_rivals.options import at_least, one_of


@dataclass(frozen=True, kw_only=True)
class MeansOptions:
    """Which means, and how far they are trusted."""

    of: str = "both"
    """global, user, item or both: whose mean is predicted."""
    item_shrinkage: float = 5.0
    """Imagined ratings at the mean that each item has."""
    user_shrinkage: float = 5.0
    """Imagined ratings at their items' means that each user has."""

    def __post_init__(self) -> None:
        one_of(self, "of", ("global", "user", "item", "both"))
        at_least(self, 0, "item_shrinkage", "user_shrinkage")


class Means:
    """Global mean, item offsets, user offsets."""

    name: ClassVar[str] = "means"

    def __init__(self, **options: Any) -> None:
        self.options = MeansOptions(**options)
        self._scale: FloatArray | None = None  # (K,) once fitted

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Count; validation, seed and threads make no difference."""
        del valid, seed, threads
        if len(train) == 0:
            raise ModelError("there are no ratings to take the mean of; give at least one")
        options = self.options
        self._mean = float(train.values.mean())
        above = train.values - self._mean  # (n,)
        self._items = np.zeros(train.n_items)
        self._users = np.zeros(train.n_users)
        if options.of in ("item", "both"):
            self._items = _offsets(train.items, above, train.n_items, options.item_shrinkage)
            above = above - self._items[train.items]
        if options.of in ("user", "both"):
            self._users = _offsets(train.users, above, train.n_users, options.user_shrinkage)
        self._scale = train.scale.array()

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean and both offsets, clipped to the scale. Returns (n,)."""
        require_fitted(self._scale is not None, self.name)
        rows, columns = checked_cells(users, items, len(self._users), len(self._items))
        own = np.where(rows >= 0, self._users[rows], 0.0)
        other = np.where(columns >= 0, self._items[columns], 0.0)
        assert self._scale is not None
        return np.clip(self._mean + own + other, self._scale[0], self._scale[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Means have no distribution."""

    def arrays(self) -> Arrays:
        """The mean, both offsets and the scale."""
        require_fitted(self._scale is not None, self.name)
        assert self._scale is not None
        mean = np.array([self._mean])
        return {"mean": mean, "users": self._users, "items": self._items, "scale": self._scale}

    def restore(self, arrays: Arrays) -> None:
        """Take them back."""
        self._mean = float(take(arrays, "mean", "float64", (1,))[0])
        self._users = take(arrays, "users", "float64", (None,))
        self._items = take(arrays, "items", "float64", (None,))
        self._scale = take(arrays, "scale", "float64", (None,))


def _offsets(index: IntArray, above: FloatArray, count: int, shrinkage: float) -> FloatArray:
    """Σ above / (n + shrinkage) for each index; 0 where there is nothing. Returns (count,)."""
    sums = np.bincount(index, above, minlength=count)
    weights = np.bincount(index, minlength=count) + shrinkage
    offsets: FloatArray = np.divide(sums, weights, out=np.zeros(count), where=weights > 0)
    return offsets
