"""Baseline: predictions where nothing is known, from how often ratings occur.

For a user without ratings, all members predict the rating frequencies of the item in the context,
smoothed by SMOOTHING imaginary ratings that are distributed like all ratings.

A user or an item without training ratings has no weights in a component. Without a fold-in, the
component then scores the logarithms of smoothed rating frequencies, as it does before training.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.components.base import Array
from cfnade.components.ridge import SETTLED_SMOOTHING as SMOOTHING
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import BoolArray, Query
from cfnade.utils.caching import locked_cached_property

FloatArray = npt.NDArray[np.float64]

OWN_SMOOTHING = 5.0
"""Number of imaginary ratings, distributed like all ratings, in `untrained_scores`."""


def untrained_scores(counts: FloatArray, frequencies: FloatArray, *, prior: bool) -> FloatArray:
    """Return the scores of a component without trained weights, (n, K).

    Args:
        counts: Known ratings at each level, (n, K).
        frequencies: Those of all training ratings, (K,).
        prior: Whether the scores include the frequencies of all ratings; else they are the
            difference from these, which is 0 without known ratings.
    """
    overall = np.maximum(frequencies, 1e-9)  # a level that never occurred has no logarithm
    smoothed = counts + OWN_SMOOTHING * overall  # (n, K)
    logs = np.log(smoothed / smoothed.sum(-1, keepdims=True))
    return np.asarray(logs if prior else logs - np.log(overall))


class Baseline:
    """Item frequencies for users without ratings, in models that use the ratings of users."""

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted

    def applies(self, query: Query) -> BoolArray:
        """Return which pairs it predicts: those whose user has no further rating, (n,)."""
        if not self._fitted.takes_histories:
            return np.zeros(len(query), bool)
        return np.asarray((query.remaining() == 0) & (query.item_index >= 0))

    def replace_scores(self, query: Query, scores: Array) -> None:
        """Set the scores (n, K) of these pairs to the log frequencies of their items."""
        places = np.flatnonzero(self.applies(query))
        if not len(places):
            return
        part = query.take(places)
        counts = self._level_counts[part.item_index]
        # A history may differ from the ratings that the item's counts hold.
        levels = part.item_levels
        held = np.flatnonzero(levels >= 0)
        counts[held, levels[held]] -= 1.0
        scores[places] = np.log(self._smooth(counts))

    def frequencies(self) -> FloatArray:
        """Return the predicted distribution of every item, (M, K)."""
        return self._smooth(self._level_counts)

    def _smooth(self, counts: FloatArray) -> FloatArray:
        smoothed = counts + SMOOTHING * self._overall
        return np.asarray(smoothed / smoothed.sum(1, keepdims=True))

    @locked_cached_property
    def _level_counts(self) -> FloatArray:
        """Known ratings of each item at each level, (M, K)."""
        fitted = self._fitted
        counts = None if fitted.has_context else fitted.training_counts.get("item")
        return (fitted.counted_levels("item") if counts is None else counts).astype(np.float64)

    @locked_cached_property
    def _overall(self) -> FloatArray:
        """Frequency of each level among all ratings, above 0, (K,)."""
        counts = self._level_counts.sum(0) + 1.0
        return np.asarray(counts / counts.sum())
