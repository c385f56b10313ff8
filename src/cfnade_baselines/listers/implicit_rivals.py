"""ALS and BPR as the library implicit fits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cfnade_baselines.base import Count, NotNegative, Positive
from cfnade_baselines.libraries import blas_threads, library
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedALS(FittedLists):
    """implicit's model; a taste is solved for from what is given."""

    model: Any

    def scores(self, given: Likes) -> Scores:
        """Products of tastes. Returns (people, M)."""
        tastes = self.model.recalculate_user(np.arange(len(given)), given.matrix())
        return np.asarray(tastes @ self.model.item_factors.T)


@dataclass(frozen=True, kw_only=True)
class ImplicitALS(ListRival[FittedALS]):
    """Alternating least squares (Hu, Koren and Volinsky 2008)."""

    name: ClassVar[str] = "implicit-als"

    factors: Count = 64
    """How many numbers a taste has."""
    regularisation: NotNegative = 5.0
    """What tastes are pulled to 0 with."""
    like_weight: Positive = 10.0
    """What a like counts, where any other cell counts 1 (implicit's alpha)."""
    epochs: Count = 15
    """How often people and items are solved for in turn."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedALS:
        """Fit with implicit."""
        kind = library("implicit.cpu.als", "implicit", self.name).AlternatingLeastSquares
        with blas_threads(1, self.name):  # implicit's own threads would compete with BLAS's
            model = kind(
                factors=self.factors,
                regularization=self.regularisation,
                alpha=self.like_weight,
                iterations=self.epochs,
                num_threads=threads or 0,
                random_state=seed,
            )
            model.fit(likes.matrix(), show_progress=False)
        return FittedALS(model)


@dataclass(frozen=True)
class FittedBPR(FittedLists):
    """Items' factors, the last of which is the bias."""

    item_factors: Scores  # (M, F+1)

    def scores(self, given: Likes) -> Scores:
        """Products of tastes, and biases. Returns (people, M)."""
        factors, biases = self.item_factors[:, :-1], self.item_factors[:, -1]
        tastes = given.matrix() @ factors / np.maximum(given.counts(), 1)[:, None]
        return np.asarray(tastes @ factors.T + biases, np.float32)


@dataclass(frozen=True, kw_only=True)
class ImplicitBPR(ListRival[FittedBPR]):
    """Bayesian personalised ranking (Rendle et al. 2009).

    BPR knows only people whom it learnt from. So a person's taste is taken to be the mean of the
    factors of what they like. (A least-squares map from such means to the learnt tastes gave 0.046
    less NDCG@100 on MovieLens 1M's validation people.) Somebody who likes nothing yet has the taste
    0, and the biases remain.
    """

    name: ClassVar[str] = "implicit-bpr"

    factors: Count = 64
    """How many numbers a taste has."""
    learning_rate: Positive = 0.05
    """The step of an update."""
    regularisation: NotNegative = 0.01
    """What factors are pulled to 0 with."""
    epochs: Count = 100
    """Passes over the likes."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedBPR:
        """Fit with implicit; with several threads, updates overtake each other."""
        module = library("implicit.cpu.bpr", "implicit", self.name)
        with blas_threads(1, self.name):
            model = module.BayesianPersonalizedRanking(
                factors=self.factors,
                learning_rate=self.learning_rate,
                regularization=self.regularisation,
                iterations=self.epochs,
                num_threads=threads or 0,
                random_state=seed,
            )
            model.fit(likes.matrix(), show_progress=False)
        return FittedBPR(model.item_factors)
