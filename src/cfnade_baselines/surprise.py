"""SVD and SVD++ as Surprise fits them. `valid` is not looked at; one thread is used."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from cfnade.data.dataset import Axis, Dataset
from cfnade_baselines.base import Count, FloatArray, NotNegative, Positive, Rival
from cfnade_baselines.factor_model import FactorTables
from cfnade_baselines.libraries import library


@dataclass(frozen=True, kw_only=True)
class SVD(Rival[FactorTables]):
    """Biases and factors, by stochastic gradient descent."""

    name: ClassVar[str] = "svd"

    factors: Count = 100
    """How many numbers a taste has."""
    epochs: Count = 20
    """Passes over the ratings."""
    learning_rate: Positive = 0.005
    """The step of an update."""
    regularisation: NotNegative = 0.02
    """What a factor or bias is pulled to 0 with at each of its ratings."""
    spread: Positive = 0.1
    """The standard deviation that factors start from."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FactorTables:
        """Fit with Surprise."""
        del valid, threads
        model = self._fitted("SVD", train, seed)
        return _tables(train, model, model.pu)

    def _fitted(self, kind: str, train: Dataset, seed: int) -> Any:
        package = library("surprise", "scikit-surprise", self.name)
        model = getattr(package, kind)(
            n_factors=self.factors,
            n_epochs=self.epochs,
            lr_all=self.learning_rate,
            reg_all=self.regularisation,
            init_std_dev=self.spread,
            random_state=seed,
        )
        return model.fit(_trainset(package, train))


class SVDPP(SVD):
    """A user's factors also hold a part for everything that they rated, however they did."""

    name: ClassVar[str] = "svdpp"

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FactorTables:
        """Fit with Surprise: minutes for 100,000 ratings, hours for a million."""
        del valid, threads
        model = self._fitted("SVDpp", train, seed)
        rows = train.rows("user")
        sums = np.zeros_like(model.pu)
        np.add.at(sums, np.repeat(np.arange(len(rows)), rows.counts()), model.yj[rows.columns])
        scale = 1.0 / np.sqrt(np.maximum(rows.counts(), 1))
        return _tables(train, model, model.pu + scale[:, None] * sums)


def _tables(train: Dataset, model: Any, user_factors: FloatArray) -> FactorTables:
    mean = float(model.trainset.global_mean)
    return FactorTables.of(train, mean, (model.bu, model.bi), (user_factors, model.qi))


def _trainset(package: Any, train: Dataset) -> Any:
    """Surprise's training set in which every user and item has its own index."""
    by_user, by_item = _lists(train, "user"), _lists(train, "item")
    users = {i: i for i in range(train.n_users)}
    items = {i: i for i in range(train.n_items)}
    ends = train.scale.values[0], train.scale.values[-1]
    sizes = train.n_users, train.n_items, len(train)
    return package.Trainset(by_user, by_item, *sizes, ends, users, items)


def _lists(train: Dataset, side: Axis) -> dict[int, list[tuple[int, float]]]:
    """For each index the others' indices and the stars."""
    rows = train.rows(side)
    pairs = list(zip(rows.columns.tolist(), train.scale.array()[rows.levels].tolist(), strict=True))
    ends = rows.offsets.tolist()
    return {i: pairs[a:b] for i, (a, b) in enumerate(pairwise(ends))}
