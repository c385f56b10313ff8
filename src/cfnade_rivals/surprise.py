"""SVD and SVD++ as Surprise fits them. `valid` is not looked at; one thread is used."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from cfnade.data.ratings import Ratings
from cfnade_rivals.interface import FloatArray, IntArray, Unsaved, require_fitted
from cfnade_rivals.libraries import library
from cfnade_rivals.options import at_least, positive, whole
from cfnade_rivals.factor_tables import Tables


@dataclass(frozen=True, kw_only=True)
class SVDOptions:
    """Of Surprise's SVD and SVD++, by stochastic gradient descent."""

    factors: int = 100
    """How many numbers a taste has."""
    epochs: int = 20
    """Passes over the ratings."""
    learning_rate: float = 0.005
    """The step of an update."""
    regularisation: float = 0.02
    """What a factor or bias is pulled to 0 with at each of its ratings."""
    spread: float = 0.1
    """The standard deviation that factors start from."""

    def __post_init__(self) -> None:
        whole(self, 1, "factors", "epochs")
        positive(self, "learning_rate", "spread")
        at_least(self, 0, "regularisation")


class SVD(Unsaved):
    """Biases and factors."""

    name: ClassVar[str] = "svd"

    def __init__(self, **options: Any) -> None:
        self.options = SVDOptions(**options)
        self._tables: Tables | None = None

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Fit with Surprise."""
        del valid, threads
        model = self._fitted("SVD", train, seed)
        self._tables = _tables(train, model, model.pu)

    def _fitted(self, kind: str, train: Ratings, seed: int) -> Any:
        package = library("surprise", "scikit-surprise", self.name)
        options = self.options
        model = getattr(package, kind)(
            n_factors=options.factors,
            n_epochs=options.epochs,
            lr_all=options.learning_rate,
            reg_all=options.regularisation,
            init_std_dev=options.spread,
            random_state=seed,
        )
        return model.fit(_trainset(package, train))

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Biases alone where a user or an item is unknown. Returns (n,)."""
        require_fitted(self._tables is not None, self.name)
        assert self._tables is not None
        return self._tables.predict(users, items)

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Surprise has no distributions."""


class SVDPP(SVD):
    """A user's factors also hold a part for everything that they rated, however they did."""

    name: ClassVar[str] = "svdpp"

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Fit with Surprise: minutes for 100,000 ratings, hours for a million."""
        del valid, threads
        model = self._fitted("SVDpp", train, seed)
        rows = train.rows("user")
        sums = np.zeros_like(model.pu)
        np.add.at(sums, np.repeat(np.arange(len(rows)), rows.counts()), model.yj[rows.columns])
        scale = 1.0 / np.sqrt(np.maximum(rows.counts(), 1))
        self._tables = _tables(train, model, model.pu + scale[:, None] * sums)


def _tables(train: Ratings, model: Any, user_factors: FloatArray) -> Tables:
    mean = float(model.trainset.global_mean)
    return Tables.of(train, mean, (model.bu, model.bi), (user_factors, model.qi))


def _trainset(package: Any, train: Ratings) -> Any:
    """Surprise's training set in which every user and item has its own index."""
    by_user, by_item = (_lists(train, side) for side in ("user", "item"))
    users = {i: i for i in range(train.n_users)}
    items = {i: i for i in range(train.n_items)}
    ends = train.scale.values[0], train.scale.values[-1]
    sizes = train.n_users, train.n_items, len(train)
    return package.Trainset(by_user, by_item, *sizes, ends, users, items)


def _lists(train: Ratings, side: Any) -> dict[int, list[tuple[int, float]]]:
    """For each index the others' indices and the stars."""
    rows = train.rows(side)
    pairs = list(zip(rows.columns.tolist(), train.scale.array()[rows.levels].tolist(), strict=True))
    ends = rows.offsets.tolist()
    return {i: pairs[a:b] for i, (a, b) in enumerate(pairwise(ends))}
