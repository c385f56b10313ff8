"""Level frequencies: the fallback of models that know nothing about a row or column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import OTHER_AXIS, Axis, Dataset
from cfnade_baselines.base import FloatArray, IntArray, check_pairs

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LevelFrequencies:
    """How often each row and each column has each level in training."""

    side: Axis
    rows: Counts  # (N, K)
    columns: Counts  # (M, K)
    level_values: FloatArray  # (K,)

    @staticmethod
    def count(train: Dataset, side: Axis) -> LevelFrequencies:
        """Count the training ratings; `side` says whether rows are users or items."""
        counts = train.level_counts(side), train.level_counts(OTHER_AXIS[side])
        return LevelFrequencies(side, *counts, train.scale.array())

    def rows_and_columns(self, users: IntArray, items: IntArray) -> tuple[IntArray, IntArray]:
        """Return checked pairs as rows and columns, (n,), (n,)."""
        if self.side == "user":
            return check_pairs(users, items, len(self.rows), len(self.columns))
        columns, rows = check_pairs(users, items, len(self.columns), len(self.rows))
        return rows, columns

    def is_rated(self, rows: IntArray, columns: IntArray) -> Mask:
        """Return where both the row and the column have training ratings, (n,)."""
        return _has_ratings(self.rows, rows) & _has_ratings(self.columns, columns)

    def frequencies(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return the level frequencies of the row, else of the column, else of all. (n, K).

        One pseudo-rating with the frequencies of all ratings keeps every probability above zero,
        except for levels that never occur.
        """
        total = self.rows.sum(0) + 1e-3  # (K,)
        prior = total / total.sum()
        out = np.tile(prior, (len(rows), 1))  # (n, K)
        for counts, index in ((self.columns, columns), (self.rows, rows)):
            has = _has_ratings(counts, index)
            smoothed = counts[index[has]] + prior
            out[has] = smoothed / smoothed.sum(1, keepdims=True)
        return out


def _has_ratings(counts: Counts, index: IntArray) -> Mask:
    has: Mask = (index >= 0) & (counts.sum(1) > 0)[index]
    return has
