"""What is said where nothing is known.

A user or an item without training ratings has no weights on a side. It then says there what it
would have started training with: the frequencies of its known ratings, among a few imagined ones
spread like everyone's. A row of which nothing is known is read as an empty one.

Of a person of whom nothing is known, whatever the sides of a member make of an empty row, all
members say how often each item gets each level: there is nothing that a model could know better.
Frequencies are those of the ratings that the model conditions on, among SMOOTHING imagined ones
spread like everyone's.
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
"""Imagined ratings, spread like all ratings, beside the known ones."""


def untrained_scores(counts: FloatArray, frequencies: FloatArray, *, prior: bool) -> FloatArray:
    """Scores without trained weights, from known ratings at each level, counts (n, K). (n, K).

    frequencies (K,) are those of all training ratings. Without `prior` what is said is how the
    known ratings differ from these; of nothing known that is nothing.
    """
    everyone = np.maximum(frequencies, 1e-9)  # a level that never came has no logarithm
    smoothed = counts + OWN_SMOOTHING * everyone  # (n, K)
    logs = np.log(smoothed / smoothed.sum(-1, keepdims=True))
    return np.asarray(logs if prior else logs - np.log(everyone))


class Baseline:
    """Item frequencies for users without ratings; a model that reads no user ratings has none."""

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted

    def applies(self, query: Query) -> BoolArray:
        """Return the pairs that it predicts: those whose user has no further rating, (n,)."""
        if not self._fitted.takes_histories:
            return np.zeros(len(query), bool)
        return np.asarray((query.remaining() == 0) & (query.item_index >= 0))

    def put(self, query: Query, scores: Array) -> None:
        """Replace the scores (n, K) of these pairs by log frequencies of their items."""
        places = np.flatnonzero(self.applies(query))
        if not len(places):
            return
        part = query.take(places)
        counts = self._levels[part.item_index]
        # A history may differ from the ratings that the item's counts hold.
        own = part.item_levels
        held = np.flatnonzero(own >= 0)
        counts[held, own[held]] -= 1.0
        scores[places] = np.log(self._smoothed(counts))

    def frequencies(self) -> FloatArray:
        """Return its distribution of every item, (items, K)."""
        return self._smoothed(self._levels)

    def _smoothed(self, counts: FloatArray) -> FloatArray:
        some = counts + SMOOTHING * self._everyone
        return np.asarray(some / some.sum(1, keepdims=True))

    @locked_cached_property
    def _levels(self) -> FloatArray:
        """Known ratings of each item at each level, (items, K)."""
        fitted = self._fitted
        counts = None if fitted.has_context else fitted.training_counts.get("item")
        return (fitted.counted_levels("item") if counts is None else counts).astype(np.float64)

    @locked_cached_property
    def _everyone(self) -> FloatArray:
        """How often each level comes at all; one that never came a little above 0. (K,)."""
        counts = self._levels.sum(0) + 1.0
        return np.asarray(counts / counts.sum())
