"""What models of one side's rows answer where they have learnt nothing: how often levels occur."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import OTHER_AXIS, Axis, Dataset
from cfnade_baselines.base import FloatArray, IntArray, checked_cells

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Seen:
    """How often each row and each column has each level in training."""

    side: Axis
    rows: Counts  # (N, K)
    columns: Counts  # (M, K)
    stars: FloatArray  # (K,)

    @staticmethod
    def of(train: Dataset, side: Axis) -> Seen:
        """Count."""
        counts = train.level_counts(side), train.level_counts(OTHER_AXIS[side])
        return Seen(side, *counts, train.scale.array())

    def cells(self, users: IntArray, items: IntArray) -> tuple[IntArray, IntArray]:
        """Checked cells as rows and columns. Returns (n,), (n,)."""
        if self.side == "user":
            return checked_cells(users, items, len(self.rows), len(self.columns))
        columns, rows = checked_cells(users, items, len(self.columns), len(self.rows))
        return rows, columns

    def both(self, rows: IntArray, columns: IntArray) -> Mask:
        """Where both the row and the column have training ratings. Returns (n,)."""
        return _has(self.rows, rows) & _has(self.columns, columns)

    def frequencies(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """The levels of the row or the column, whichever is known, else of all. Returns (n, K).

        Everybody has one imagined rating more, spread like all ratings, so that no level has a
        chance of zero unless nobody ever used it.
        """
        everything = self.rows.sum(0) + 1e-3  # (K,)
        share = everything / everything.sum()
        out = np.tile(share, (len(rows), 1))  # (n, K)
        for counts, index in ((self.columns, columns), (self.rows, rows)):
            has = _has(counts, index)
            own = counts[index[has]] + share
            out[has] = own / own.sum(1, keepdims=True)
        return out


def _has(counts: Counts, index: IntArray) -> Mask:
    has: Mask = (index >= 0) & (counts.sum(1) > 0)[index]
    return has
