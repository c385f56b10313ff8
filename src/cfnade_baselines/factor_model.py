"""Prediction from biases and factors, which several models learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade_baselines.base import FloatArray, IntArray, RatingPredictor, check_pairs

_CHUNK = 1 << 16  # pairs; bounds the memory of the gathered factors


class FactorModel(RatingPredictor):
    """mean + user bias + item bias + user factors · item factors, clipped to the scale.

    Unknown users and items, and those without training ratings, have the bias 0 and the factors 0.
    """

    def _set_factors(
        self,
        train: Dataset,
        mean: float,
        biases: tuple[npt.NDArray[Any], npt.NDArray[Any]],
        factors: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    ) -> None:
        """Set the tables by index, with zeros for users and items without a rating in `train`."""
        has_users = np.bincount(train.users, minlength=train.n_users) > 0
        has_items = np.bincount(train.items, minlength=train.n_items) > 0
        self._set(
            mean_=mean,
            user_biases_=np.where(has_users, biases[0], 0.0),  # (N,)
            item_biases_=np.where(has_items, biases[1], 0.0),  # (M,)
            user_factors_=np.where(has_users[:, None], factors[0], 0),  # (N, F)
            item_factors_=np.where(has_items[:, None], factors[1], 0),  # (M, F)
            range_=(train.scale.values[0], train.scale.values[-1]),
        )

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return expected ratings, (n,)."""
        low, high = self.range_
        return np.clip(self.raw_scores(users, items), low, high)

    def raw_scores(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the sums before clipping, (n,)."""
        rows, columns = check_pairs(users, items, len(self.user_biases_), len(self.item_biases_))
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            out[chunk] = self._chunk_scores(rows[chunk], columns[chunk])
        return out

    def _chunk_scores(self, rows: IntArray, columns: IntArray) -> FloatArray:
        is_row, is_column = rows >= 0, columns >= 0
        products = np.einsum(
            "nf,nf->n", self.user_factors_[rows], self.item_factors_[columns], dtype=np.float64
        )
        total: FloatArray = (
            self.mean_
            + self.user_biases_[rows] * is_row
            + self.item_biases_[columns] * is_column
            + products * (is_row & is_column)
        )
        return total
