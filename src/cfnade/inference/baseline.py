"""What is said where nothing is known.

A user or an item without training ratings has no weights on a side. It then says there what it
would have started training with: the frequencies of its known ratings, among a few imagined ones
spread like everyone's. A row of which nothing is known is read as an empty one.

Of a person of whom nothing is known, whatever the sides of a member make of an empty row, all
members say how often each item gets each level: there is nothing that a model could know better.
Frequencies are those of the ratings that the model conditions on, among SMOOTHING imagined ones
spread like everyone's.

Rule "paper", for reproduction: the constant 3, in the data's own stars, for a cell of whose user or
item nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components.base import Array, Who, row_of
from cfnade.components.ridge_rows import SETTLED_SMOOTHING as SMOOTHING
from cfnade.data.scale import Scale
from cfnade.exceptions import ModelError
from cfnade.fitted_model import FittedModel
from cfnade.utils.caching import locked_cached_property

FloatArray = npt.NDArray[np.float64]

UNSEEN_RULES = ("mean", "paper")
PAPER_RATING = 3.0
"""Section 6 of the paper names it as the default where training observed nothing."""

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


def paper_distribution(scale: Scale) -> FloatArray:
    """The paper's default rating as a certainty. Returns (K,)."""
    if PAPER_RATING not in scale.values:
        raise ModelError(
            f"the paper's default rating {PAPER_RATING:g} is not on the scale {scale}; use the "
            'rule "mean"'
        )
    return np.array([float(value == PAPER_RATING) for value in scale.values])


# -- somebody of whom nothing is known -----------------------------------------------------------


class Blanks(NamedTuple):
    """Of some cells those whose user nothing is known of but, maybe, the cell itself."""

    places: IntArray  # (n,)
    own: IntArray  # (n,) the level that the context has for the cell itself, or -1


NO_BLANKS = Blanks(np.empty(0, np.int64), np.empty(0, np.int64))


class Baseline:
    """Of a model that reads what people rated; another one takes nobody for unknown."""

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted, self._reads = fitted, fitted.takes_histories

    def cells(self, users: IntArray, items: IntArray) -> Blanks:
        """Of cells by index; an unknown item (-1) has no frequencies."""
        if not self._reads:
            return NO_BLANKS
        few = np.flatnonzero((self._counts[users] <= 1) & (items >= 0))
        own, rows = np.full(len(few), -1), self._fitted.context.rows("user")
        once = np.flatnonzero(self._counts[users[few]] == 1)
        first = rows.offsets[users[few[once]]]
        held = rows.columns[first] == items[few[once]]
        own[once] = np.where(
            held, rows.levels[first].astype(np.int64), -2
        )  # -2: the one rating is another
        return Blanks(few[own > -2], own[own > -2])

    def person(self, who: Who, items: IntArray) -> Blanks:
        """Of one person's cells."""
        rated = who.rated
        if not self._reads or len(rated.columns) > 1:
            return NO_BLANKS
        same = np.isin(items, rated.columns) if len(rated.columns) else np.ones(len(items), bool)
        places = np.flatnonzero(same & (items >= 0))
        # Only what the item's counts hold is taken out of them: a history may differ from it.
        held = row_of(self._fitted.context.rows("user"), who.user)
        level = np.full(self._fitted.context.n_items, -1)
        level[held.columns] = held.levels
        return Blanks(places, level[items[places]])

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Blanks:
        """Of cells of many people: whose each is, and the item."""
        few = np.array([len(who.rated.columns) <= 1 for who in people], bool)
        blanks = [NO_BLANKS]
        for number in np.unique(which[few[which]]).tolist():
            mine = np.flatnonzero(which == number)
            places, own = self.person(people[number], items[mine])
            blanks.append(Blanks(mine[places], own))
        return Blanks(*map(np.concatenate, zip(*blanks, strict=True)))

    def put(self, scores: Array, blanks: Blanks, items: IntArray) -> None:
        """Scores (n, K) of blanks among cells of these items become log frequencies."""
        if len(blanks.places):
            scores[blanks.places] = self._logs(items[blanks.places], blanks.own)

    def frequencies(self) -> FloatArray:
        """What is said of every item. Returns (items, K)."""
        return self._smoothed(self._levels)

    def _logs(self, items: IntArray, own: IntArray) -> FloatArray:
        counts, held = self._levels[items], np.flatnonzero(own >= 0)
        counts[held, own[held]] -= 1.0
        return np.log(self._smoothed(counts))

    def _smoothed(self, counts: FloatArray) -> FloatArray:
        some = counts + SMOOTHING * self._everyone
        return np.asarray(some / some.sum(1, keepdims=True))

    @locked_cached_property
    def _counts(self) -> IntArray:
        """Known ratings of each user, and last of one who is not in the data. (users + 1,)."""
        return np.append(self._fitted.context.counts("user"), 0)

    @locked_cached_property
    def _levels(self) -> FloatArray:
        """Known ratings of each item at each level, (items, K)."""
        fitted = self._fitted
        counts = None if fitted.has_context else fitted.trained_on.get("item")
        return (fitted.counted_levels("item") if counts is None else counts).astype(np.float64)

    @locked_cached_property
    def _everyone(self) -> FloatArray:
        """How often each level comes at all; one that never came a little above 0. (K,)."""
        counts = self._levels.sum(0) + 1.0
        return np.asarray(counts / counts.sum())
