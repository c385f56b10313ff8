"""Popularity: everybody gets what most people like, the floor that every other list must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfnade_rivals.listers.likes import Likes
from cfnade_rivals.listers.list_rival import Scores, require_likes


@dataclass(frozen=True)
class FittedPopularity:
    """How many people like each item."""

    counts: Scores  # (M,)

    def scores(self, given: Likes) -> Scores:
        """The same for all. Returns (people, M)."""
        return np.tile(self.counts, (len(given), 1))


@dataclass(frozen=True, kw_only=True)
class Popularity:
    """It has no options."""

    name: ClassVar[str] = "popularity"

    def fit(self, likes: Likes, *, seed: int = 0, threads: int | None = None) -> FittedPopularity:
        """Count; seed and threads make no difference."""
        del seed, threads
        require_likes(likes)
        return FittedPopularity(likes.item_counts().astype(np.float32))
