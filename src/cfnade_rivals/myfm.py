"""Bayesian factorisation machines as myFM samples them: who and what, nothing else.

A Gibbs sampler draws all parameters in turn; predictions are means over the samples that are kept.
Somebody without ratings is drawn from what people are like; -1 has no parameters at all.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar

import numpy as np

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError
from cfnade.kernels.threads import thread_count
from cfnade_rivals.interface import FloatArray, IntArray, Unsaved, checked_cells, require_fitted
from cfnade_rivals.libraries import library
from cfnade_rivals.options import positive, whole


@dataclass(frozen=True, kw_only=True)
class FMOptions:
    """Of myFM's samplers."""

    rank: int = 8
    """How many numbers a taste has."""
    iterations: int = 100
    """Samples that are drawn."""
    kept: int = 80
    """Of these, the last so many are kept for predictions."""
    spread: float = 0.1
    """The standard deviation that factors start from."""

    def __post_init__(self) -> None:
        whole(self, 1, "rank", "iterations", "kept")
        positive(self, "spread")
        if self.kept > self.iterations:
            raise ModelError(f"kept (={self.kept}) must not exceed iterations ({self.iterations})")


class _FM(Unsaved):
    """What regression and ordered probit have in common."""

    def __init__(self, **options: Any) -> None:
        self.options = FMOptions(**options)
        self._model: Any = None

    def _sample(self, kind: str, train: Ratings, target: Any, seed: int) -> None:
        package = library("myfm", "myfm", self.name)
        options = self.options
        sizes = train.n_users, train.n_items
        model = getattr(package, kind)(
            rank=options.rank, init_stdev=options.spread, random_seed=seed
        )
        with redirect_stderr(StringIO()):  # it draws a bar
            model.fit(
                _features(train.users, train.items, *sizes),
                target,
                n_iter=options.iterations,
                n_kept_samples=options.kept,
                group_shapes=list(sizes),
                callback=lambda *_: (False, None),
            )
        self._model, self._sizes, self._scale = model, sizes, train.scale.array()

    def _asked(self, users: IntArray, items: IntArray) -> Any:
        require_fitted(self._model is not None, self.name)
        return _features(*checked_cells(users, items, *self._sizes), *self._sizes)


class BayesianFM(_FM):
    """Ratings as numbers with Gaussian noise."""

    name: ClassVar[str] = "bfm"

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Draw the samples, on one thread; nothing is chosen by `valid`."""
        del valid
        self._threads = thread_count(threads)
        self._sample("MyFMRegressor", train, train.values, seed)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean over samples, clipped to the scale. Returns (n,)."""
        asked = self._asked(users, items)
        found: FloatArray = self._model.predict(asked, n_workers=self._threads)
        return np.clip(found, self._scale[0], self._scale[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Of levels there are none: ratings are numbers here."""


class OrderedProbitFM(_FM):
    """Ratings as levels: a normal variable falls between cut points."""

    name: ClassVar[str] = "bfm-ordinal"

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Draw the samples, on one thread; nothing is chosen by `valid`."""
        del valid
        self._threads = thread_count(threads)
        # A level that nobody used has no cut point to be learnt, and the chance 0.
        self._used, target = np.unique(train.levels, return_inverse=True)
        self._sample("MyFMOrderedProbit", train, target.astype(np.int64), seed)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of the distribution. Returns (n,)."""
        chances = self.probabilities(users, items)
        return np.clip(chances @ self._scale, self._scale[0], self._scale[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """The chance of every level, the mean over samples. Returns (n, K)."""
        asked = self._asked(users, items)
        found = self._model.predict_proba(asked, n_workers=self._threads)
        chances = np.zeros((len(found), len(self._scale)))
        chances[:, self._used] = found
        return chances


def _features(users: IntArray, items: IntArray, n_users: int, n_items: int) -> Any:
    """A one for the user and a one for the item; an unknown one has none. Returns (n, N+M)."""
    sparse = library("scipy.sparse", "scipy", "myFM")
    columns = np.stack([users, np.where(items >= 0, items + n_users, -1)], axis=1)  # (n, 2)
    known = columns >= 0
    offsets = np.concatenate([[0], np.cumsum(known.sum(1))])
    ones = np.ones(int(offsets[-1]))
    return sparse.csr_matrix((ones, columns[known], offsets), (len(users), n_users + n_items))
