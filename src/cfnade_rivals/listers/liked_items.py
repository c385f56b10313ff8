"""Models learn of items that somebody likes, and answer about all items of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfnade.data.ratings import IntArray
from cfnade_rivals.listers.likes import Likes
from cfnade_rivals.listers.list_rival import FittedLists, ListRival, Scores, require_likes


@dataclass(frozen=True)
class FittedOnLiked:
    """A model of some items, asked with the numbers of all."""

    fitted: FittedLists
    items: IntArray

    def scores(self, given: Likes) -> Scores:
        """Of items that the model knows, -inf of the others. Returns (people, M)."""
        out: Scores = np.full((len(given), given.n_items), -np.inf, np.float32)
        out[:, self.items] = self.fitted.scores(given.among(self.items))
        return out


@dataclass(frozen=True, eq=False)
class LikedItems:
    """Likes with the items that somebody likes alone, numbered anew."""

    items: IntArray
    likes: Likes

    @staticmethod
    def of(likes: Likes) -> LikedItems:
        """Leave out what nobody likes."""
        require_likes(likes)
        items = np.flatnonzero(likes.item_counts())
        return LikedItems(items, likes.among(items))

    def fit(self, rival: ListRival, *, seed: int = 0, threads: int | None = None) -> FittedOnLiked:
        """Fit a model that can be asked about all items."""
        return FittedOnLiked(rival.fit(self.likes, seed=seed, threads=threads), self.items)
