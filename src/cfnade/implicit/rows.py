"""Interactions of users as sparse rows: which items each user took up, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.csr import CsrRows, row_offsets, stable_order
from cfnade.data.dataset import Dataset
from cfnade.kernels.sparse import transposed

WeightArray = npt.NDArray[np.float32]
Weighting = Literal["binary", "log", "linear"]


@dataclass(frozen=True, eq=False)
class InteractionRows:
    """Row r has the items columns[indptr[r]:indptr[r+1]], in any order, each once."""

    indptr: IntArray  # (B+1,)
    columns: IndexArray  # (n,)
    weights: WeightArray  # (n,) > 0
    n_columns: int

    @classmethod
    def from_ratings(cls, ratings: Dataset) -> InteractionRows:
        """Return one row per user of a data set; without weights every interaction counts 1."""
        rows, weights = ratings.rows("user"), np.ones(len(ratings), np.float32)
        if ratings.weights is not None:
            order = stable_order(ratings.users, ratings.n_users)
            weights = ratings.weights if order is None else ratings.weights[order]
        return cls(rows.offsets, rows.columns, weights.astype(np.float32), rows.n_columns)

    @classmethod
    def from_rows(cls, rows: CsrRows) -> InteractionRows:
        """Return the same rows; every interaction counts 1."""
        columns = np.asarray(rows.columns, np.int32)
        return cls(rows.offsets, columns, np.ones(len(columns), np.float32), rows.n_columns)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def counts(self) -> IntArray:
        """Number of interactions of each row, (B,)."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> IndexArray:
        """Row of each interaction, (n,)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)

    def item_counts(self) -> IntArray:
        """Number of interactions of each item, (M,)."""
        return np.bincount(self.columns, minlength=self.n_columns)

    def entries(self, rows: IntArray) -> IntArray:
        """Positions of the interactions of some rows, in the order of `rows`."""
        counts = self.indptr[rows + 1] - self.indptr[rows]
        ends = np.cumsum(counts)
        starts = self.indptr[rows] - ends + counts
        return np.asarray(np.arange(counts.sum()) + np.repeat(starts, counts))

    def select(self, rows: IntArray) -> InteractionRows:
        """Return some rows, in this order."""
        places = self.entries(rows)
        ends = np.cumsum(self.indptr[rows + 1] - self.indptr[rows])
        indptr = np.concatenate([[0], ends]).astype(np.int64)
        return InteractionRows(indptr, self.columns[places], self.weights[places], self.n_columns)

    def singly(self, places: IntArray) -> InteractionRows:
        """Return one row for each of these interactions, with it alone."""
        indptr = np.arange(len(places) + 1)
        return InteractionRows(indptr, self.columns[places], self.weights[places], self.n_columns)

    def where(self, keep: npt.NDArray[np.bool_]) -> InteractionRows:
        """Keep some interactions; every row stays, perhaps empty."""
        indptr = row_offsets(self.rows[keep], len(self))
        return InteractionRows(indptr, self.columns[keep], self.weights[keep], self.n_columns)

    def weights_of(self, row: int, columns: IndexArray) -> WeightArray:
        """Return the weights of some items of a row, 1 for those that it does not have."""
        held = slice(self.indptr[row], self.indptr[row + 1])
        order = np.argsort(self.columns[held])
        row_columns = self.columns[held][order]
        places = np.minimum(np.searchsorted(row_columns, columns), max(0, len(row_columns) - 1))
        out = np.ones(len(columns), np.float32)
        if len(row_columns):
            met = row_columns[places] == columns
            out[met] = self.weights[held][order][places[met]]
        return out

    def joined(self, other: InteractionRows) -> InteractionRows:
        """Return the interactions of both, row by row."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        columns = np.concatenate([self.columns, other.columns])[order]
        weights = np.concatenate([self.weights, other.weights])[order]
        return InteractionRows(self.indptr + other.indptr, columns, weights, self.n_columns)

    def with_weights(self, weights: npt.NDArray[Any]) -> InteractionRows:
        """Return the same interactions with other weights."""
        return replace(self, weights=np.ascontiguousarray(weights, np.float32))

    def transposed(self) -> InteractionRows:
        """Return one row per item."""
        indptr, rows, weights = transposed(self.rows, self.columns, self.weights, self.n_columns)
        return InteractionRows(indptr, rows, weights, len(self))


def weigh(rows: InteractionRows, weighting: Weighting, mean: float = 1.0) -> InteractionRows:
    """Turn counts into what an interaction weighs: 1, log(1 + count) or the count itself.

    `mean` divides them; it is the mean weight of the training rows, for later rows as well.
    """
    if weighting == "binary":
        return rows.with_weights(np.ones(len(rows.columns), np.float32))
    weights = np.log1p(rows.weights) if weighting == "log" else rows.weights
    return rows.with_weights(weights / np.float32(mean))


def mean_weight(rows: InteractionRows, weighting: Weighting) -> float:
    """Return the mean weight of the interactions before it is scaled to 1."""
    weights = weigh(rows, weighting).weights
    return float(weights.mean(dtype=np.float64)) if len(weights) else 1.0
