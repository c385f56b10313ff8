"""What models of one side's rows answer where they have learnt nothing: how often levels occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Rows, Side
from cfnade.rivals.interface import Arrays, FloatArray, IntArray, checked_cells, take

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Seen:
    """How often each row and each column has each level in training."""

    rows: Counts  # (N, K)
    columns: Counts  # (M, K)

    @staticmethod
    def of(train: Rows) -> Seen:
        """Count."""
        index = np.repeat(np.arange(len(train)), train.counts())
        return Seen(_count(index, train, len(train)), _count(train.columns, train, train.n_columns))

    def cells(self, users: IntArray, items: IntArray, side: Side) -> tuple[IntArray, IntArray]:
        """Checked cells as rows and columns. Returns (n,), (n,)."""
        if side == "user":
            return checked_cells(users, items, len(self.rows), len(self.columns))
        checked = checked_cells(users, items, len(self.columns), len(self.rows))
        return checked[1], checked[0]

    def known(self, rows: IntArray, columns: IntArray) -> Mask:
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

    def arrays(self) -> Arrays:
        """Both tables, for saving."""
        return {"seen_rows": self.rows, "seen_columns": self.columns}

    @staticmethod
    def restore(arrays: Arrays, levels: int) -> Seen:
        """Take them back."""
        return Seen(*(take(arrays, f"seen_{n}", "int64", (None, levels)) for n in _NAMES))


_NAMES = ("rows", "columns")


def _count(index: npt.NDArray[np.signedinteger[Any]], train: Rows, size: int) -> Counts:
    cells = index.astype(np.int64) * train.n_levels + train.levels
    return np.bincount(cells, minlength=size * train.n_levels).reshape(size, train.n_levels)


def _has(counts: Counts, index: IntArray) -> Mask:
    known: Mask = (index >= 0) & (counts.sum(1) > 0)[index]
    return known
