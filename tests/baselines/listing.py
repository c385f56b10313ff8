"""Made-up likes: people of three kinds, each with items of its own and some that all like."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.data.csr import row_offsets
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade_baselines.listers.likes import Likes

KINDS, ITEMS = 3, 60


def likes_of(table: npt.ArrayLike) -> Likes:
    """From ones and zeros (people, items)."""
    cells = np.asarray(table) > 0
    people, items = np.nonzero(cells)
    offsets = row_offsets(people.astype(np.int32), len(cells))
    return Likes(offsets, items.astype(np.int32), cells.shape[1])


def table_of(likes: Likes) -> npt.NDArray[np.float64]:
    """Ones and zeros (people, items)."""
    out = np.zeros((len(likes), likes.n_items))
    for person in range(len(likes)):
        out[person, likes.columns[likes.offsets[person] : likes.offsets[person + 1]]] = 1
    return out


def made_up(people: int, seed: int) -> tuple[Likes, Likes]:
    """What so many people like: some of it, and the rest."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(KINDS, size=people)
    chance = np.where(np.arange(ITEMS) % KINDS == kinds[:, None], 0.45, 0.06)
    chance[:, :6] = 0.5
    liked = rng.random((people, ITEMS)) < chance
    liked[np.arange(people), rng.integers(ITEMS, size=people)] = True
    first = liked & (rng.random(liked.shape) < 0.7)
    first[np.arange(people), liked.argmax(1)] = True
    return likes_of(first), likes_of(liked & ~first)


def ratings_of(
    users: IntArray, items: IntArray, levels: IntArray, shape: tuple[int, int]
) -> Dataset:
    """On the scale 1–5, with ids 100, 101 … and 7, 8 …"""
    return Ratings(
        users.astype(np.int32),
        items.astype(np.int32),
        levels.astype(np.uint8),
        Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        np.arange(100, 100 + shape[0]),
        np.arange(7, 7 + shape[1]),
    )
