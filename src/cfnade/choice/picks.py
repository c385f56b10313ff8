"""Picks: what people took up, as ragged rows; ratings and interactions alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.csr import row_offsets, stable_order
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray
from cfnade.sides.side import Row

WeightArray = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Picks:
    """Person r picked columns[offsets[r]:offsets[r+1]], at the levels and weights beside them."""

    offsets: IntArray  # (B+1,)
    columns: IndexArray  # (n,)
    levels: LevelArray  # (n,)
    weights: WeightArray  # (n,) 1 on average
    n_columns: int

    @classmethod
    def of(cls, ratings: Dataset) -> Picks:
        """Of every user of a data set, in the order of their indices."""
        rows, weights = ratings.rows("user"), np.ones(len(ratings), np.float32)
        if ratings.weights is not None:
            order = stable_order(ratings.users, ratings.n_users)
            mean = np.float32(ratings.weights.mean()) if len(ratings) else np.float32(1)
            weights = (ratings.weights if order is None else ratings.weights[order]) / mean
        return cls(rows.offsets, rows.columns, rows.levels, weights, rows.n_columns)

    @classmethod
    def of_people(cls, rows: Sequence[Row], n_columns: int) -> Picks:
        """Of people given by what they picked, each pick once."""
        counts = [len(row.columns) for row in rows]
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        columns = np.concatenate([np.empty(0, np.int32), *(row.columns for row in rows)])
        levels = np.concatenate([np.empty(0, np.uint8), *(row.levels for row in rows)])
        weights = np.ones(len(columns), np.float32)
        return cls(offsets, columns.astype(np.int32), levels, weights, n_columns)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> IntArray:
        """How many picks each person has. Returns (B,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> IndexArray:
        """Whose each pick is. Returns (n,)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)

    def positions(self, people: IntArray) -> IntArray:
        """Where the picks of some people stand, in this order. Returns (n,)."""
        counts = self.offsets[people + 1] - self.offsets[people]
        ends = np.cumsum(counts)
        starts = self.offsets[people] - ends + counts
        return np.asarray(np.arange(counts.sum()) + np.repeat(starts, counts))

    def take(self, people: IntArray) -> Picks:
        """Those of some people, in this order."""
        ends = np.cumsum(self.offsets[people + 1] - self.offsets[people])
        places = self.positions(people)
        parts = self.columns[places], self.levels[places], self.weights[places]
        return Picks(np.concatenate([[0], ends]), *parts, self.n_columns)

    def weights_of(self, person: int, columns: IndexArray) -> WeightArray:
        """Return one person's weights of some columns, 1 where they have no interaction. (n,)."""
        mine = slice(self.offsets[person], self.offsets[person + 1])
        if np.array_equal(self.columns[mine], columns):
            return self.weights[mine]
        weights = np.ones(self.n_columns, np.float32)
        weights[self.columns[mine]] = self.weights[mine]
        return weights[columns]

    def singly(self, places: IntArray) -> Picks:
        """Return these interactions, each as a person of its own."""
        parts = self.columns[places], self.levels[places], self.weights[places]
        return Picks(np.arange(len(places) + 1), *parts, self.n_columns)

    def where(self, keep: npt.NDArray[np.bool_]) -> Picks:
        """Those picks alone; everybody stays, perhaps with none."""
        offsets = row_offsets(self.rows[keep], len(self))
        parts = self.columns[keep], self.levels[keep], self.weights[keep]
        return Picks(offsets, *parts, self.n_columns)

    def at_least(self, level: int) -> Picks:
        """Those at this level or above; all where there is but one level."""
        return self if level <= 0 else self.where(self.levels >= level)

    def evenly(self) -> Picks:
        """The same with one level."""
        return replace(self, levels=np.zeros(len(self.levels), np.uint8))
