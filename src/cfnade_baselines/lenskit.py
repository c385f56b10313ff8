"""Biased ALS of LensKit, without early stopping."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    FloatArray,
    IntArray,
    Positive,
    blas_threads,
    import_library,
)
from cfnade_baselines.factor_model import FactorModel


@options(ModelError)
class ALS(FactorModel):
    """LensKit's BiasedMFScorer: alternating least squares on the residuals of a bias model."""

    name: ClassVar[str] = "als"
    library: ClassVar[str] = "lenskit"

    factors: Count = 50
    """Number of factors."""
    epochs: Count = 10
    """Alternations of users and items."""
    user_regularization: Positive = 0.1
    """L2 penalty of a user's factors, times the number of the user's ratings."""
    item_regularization: Positive = 0.1
    """L2 penalty of an item's factors, times the number of the item's ratings."""
    damping: Positive = 5.0
    """Pseudo-ratings at the mean in the biases."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        del valid
        als = import_library("lenskit.als", "lenskit", self.name)
        data = import_library("lenskit.data", "lenskit", self.name)
        training = import_library("lenskit.training", "lenskit", self.name)
        pandas = import_library("pandas", "pandas", self.name)
        columns = {"user_id": train.users, "item_id": train.items, "rating": train.values}
        frame = pandas.DataFrame(columns)
        scorer = als.BiasedMFScorer(
            embedding_size=self.factors,
            epochs=self.epochs,
            regularization={"user": self.user_regularization, "item": self.item_regularization},
            damping=self.damping,
        )
        with _n_threads(n_threads), blas_threads(n_threads, self.name):
            options = training.TrainingOptions(rng=seed)
            scorer.train(data.from_interactions_df(frame), options)
            user_factors, user_biases = _solve_users(scorer, frame, data.ItemList)
        users, items = scorer.users.ids(), scorer.items.ids()
        sizes = train.n_users, train.n_items
        biases = (
            _by_index(users, user_biases, sizes[0]),
            _by_index(items, scorer.bias.item_biases, sizes[1]),
        )
        factors = (
            _by_index(users, user_factors, sizes[0]),
            _by_index(items, scorer.item_embeddings, sizes[1]),
        )
        self._set_factors(train, float(scorer.bias.global_bias), biases, factors)


def _solve_users(scorer: Any, frame: Any, item_list: Any) -> tuple[FloatArray, FloatArray]:
    """Solve for each user given the final items, as LensKit does for a user with a history."""
    factors = np.zeros(scorer.user_embeddings.shape)
    biases = np.zeros(len(factors))
    for user, rated in frame.groupby("user_id"):
        history = item_list(item_ids=rated["item_id"].to_numpy(), rating=rated["rating"].to_numpy())
        number = scorer.users.number(user)
        factors[number], biases[number] = scorer.new_user_embedding(number, history)
    return factors, biases


def _by_index(index: IntArray, values: Any, size: int) -> FloatArray:
    """Return the rows by index, with zeros where LensKit, which drops the unrated, has none."""
    array = np.asarray(values)
    out = np.zeros((size, *array.shape[1:]))
    out[np.asarray(index)] = array
    return out


@contextmanager
def _n_threads(n_threads: int | None) -> Iterator[None]:
    """Limit LensKit's threads, which it reads from the environment on first use."""
    count = {} if n_threads is None else dict.fromkeys(_VARIABLES, str(n_threads))
    with patch.dict(os.environ, count):
        yield


_VARIABLES = ("LK_NUM_THREADS", "RAYON_NUM_THREADS")
