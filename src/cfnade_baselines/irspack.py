"""Popularity, item-kNN, EASE and iALS of irspack, and EASE with iALS.

Scores are those that irspack gives to users who were not in training ("cold users").
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le

from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    NonNegative,
    Positive,
    Recommender,
    Scores,
    blas_threads,
    import_library,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_PARALLEL = ("CosineKNNRecommender", "IALSRecommender")
"""Recommenders with threads of their own; BLAS's are limited for all."""


class _IrspackRecommender(Recommender):
    """Fits a recommender of irspack and asks it for scores of cold users."""

    library: ClassVar[str] = "irspack"

    def _learn(
        self, kind: str, interactions: csr_matrix, n_threads: int | None, **options: Any
    ) -> Any:
        irspack = import_library("irspack", "irspack", self.name)
        if kind in _PARALLEL:
            options["n_threads"] = n_threads
        recommender = getattr(irspack, kind)(interactions, **options)
        # It prints a progress bar.
        with blas_threads(n_threads, self.name), redirect_stdout(StringIO()):
            recommender.learn()
        self._set(recommender_=recommender)
        return recommender

    def score(self, interactions: csr_matrix) -> Scores:
        """Return scores of all items, (B, M)."""
        if interactions.shape[0] == 0:
            return np.empty(interactions.shape, np.float32)
        return np.asarray(self.recommender_.get_score_cold_user(interactions), np.float32)


@options(ModelError)
class Popularity(_IrspackRecommender):
    """The number of users of each item, the same for everyone."""

    name: ClassVar[str] = "popularity"

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        del seed
        self._learn("TopPopRecommender", interactions, n_threads)


@options(ModelError)
class ItemKNN(_IrspackRecommender):
    """Sum of cosine similarities to the user's items (Sarwar et al. 2001).

    The similarity of two items is the number of users of both, divided by
    √(users of one · users of the other) + shrinkage. Each item keeps its nearest neighbors.
    """

    name: ClassVar[str] = "item-knn"

    neighbors: Count = 100
    """Number of neighbors of an item."""
    shrinkage: NonNegative = 0.0
    """Lowers similarities that rest on few users."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        del seed
        recommender = self._learn(
            "CosineKNNRecommender",
            interactions,
            n_threads,
            shrinkage=self.shrinkage,
            normalize=True,
            top_k=self.neighbors + 1,  # irspack counts the item itself
        )
        # irspack keeps the nearest targets of each source item; here each target keeps its sources.
        weights = recommender.W.T.tolil()
        weights.setdiag(0)
        recommender._W = weights.tocsr()


@options(ModelError)
class EASE(_IrspackRecommender):
    """Each item as a weighted sum of the others, by ridge regression (Steck 2019). Closed form."""

    name: ClassVar[str] = "ease"

    regularization: Positive = 500.0
    """L2 penalty of the weights."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        del seed
        self._learn("DenseSLIMRecommender", interactions, n_threads, reg=self.regularization)


@options(ModelError)
class IALS(_IrspackRecommender):
    """Implicit ALS with the loss of Rendle et al. (2021), by conjugate gradients."""

    name: ClassVar[str] = "ials"

    factors: Count = 256
    """Number of factors."""
    unobserved_weight: Positive = 0.1
    """Weight of a pair without interaction, where one with counts 1 (irspack's alpha0)."""
    regularization: Positive = 0.01
    """L2 penalty, times the weight of a row's pairs to the power of `frequency_exponent`."""
    frequency_exponent: NonNegative = 1.0
    """irspack's nu."""
    epochs: Count = 16
    """Alternations of users and items."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        self._learn(
            "IALSRecommender",
            interactions,
            n_threads,
            n_components=self.factors,
            alpha0=self.unobserved_weight,
            reg=self.regularization,
            nu=self.frequency_exponent,
            train_epochs=self.epochs,
            random_seed=seed,
        )


@options(ModelError)
class EaseAndIals(Recommender):
    """Standardizes both models' scores for each user and adds them; validation sets `weight`."""

    name: ClassVar[str] = "ease+ials"
    library: ClassVar[str] = "irspack"

    weight: Annotated[float, Ge(0), Le(1)] = 0.5
    """Weight of iALS; EASE has the rest of 1."""
    ease_regularization: Positive = 500.0
    """As in EASE."""
    factors: Count = 256
    """As in iALS, like the following options."""
    unobserved_weight: Positive = 0.1
    regularization: Positive = 0.01
    epochs: Count = 16

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        ease = EASE(regularization=self.ease_regularization)
        ials = IALS(
            factors=self.factors,
            unobserved_weight=self.unobserved_weight,
            regularization=self.regularization,
            epochs=self.epochs,
        )
        models = [_fit_once(model, interactions, seed, n_threads) for model in (ease, ials)]
        self._set(models_=models)

    def score(self, interactions: csr_matrix) -> Scores:
        """Return the weighted sum, (B, M)."""
        ease, ials = (model.score(interactions) for model in self.models_)
        return blend(ease, ials, self.weight)


def blend(first: Scores, second: Scores, weight: float) -> Scores:
    """Return the standardized scores, weighted with 1 - weight and weight. (B, M)."""
    total = (1 - weight) * standardize(first) + weight * standardize(second)
    return np.asarray(total, np.float32)


def standardize(scores: Scores) -> Scores:
    """Return each row with mean 0 and standard deviation 1; a constant row becomes 0."""
    centered = scores - scores.mean(1, keepdims=True)
    deviation = centered.std(1, keepdims=True)
    out = np.zeros_like(centered)
    return np.asarray(np.divide(centered, deviation, out=out, where=deviation > 0))


_last_fits: dict[type[Recommender], tuple[Any, int, int | None, Recommender]] = {}


def _fit_once(
    model: Recommender, interactions: csr_matrix, seed: int, n_threads: int | None
) -> Recommender:
    """Fit, or return the last fit of the same arguments: a search of `weight` needs only one."""
    last = _last_fits.get(type(model))
    if last and last[0] is interactions and last[1:] == (seed, n_threads, model):
        return last[3]
    model.fit(interactions, seed=seed, n_threads=n_threads)
    _last_fits[type(model)] = interactions, seed, n_threads, model
    return model
