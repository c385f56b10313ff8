"""Items by their likeness to what a person likes (Sarwar et al. 2001).

The likeness of two items is how many people like both, divided by √(likes of one · likes of the
other) + shrinkage. An item's score is the sum of its likeness to what is given, as far as that is
among the `neighbours` items most like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade_baselines.base import Count, NotNegative
from cfnade_baselines.libraries import library
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores

_ITEMS = 1000
"""How many items' likeness to all others is in memory at once."""


@dataclass(frozen=True)
class FittedNeighbours(FittedLists):
    """Of each item (a column) its neighbours (rows), a sparse matrix."""

    likeness: Any  # (M, M)

    def scores(self, given: Likes) -> Scores:
        """Sums over what is given. Returns (people, M)."""
        return np.asarray((given.matrix() @ self.likeness).toarray())


@dataclass(frozen=True, kw_only=True)
class ItemKNN(ListRival[FittedNeighbours]):
    """Cosine likeness, cut to the nearest."""

    name: ClassVar[str] = "item-knn"

    neighbours: Count = 100
    """How many items each is compared with."""
    shrinkage: NotNegative = 0.0
    """Makes items with few likes less alike."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedNeighbours:
        """Count, on one thread; the seed makes no difference."""
        del seed, threads
        sparse = library("scipy.sparse", "scipy", self.name)
        by_person = likes.matrix()
        by_item, roots = by_person.T.tocsr(), np.sqrt(likes.item_counts()).astype(np.float32)
        parts = []
        for start in range(0, likes.n_items, _ITEMS):
            some = np.arange(start, min(start + _ITEMS, likes.n_items))
            together = (by_item[some] @ by_person).toarray()
            together /= roots[some, None] * roots + np.float32(self.shrinkage or 1e-12)
            together[np.arange(len(some)), some] = 0
            parts.append(sparse.csr_matrix(_nearest(together, self.neighbours)))
        return FittedNeighbours(sparse.vstack(parts).T.tocsr())


def _nearest(likeness: Scores, count: int) -> Scores:
    """Each row's largest, the others 0. Returns (b, M)."""
    if count >= likeness.shape[1]:
        return likeness
    best = np.argpartition(-likeness, count - 1, axis=1)[:, :count]
    out = np.zeros_like(likeness)
    np.put_along_axis(out, best, np.take_along_axis(likeness, best, 1), 1)
    return out
