"""PMF and BiasMF as Cornac fits them.

Ratings are shuffled once by the seed, since Cornac passes over them in the order in which they
come; with a seed it uses one thread. The number of epochs is an option: `valid` is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Lt

from cfnade.data.dataset import Dataset
from cfnade_baselines.base import (
    Count,
    Fitted,
    FloatArray,
    IntArray,
    NotNegative,
    Positive,
    Rival,
)
from cfnade_baselines.factor_model import FactorTables
from cfnade_baselines.libraries import library


@dataclass(frozen=True, kw_only=True)
class BiasMF(Rival[FactorTables]):
    """Cornac's MF with biases (Koren et al. 2009), by stochastic gradient descent."""

    name: ClassVar[str] = "biasmf"

    factors: Count = 100
    """How many numbers a taste has."""
    epochs: Count = 40
    """Passes over the ratings."""
    learning_rate: Positive = 0.01
    """The step of an update."""
    regularisation: NotNegative = 0.05
    """What a factor or bias is pulled to 0 with at each of its ratings."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FactorTables:
        """Fit with Cornac, on one thread."""
        del valid, threads
        model = _fitted("MF", self, train, seed, use_bias=True)
        biases = model.u_biases, model.i_biases
        factors = model.u_factors, model.i_factors
        return FactorTables.of(train, float(model.global_mean), biases, factors)


@dataclass(frozen=True)
class FittedPMF(Fitted):
    """Products of factors, or their sigmoids if these have `ends` in stars."""

    tables: FactorTables
    mean: float
    ends: tuple[float, float] | None

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of all ratings where a user or an item is unknown. Returns (n,)."""
        tables = self.tables
        scores = tables.scores(users, items)
        if self.ends is not None:
            low, high = self.ends
            scores = low + (high - low) / (1.0 + np.exp(-scores))
        tastes = [np.any(part, axis=1) for part in (tables.user_factors, tables.item_factors)]
        both = (users >= 0) & (items >= 0) & tastes[0][users] & tastes[1][items]
        return np.clip(np.where(both, scores, self.mean), tables.low, tables.high)


@dataclass(frozen=True, kw_only=True)
class PMF(Rival[FittedPMF]):
    """Cornac's PMF (Mnih and Salakhutdinov 2007), factors without biases, by RMSProp."""

    name: ClassVar[str] = "pmf"

    variant: Literal["linear", "non_linear"] = "non_linear"
    """linear, or non_linear: the product of the factors goes through a sigmoid."""
    factors: Count = 10
    """How many numbers a taste has."""
    epochs: Count = 50
    """Passes over the ratings."""
    learning_rate: Positive = 0.001
    """The step of an update."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """How much of the mean square of gradients each update keeps (Cornac's gamma)."""
    regularisation: NotNegative = 0.01
    """What a factor is pulled to 0 with at each of its ratings."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedPMF:
        """Fit with Cornac, on one thread."""
        del valid, threads
        model = _fitted("PMF", self, train, seed, gamma=self.momentum, variant=self.variant)
        no_biases = np.zeros(train.n_users), np.zeros(train.n_items)
        tables = FactorTables.of(train, 0.0, no_biases, (model.U, model.V))
        # Cornac maps the ratings that it sees, not the scale, to 0..1.
        ends = float(train.values.min()), float(train.values.max())
        sigmoid = self.variant == "non_linear"
        return FittedPMF(tables, float(train.values.mean()), ends if sigmoid else None)


def _fitted(kind: str, options: BiasMF | PMF, train: Dataset, seed: int, **further: Any) -> Any:
    """Cornac's model of this kind."""
    models = library("cornac.models", "cornac", options.name)
    model = getattr(models, kind)(
        k=options.factors,
        max_iter=options.epochs,
        learning_rate=options.learning_rate,
        lambda_reg=options.regularisation,
        seed=seed,
        **further,
    )
    return model.fit(_shuffled(train, seed, options.name))


def _shuffled(train: Dataset, seed: int, name: str) -> Any:
    """The ratings as Cornac has them."""
    order = np.random.default_rng(seed).permutation(len(train))
    cells = train.users[order].astype(np.int64), train.items[order].astype(np.int64)
    return cornac_data((train.n_users, train.n_items), (*cells, train.values[order]), seed, name)


def cornac_data(
    sizes: tuple[int, int], cells: tuple[IntArray, IntArray, FloatArray], seed: int, model: str
) -> Any:
    """Cornac's data set in which every user and item, so many, has its own index."""
    users, items = ({i: i for i in range(size)} for size in sizes)
    data = library("cornac.data", "cornac", model)
    return data.Dataset(*sizes, users, items, cells, seed=seed)
