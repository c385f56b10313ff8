"""SVD and SVD++ of Surprise, on one thread and without early stopping."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from cfnade.data.dataset import Axis, Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import Count, FloatArray, NonNegative, Positive, import_library
from cfnade_baselines.factor_model import FactorModel


@options(ModelError)
class SVD(FactorModel):
    """Biases and factors, by stochastic gradient descent."""

    name: ClassVar[str] = "svd"
    library: ClassVar[str] = "scikit-surprise"

    factors: Count = 100
    """Number of factors."""
    epochs: Count = 20
    """Passes over the ratings."""
    learning_rate: Positive = 0.005
    """Step size."""
    regularization: NonNegative = 0.02
    """L2 penalty of factors and biases, at each rating."""
    init_std: Positive = 0.1
    """Standard deviation of the initial factors."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid, n_threads
        model = self._fit_surprise("SVD", train, seed)
        self._set_model(train, model, model.pu)

    def _fit_surprise(self, kind: str, train: Dataset, seed: int) -> Any:
        surprise = import_library("surprise", "scikit-surprise", self.name)
        model = getattr(surprise, kind)(
            n_factors=self.factors,
            n_epochs=self.epochs,
            lr_all=self.learning_rate,
            reg_all=self.regularization,
            init_std_dev=self.init_std,
            random_state=seed,
        )
        return model.fit(_trainset(surprise, train))

    def _set_model(self, train: Dataset, model: Any, user_factors: FloatArray) -> None:
        mean = float(model.trainset.global_mean)
        self._set_factors(train, mean, (model.bu, model.bi), (user_factors, model.qi))


@options(ModelError)
class SVDPP(SVD):
    """SVD whose user factors include a term for every item that the user rated."""

    name: ClassVar[str] = "svdpp"

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Fit with Surprise: minutes for 100,000 ratings, hours for a million."""
        del valid, n_threads
        model = self._fit_surprise("SVDpp", train, seed)
        rows = train.rows("user")
        sums = np.zeros_like(model.pu)
        np.add.at(sums, np.repeat(np.arange(len(rows)), rows.counts()), model.yj[rows.columns])
        scale = 1.0 / np.sqrt(np.maximum(rows.counts(), 1))
        self._set_model(train, model, model.pu + scale[:, None] * sums)


def _trainset(surprise: Any, train: Dataset) -> Any:
    """Return Surprise's training set, in which every user and item has its own index."""
    by_user, by_item = _ratings_by_index(train, "user"), _ratings_by_index(train, "item")
    users = {i: i for i in range(train.n_users)}
    items = {i: i for i in range(train.n_items)}
    bounds = train.scale.values[0], train.scale.values[-1]
    sizes = train.n_users, train.n_items, len(train)
    return surprise.Trainset(by_user, by_item, *sizes, bounds, users, items)


def _ratings_by_index(train: Dataset, side: Axis) -> dict[int, list[tuple[int, float]]]:
    """Return for each index of a side the indices of the other side and the ratings."""
    rows = train.rows(side)
    pairs = list(zip(rows.columns.tolist(), train.scale.array()[rows.levels].tolist(), strict=True))
    bounds = rows.offsets.tolist()
    return {i: pairs[a:b] for i, (a, b) in enumerate(pairwise(bounds))}
