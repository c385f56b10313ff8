"""What simple means say when each rating is added as it comes: the least that a model must beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset

DAMPING = 5.0
"""Imagined ratings at the mean of all, of each user and item."""


class OnlineMeans:
    """The mean of all, what an item adds, and what a user adds to that."""

    def __init__(self, data: Dataset, known: int) -> None:
        """Of ratings in their order, of which the first so many have come."""
        self._data, self._values = data, data.values
        self._items, self._users = np.zeros((data.n_items, 2)), np.zeros((data.n_users, 2))
        self._total, self._count = float(self._values[:known].sum()), known
        for at in range(known):
            self._learn(at)

    def foreseen(self, part: Any) -> npt.NDArray[np.float64]:
        """What is expected of each, before it is added too."""
        out = np.empty(len(part))
        for n, at in enumerate(part.tolist()):
            mean = self._total / self._count
            out[n] = mean + self._item(at, mean) + self._user(at)
            self._total, self._count = self._total + float(self._values[at]), self._count + 1
            self._learn(at)
        return out

    def _item(self, at: int, mean: float) -> float:
        total, count = self._items[self._data.items[at]]
        return float((total - count * mean) / (count + DAMPING))

    def _user(self, at: int) -> float:
        total, count = self._users[self._data.users[at]]
        return float(total / (count + DAMPING))

    def _learn(self, at: int) -> None:
        rating, mean = float(self._values[at]), self._total / self._count
        self._users[self._data.users[at]] += (rating - mean - self._item(at, mean), 1)
        self._items[self._data.items[at]] += (rating, 1)
