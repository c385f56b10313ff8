"""iALS as irspack fits it: the loss of Rendle et al. (2021), by conjugate gradients.

Every cell counts: a like with 1 and what is not liked with `unobserved_weight`. A person's taste
is solved for from what is given, with the items' held fixed.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar

import numpy as np

from cfnade_baselines.base import Count, NotNegative, Positive
from cfnade_baselines.libraries import blas_threads, library
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedIALS(FittedLists):
    """irspack's recommender, asked as about people it has never met."""

    recommender: Any

    def scores(self, given: Likes) -> Scores:
        """Products of tastes. Returns (people, M)."""
        if len(given) == 0:
            return np.empty((0, given.n_items), np.float32)
        return np.asarray(self.recommender.get_score_cold_user(given.matrix()), np.float32)


@dataclass(frozen=True, kw_only=True)
class IALS(ListRival[FittedIALS]):
    """Implicit alternating least squares."""

    name: ClassVar[str] = "ials"

    factors: Count = 256
    """How many numbers a taste has."""
    unobserved_weight: Positive = 0.1
    """What a cell that is not a like counts (irspack's alpha0)."""
    regularisation: Positive = 0.01
    """What tastes are pulled to 0 with, times the weight of their cells to the power of
    `frequency`."""
    frequency: NotNegative = 1.0
    """irspack's nu."""
    epochs: Count = 16
    """How often people and items are solved for in turn."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedIALS:
        """Fit with irspack."""
        kind = library("irspack", "irspack", self.name).IALSRecommender
        recommender = kind(
            likes.matrix(),
            n_components=self.factors,
            alpha0=self.unobserved_weight,
            reg=self.regularisation,
            nu=self.frequency,
            train_epochs=self.epochs,
            random_seed=seed,
            n_threads=threads,
        )
        # What it prints is a bar of progress.
        with blas_threads(threads, self.name), redirect_stdout(StringIO()):
            recommender.learn()
        return FittedIALS(recommender)
