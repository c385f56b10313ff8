"""Synthetic interactions: users of three groups, with items of their own and shared ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale

GROUPS, ITEMS = 3, 60


def interactions_of(table: npt.ArrayLike) -> csr_matrix:
    """Return ones and zeros (users, items) as a sparse matrix."""
    return csr_matrix(np.asarray(table) > 0, dtype=np.float32)


def synthetic_interactions(users: int, seed: int) -> tuple[csr_matrix, csr_matrix]:
    """Return the interactions of so many users: some of them, and the rest."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(GROUPS, size=users)
    probability = np.where(np.arange(ITEMS) % GROUPS == groups[:, None], 0.45, 0.06)
    probability[:, :6] = 0.5
    table = rng.random((users, ITEMS)) < probability
    table[np.arange(users), rng.integers(ITEMS, size=users)] = True
    first = table & (rng.random(table.shape) < 0.7)
    first[np.arange(users), table.argmax(1)] = True
    return interactions_of(first), interactions_of(table & ~first)


def ratings_of(
    users: npt.NDArray[Any], items: IntArray, levels: IntArray, shape: tuple[int, int]
) -> Dataset:
    """Return ratings on the scale 1–5, with ids 100, 101 … and 7, 8 …"""
    return Ratings(
        users.astype(np.int32),
        items.astype(np.int32),
        levels.astype(np.uint8),
        Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        np.arange(100, 100 + shape[0]),
        np.arange(7, 7 + shape[1]),
    )
