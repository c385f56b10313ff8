"""EASE and iALS together: the weighted sum of their standardized scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le

from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import Count, Positive, Recommender, Scores
from cfnade_baselines.irspack import EASE, IALS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


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
