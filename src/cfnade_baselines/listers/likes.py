"""Who likes what: people × items, without numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.csr import row_offsets
from cfnade.data.dataset import Dataset, pair_keys
from cfnade_baselines.libraries import library


@dataclass(frozen=True, eq=False)
class Likes:
    """Person p likes items columns[offsets[p]:offsets[p+1]], in rising order."""

    offsets: IntArray  # (N+1,)
    columns: IndexArray  # (n,)
    n_items: int

    @staticmethod
    def of(ratings: Dataset, threshold: float | None = None) -> Likes:
        """Ratings of `threshold` or more: if not given, of the scale's upper quarter.

        A scale of one level has nothing but likes. Row p is user p of the ratings.
        """
        least = ratings.scale.default_threshold if threshold is None else threshold
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        return Likes.rated(ratings.select(ratings.values >= least - 1e-9 * max(1.0, abs(least))))

    @staticmethod
    def rated(ratings: Dataset) -> Likes:
        """Every rating, high or low."""
        cells = np.sort(pair_keys(ratings.users, ratings.items, ratings.n_items))
        columns = (cells % max(1, ratings.n_items)).astype(np.int32)
        return Likes(row_offsets(ratings.users, ratings.n_users), columns, ratings.n_items)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def counts(self) -> IntArray:
        """How much each person likes. Returns (N,)."""
        return np.diff(self.offsets)

    def item_counts(self) -> IntArray:
        """How many like each item. Returns (M,)."""
        return np.bincount(self.columns, minlength=self.n_items)

    def rows(self) -> IndexArray:
        """Whose each entry of `columns` is. Returns (n,)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts())

    def people(self, which: npt.NDArray[Any]) -> Likes:
        """These people alone, by number."""
        counts = self.counts()[which]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(self.offsets[:-1][which] - offsets[:-1], counts)
        return Likes(offsets, self.columns[shift + np.arange(offsets[-1])], self.n_items)

    def among(self, items: IntArray) -> Likes:
        """These items alone, rising and numbered anew; everyone stays."""
        number = np.full(self.n_items, -1, np.int32)
        number[items] = np.arange(len(items), dtype=np.int32)
        columns = number[self.columns]
        kept = columns >= 0
        return Likes(row_offsets(self.rows()[kept], len(self)), columns[kept], len(items))

    def matrix(self) -> Any:
        """Ones in a scipy.sparse.csr_matrix. (N, M) float32."""
        sparse = library("scipy.sparse", "scipy", "a model of lists")
        ones = np.ones(len(self.columns), np.float32)
        shape = len(self), self.n_items
        # Copies: libraries may sort or change what they are given.
        return sparse.csr_matrix((ones, self.columns.copy(), self.offsets.copy()), shape=shape)
