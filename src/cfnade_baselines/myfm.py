"""Bayesian factorization machines of myFM on one-hot users and items.

The Gibbs sampler draws all parameters in turn, on one thread; predictions are means over the kept
samples. A user without ratings is drawn from the population; -1 has no parameters. There is no
early stopping.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from typing import Any, ClassVar

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import thread_count
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    FloatArray,
    IntArray,
    Positive,
    RatingPredictor,
    check_pairs,
    import_library,
)


@options(ModelError)
class BayesianFM(RatingPredictor):
    """Regression: ratings are numbers with Gaussian noise."""

    name: ClassVar[str] = "bfm"
    library: ClassVar[str] = "myfm"

    rank: Count = 8
    """Number of factors."""
    iterations: Count = 100
    """Samples of the chain."""
    kept_samples: Count = 80
    """How many of the last samples are kept for prediction."""
    init_std: Positive = 0.1
    """Standard deviation of the initial factors."""

    def __post_init__(self) -> None:
        if self.kept_samples > self.iterations:
            raise ModelError(
                f"kept_samples (={self.kept_samples}) must not exceed iterations "
                f"({self.iterations})"
            )

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid
        self._sample("MyFMRegressor", train, train.values, seed, n_threads)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the means over samples, clipped to the scale. (n,)."""
        means = self.model_.predict(self._features(users, items), n_workers=self.n_threads_)
        return self._clip(means)

    def _sample(
        self, kind: str, train: Dataset, target: Any, seed: int, n_threads: int | None
    ) -> None:
        myfm = import_library("myfm", "myfm", self.name)
        sizes = train.n_users, train.n_items
        model = getattr(myfm, kind)(rank=self.rank, init_stdev=self.init_std, random_seed=seed)
        with redirect_stderr(StringIO()):  # hides the progress bar
            model.fit(
                _one_hot(train.users, train.items, *sizes),
                target,
                n_iter=self.iterations,
                n_kept_samples=self.kept_samples,
                group_shapes=list(sizes),
                callback=lambda *_: (False, None),
            )
        self._set(model_=model, sizes_=sizes, level_values_=train.scale.array())
        self._set(n_threads_=thread_count(n_threads))

    def _features(self, users: IntArray, items: IntArray) -> Any:
        return _one_hot(*check_pairs(users, items, *self.sizes_), *self.sizes_)

    def _clip(self, ratings: FloatArray) -> FloatArray:
        return np.clip(ratings, self.level_values_[0], self.level_values_[-1])


@options(ModelError)
class OrderedProbitFM(BayesianFM):
    """Ordered probit: a level is the interval between cut points that a normal variable falls in.

    Levels that no training rating has get the probability 0: their cut points cannot be learned.
    """

    name: ClassVar[str] = "bfm-ordinal"

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid
        levels, target = np.unique(train.levels, return_inverse=True)
        self._sample("MyFMOrderedProbit", train, target.astype(np.int64), seed, n_threads)
        self._set(levels_=levels.astype(np.int64))

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the means of the distributions, (n,)."""
        return self._clip(self.predict_proba(users, items) @ self.level_values_)

    def predict_proba(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the probability of every level, the mean over samples. (n, K)."""
        out = np.zeros((len(users), len(self.level_values_)))
        features = self._features(users, items)
        out[:, self.levels_] = self.model_.predict_proba(features, n_workers=self.n_threads_)
        return out


def _one_hot(users: IntArray, items: IntArray, n_users: int, n_items: int) -> Any:
    """Return a one for the user and a one for the item; -1 has none. (n, N+M)."""
    sparse = import_library("scipy.sparse", "scipy", "myFM")
    columns = np.stack([users, np.where(items >= 0, items + n_users, -1)], axis=1)  # (n, 2)
    is_known = columns >= 0
    offsets = np.concatenate([[0], np.cumsum(is_known.sum(1))])
    ones = np.ones(int(offsets[-1]))
    return sparse.csr_matrix((ones, columns[is_known], offsets), (len(users), n_users + n_items))
