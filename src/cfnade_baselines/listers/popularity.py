"""Popularity: everybody gets what most people like, the floor that every other list must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedPopularity(FittedLists):
    """How many people like each item."""

    counts: Scores  # (M,)

    def scores(self, given: Likes) -> Scores:
        """The same for all. Returns (people, M)."""
        return np.tile(self.counts, (len(given), 1))


@dataclass(frozen=True, kw_only=True)
class Popularity(ListRival[FittedPopularity]):
    """It has no options."""

    name: ClassVar[str] = "popularity"

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedPopularity:
        """Count; seed and threads make no difference."""
        del seed, threads
        return FittedPopularity(likes.item_counts().astype(np.float32))
