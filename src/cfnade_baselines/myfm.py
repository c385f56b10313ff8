"""Bayesian factorisation machines as myFM samples them: who and what, nothing else.

A Gibbs sampler draws all parameters in turn, on one thread; predictions are means over the samples
that are kept. Somebody without ratings is drawn from what people are like; -1 has no parameters at
all. `valid` is not looked at.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import thread_count
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    Fitted,
    FloatArray,
    IntArray,
    Positive,
    Rival,
    checked_cells,
)
from cfnade_baselines.libraries import library


@dataclass(frozen=True)
class Sampled:
    """What myFM has drawn, with the sizes and the scale of the data."""

    model: Any
    sizes: tuple[int, int]
    stars: FloatArray  # (K,)
    threads: int

    def features(self, users: IntArray, items: IntArray) -> Any:
        """Checked cells as myFM wants them. Returns (n, N+M)."""
        return _features(*checked_cells(users, items, *self.sizes), *self.sizes)

    def clipped(self, stars: FloatArray) -> FloatArray:
        """Stars inside the scale."""
        return np.clip(stars, self.stars[0], self.stars[-1])


@dataclass(frozen=True)
class FittedFM(Fitted):
    """Ratings as numbers with Gaussian noise."""

    samples: Sampled

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean over samples, clipped to the scale. Returns (n,)."""
        drawn = self.samples
        cells = drawn.features(users, items)
        return drawn.clipped(drawn.model.predict(cells, n_workers=drawn.threads))


@dataclass(frozen=True)
class FittedOrderedFM(Fitted):
    """Ratings as levels: a normal variable falls between cut points."""

    samples: Sampled
    used: IntArray  # the levels that somebody used

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of the distribution. Returns (n,)."""
        return self.samples.clipped(self.probabilities(users, items) @ self.samples.stars)

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """The chance of every level, the mean over samples. Returns (n, K)."""
        drawn = self.samples
        chances = np.zeros((len(users), len(drawn.stars)))
        cells = drawn.features(users, items)
        chances[:, self.used] = drawn.model.predict_proba(cells, n_workers=drawn.threads)
        return chances


@options(ModelError)
class BayesianFM(Rival[Fitted]):
    """myFM's regression."""

    name: ClassVar[str] = "bfm"

    rank: Count = 8
    """How many numbers a taste has."""
    iterations: Count = 100
    """Samples that are drawn."""
    kept: Count = 80
    """Of these, the last so many are kept for predictions."""
    spread: Positive = 0.1
    """The standard deviation that factors start from."""

    def __post_init__(self) -> None:
        if self.kept > self.iterations:
            raise ModelError(f"kept (={self.kept}) must not exceed iterations ({self.iterations})")

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> Fitted:
        """Draw the samples."""
        del valid
        return FittedFM(self._sample("MyFMRegressor", train, train.values, seed, threads))

    def _sample(
        self, kind: str, train: Dataset, target: Any, seed: int, threads: int | None
    ) -> Sampled:
        package = library("myfm", "myfm", self.name)
        sizes = train.n_users, train.n_items
        model = getattr(package, kind)(rank=self.rank, init_stdev=self.spread, random_seed=seed)
        with redirect_stderr(StringIO()):  # it draws a bar
            model.fit(
                _features(train.users, train.items, *sizes),
                target,
                n_iter=self.iterations,
                n_kept_samples=self.kept,
                group_shapes=list(sizes),
                callback=lambda *_: (False, None),
            )
        return Sampled(model, sizes, train.scale.array(), thread_count(threads))


class OrderedProbitFM(BayesianFM):
    """myFM's ordered probit."""

    name: ClassVar[str] = "bfm-ordinal"

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> Fitted:
        """Draw the samples."""
        del valid
        # A level that nobody used has no cut point to be learnt, and the chance 0.
        used, target = np.unique(train.levels, return_inverse=True)
        drawn = self._sample("MyFMOrderedProbit", train, target.astype(np.int64), seed, threads)
        return FittedOrderedFM(drawn, used.astype(np.int64))


def _features(users: IntArray, items: IntArray, n_users: int, n_items: int) -> Any:
    """A one for the user and a one for the item; who is not there has none. Returns (n, N+M)."""
    sparse = library("scipy.sparse", "scipy", "myFM")
    columns = np.stack([users, np.where(items >= 0, items + n_users, -1)], axis=1)  # (n, 2)
    is_there = columns >= 0
    offsets = np.concatenate([[0], np.cumsum(is_there.sum(1))])
    ones = np.ones(int(offsets[-1]))
    return sparse.csr_matrix((ones, columns[is_there], offsets), (len(users), n_users + n_items))
