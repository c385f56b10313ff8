"""Prediction from tables of biases and factors, which several models learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade_baselines.base import Fitted, FloatArray, IntArray, checked_cells

_CHUNK = 1 << 16


@dataclass(frozen=True)
class FactorTables(Fitted):
    """mean + user bias + item bias + user factors · item factors, clipped to the scale.

    Whoever has no training rating, and -1, has the bias 0 and no taste: the others' biases remain.
    """

    mean: float
    user_biases: FloatArray  # (N,)
    item_biases: FloatArray  # (M,)
    user_factors: npt.NDArray[Any]  # (N, F)
    item_factors: npt.NDArray[Any]  # (M, F)
    low: float
    high: float

    @staticmethod
    def of(
        train: Dataset,
        mean: float,
        biases: tuple[npt.NDArray[Any], npt.NDArray[Any]],
        factors: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    ) -> FactorTables:
        """Tables by index, with zeros for users and items that have no rating in `train`."""
        seen_users = np.bincount(train.users, minlength=train.n_users) > 0
        seen_items = np.bincount(train.items, minlength=train.n_items) > 0
        values = train.scale.values
        return FactorTables(
            mean,
            np.where(seen_users, biases[0], 0.0),
            np.where(seen_items, biases[1], 0.0),
            np.where(seen_users[:, None], factors[0], 0),
            np.where(seen_items[:, None], factors[1], 0),
            values[0],
            values[-1],
        )

    def scores(self, users: IntArray, items: IntArray) -> FloatArray:
        """Sums before clipping. Returns (n,)."""
        rows, columns = checked_cells(users, items, len(self.user_biases), len(self.item_biases))
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):  # bounds the memory of the gathered factors
            part = slice(start, start + _CHUNK)
            out[part] = self._scores(rows[part], columns[part])
        return out

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Expected ratings. Returns (n,)."""
        return np.clip(self.scores(users, items), self.low, self.high)

    def _scores(self, rows: IntArray, columns: IntArray) -> FloatArray:
        is_row, is_column = rows >= 0, columns >= 0
        products = np.einsum(
            "nf,nf->n", self.user_factors[rows], self.item_factors[columns], dtype=np.float64
        )
        total: FloatArray = (
            self.mean
            + self.user_biases[rows] * is_row
            + self.item_biases[columns] * is_column
            + products * (is_row & is_column)
        )
        return total
