"""PMF and BiasMF as Cornac fits them.

Ratings are shuffled once by the seed, since Cornac passes over them in the order in which they
come; with a seed it uses one thread. The number of epochs is an option: `valid` is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError
from cfnade_rivals.interface import FloatArray, IntArray, Unsaved, require_fitted
from cfnade_rivals.libraries import library
from cfnade_rivals.options import at_least, one_of, positive, whole
from cfnade_rivals.factor_tables import Tables


@dataclass(frozen=True, kw_only=True)
class BiasMFOptions:
    """Of Cornac's MF with biases (Koren et al. 2009), by stochastic gradient descent."""

    factors: int = 100
    """How many numbers a taste has."""
    epochs: int = 40
    """Passes over the ratings."""
    learning_rate: float = 0.01
    """The step of an update."""
    regularisation: float = 0.05
    """What a factor or bias is pulled to 0 with at each of its ratings."""

    def __post_init__(self) -> None:
        whole(self, 1, "factors", "epochs")
        positive(self, "learning_rate")
        at_least(self, 0, "regularisation")


class BiasMF(Unsaved):
    """Matrix factorisation with biases."""

    name: ClassVar[str] = "biasmf"

    def __init__(self, **options: Any) -> None:
        self.options = BiasMFOptions(**options)
        self._tables: Tables | None = None

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Fit with Cornac, on one thread."""
        del valid, threads
        models = library("cornac.models", "cornac", self.name)
        options = self.options
        model = models.MF(
            k=options.factors,
            max_iter=options.epochs,
            learning_rate=options.learning_rate,
            lambda_reg=options.regularisation,
            use_bias=True,
            seed=seed,
        )
        model.fit(_dataset(train, seed, self.name))
        self._tables = Tables.of(
            train,
            float(model.global_mean),
            (model.u_biases, model.i_biases),
            (model.u_factors, model.i_factors),
        )

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Biases alone where a user or an item is unknown. Returns (n,)."""
        require_fitted(self._tables is not None, self.name)
        assert self._tables is not None
        return self._tables.predict(users, items)

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Cornac's MF has no distribution."""


@dataclass(frozen=True, kw_only=True)
class PMFOptions:
    """Of Cornac's PMF (Mnih and Salakhutdinov 2007), by RMSProp."""

    variant: str = "non_linear"
    """linear, or non_linear: the product of the factors goes through a sigmoid."""
    factors: int = 10
    """How many numbers a taste has."""
    epochs: int = 50
    """Passes over the ratings."""
    learning_rate: float = 0.001
    """The step of an update."""
    momentum: float = 0.9
    """How much of the mean square of gradients each update keeps (Cornac's gamma)."""
    regularisation: float = 0.01
    """What a factor is pulled to 0 with at each of its ratings."""

    def __post_init__(self) -> None:
        one_of(self, "variant", ("linear", "non_linear"))
        whole(self, 1, "factors", "epochs")
        positive(self, "learning_rate")
        at_least(self, 0, "regularisation", "momentum")
        if self.momentum >= 1:
            raise ModelError(f"momentum (={self.momentum}) must lie below 1")


class PMF(Unsaved):
    """Probabilistic matrix factorisation: factors without biases."""

    name: ClassVar[str] = "pmf"

    def __init__(self, **options: Any) -> None:
        self.options = PMFOptions(**options)
        self._tables: Tables | None = None

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Fit with Cornac, on one thread."""
        del valid, threads
        models = library("cornac.models", "cornac", self.name)
        options = self.options
        model = models.PMF(
            k=options.factors,
            max_iter=options.epochs,
            learning_rate=options.learning_rate,
            gamma=options.momentum,
            lambda_reg=options.regularisation,
            variant=options.variant,
            seed=seed,
        )
        model.fit(_dataset(train, seed, self.name))
        none = np.zeros(train.n_users), np.zeros(train.n_items)
        self._tables = Tables.of(train, 0.0, none, (model.U, model.V))
        self._mean = float(train.values.mean())
        # Cornac maps the ratings that it sees, not the scale, to 0..1.
        self._range = float(train.values.min()), float(train.values.max())

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of all ratings where a user or an item is unknown. Returns (n,)."""
        require_fitted(self._tables is not None, self.name)
        assert self._tables is not None
        tables = self._tables
        scores = tables.scores(users, items)
        if self.options.variant == "non_linear":
            low, high = self._range
            scores = low + (high - low) / (1.0 + np.exp(-scores))
        tastes = [np.any(part, axis=1) for part in (tables.user_factors, tables.item_factors)]
        known = (users >= 0) & (items >= 0) & tastes[0][users] & tastes[1][items]
        return np.clip(np.where(known, scores, self._mean), tables.low, tables.high)

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Cornac's PMF gives no spread of its Gaussian."""


def _dataset(train: Ratings, seed: int, name: str) -> Any:
    """Cornac's data set in which every user and item has its own index."""
    data = library("cornac.data", "cornac", name)
    order = np.random.default_rng(seed).permutation(len(train))
    cells = train.users[order].astype(np.int64), train.items[order].astype(np.int64)
    users = {i: i for i in range(train.n_users)}
    items = {i: i for i in range(train.n_items)}
    return data.Dataset(
        train.n_users, train.n_items, users, items, (*cells, train.values[order]), seed=seed
    )
