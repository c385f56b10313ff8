"""Popularity: everybody gets what most people like, the floor that every other list must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfnade_rivals.lists.interface import Scores, require_likes
from cfnade_rivals.lists.picks import Picks


@dataclass(frozen=True)
class FittedPopularity:
    """How many people like each item."""

    counts: Scores  # (M,)

    def scores(self, given: Picks) -> Scores:
        """The same for all. Returns (people, M)."""
        return np.tile(self.counts, (len(given), 1))


@dataclass(frozen=True, kw_only=True)
class Popularity:
    """It has no options."""

    name: ClassVar[str] = "popularity"

    def fit(self, likes: Picks, *, seed: int = 0, threads: int | None = None) -> FittedPopularity:
        """Count; seed and threads make no difference."""
        del seed, threads
        require_likes(likes)
        return FittedPopularity(likes.item_counts().astype(np.float32))
