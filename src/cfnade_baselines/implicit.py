"""ALS and BPR of implicit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

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


@options(ModelError)
class ImplicitALS(Recommender):
    """Alternating least squares (Hu, Koren and Volinsky 2008)."""

    name: ClassVar[str] = "implicit-als"
    library: ClassVar[str] = "implicit"

    factors: Count = 64
    """Number of factors."""
    regularization: NonNegative = 5.0
    """L2 penalty of the factors."""
    interaction_weight: Positive = 10.0
    """Weight of an interaction, where every other pair counts 1 (implicit's alpha)."""
    epochs: Count = 15
    """Alternations of users and items."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        als = import_library("implicit.cpu.als", "implicit", self.name)
        with blas_threads(1, self.name):  # BLAS's threads would compete with implicit's
            model = als.AlternatingLeastSquares(
                factors=self.factors,
                regularization=self.regularization,
                alpha=self.interaction_weight,
                iterations=self.epochs,
                num_threads=n_threads or 0,
                random_state=seed,
            )
            model.fit(interactions, show_progress=False)
        self._set(model_=model)

    def score(self, interactions: csr_matrix) -> Scores:
        """Solve for the users' factors given their items. Returns (B, M)."""
        factors = self.model_.recalculate_user(np.arange(interactions.shape[0]), interactions)
        return np.asarray(factors @ self.model_.item_factors.T)


@options(ModelError)
class ImplicitBPR(Recommender):
    """Bayesian personalized ranking (Rendle et al. 2009).

    BPR has no fold-in, so the factors of a user are the mean of the factors of the user's items. (A
    least-squares map from such means to the learned user factors gave 0.046 less NDCG@100 on the
    validation users of MovieLens 1M.) A user without items gets the item biases alone.
    """

    name: ClassVar[str] = "implicit-bpr"
    library: ClassVar[str] = "implicit"

    factors: Count = 64
    """Number of factors."""
    learning_rate: Positive = 0.05
    """Step size."""
    regularization: NonNegative = 0.01
    """L2 penalty of the factors."""
    epochs: Count = 100
    """Passes over the interactions."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        """Fit with implicit; several threads update without locks and are not reproducible."""
        bpr = import_library("implicit.cpu.bpr", "implicit", self.name)
        with blas_threads(1, self.name):
            model = bpr.BayesianPersonalizedRanking(
                factors=self.factors,
                learning_rate=self.learning_rate,
                regularization=self.regularization,
                iterations=self.epochs,
                num_threads=n_threads or 0,
                random_state=seed,
            )
            model.fit(interactions, show_progress=False)
        self._set(item_factors_=model.item_factors)  # (M, F+1), the last column is the bias

    def score(self, interactions: csr_matrix) -> Scores:
        """Return products of factors plus item biases, (B, M)."""
        factors, biases = self.item_factors_[:, :-1], self.item_factors_[:, -1]
        counts = np.maximum(np.diff(interactions.indptr), 1)[:, None]
        users = interactions @ factors / counts
        return np.asarray(users @ factors.T + biases, np.float32)
