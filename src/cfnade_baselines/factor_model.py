"""Prediction from biases and factors, which several models learn, and from shrunken means alone."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    FloatArray,
    IntArray,
    NonNegative,
    RatingPredictor,
    check_pairs,
)

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


@options(ModelError)
class Means(FactorModel):
    """Shrunken means, the floor that every other model must beat: mean + b_i + b_u.

    b_i = Σ (r - mean) / (n_i + shrinkage) over the item's ratings, and b_u = Σ (r - mean - b_i) /
    (n_u + shrinkage) over the user's. Users and items without ratings have b = 0.
    """

    name: ClassVar[str] = "means"

    kind: Literal["global", "user", "item", "both"] = "both"
    """Which offsets are added to the global mean."""
    item_shrinkage: NonNegative = 5.0
    """Pseudo-ratings at the mean of each item."""
    user_shrinkage: NonNegative = 5.0
    """Pseudo-ratings at the item means of each user."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid, seed, n_threads
        mean = float(train.values.mean())
        residuals = train.values - mean  # (n,)
        items, users = np.zeros(train.n_items), np.zeros(train.n_users)
        if self.kind in ("item", "both"):
            items = _offsets(train.items, residuals, train.n_items, self.item_shrinkage)
            residuals = residuals - items[train.items]
        if self.kind in ("user", "both"):
            users = _offsets(train.users, residuals, train.n_users, self.user_shrinkage)
        no_factors = np.zeros((train.n_users, 0)), np.zeros((train.n_items, 0))
        self._set_factors(train, mean, (users, items), no_factors)


def _offsets(index: IntArray, residuals: FloatArray, size: int, shrinkage: float) -> FloatArray:
    """Return Σ residuals / (n + shrinkage) for each index, 0 for those without any. (size,)."""
    sums = np.bincount(index, residuals, minlength=size)
    weights = np.bincount(index, minlength=size) + shrinkage
    offsets: FloatArray = np.divide(sums, weights, out=np.zeros(size), where=weights > 0)
    return offsets
