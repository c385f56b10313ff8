"""Lists by what a person would pick, weighed with how much they would like it.

    score = P(picked next)^a · P(rating ≥ t | picked)^b
    a = min(1, 2 - 2 taste), b = min(1, 2 taste)

`taste` goes from 0, what people like you pick, over ½, picked and liked, to 1, what you would rate
highest. As P(rating ≥ t) is at most 1, items that are hardly ever picked need not be rated: the
likeliest are, and then those that can come into the list that these make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.kernels.top_k import cells_between, nth_largest
from cfnade.predictor.listing import Listable, Rankings
from cfnade.predictor.ranking import Best, FloatArray, RankBy, first_of_each, means_of
from cfnade.scorer import Scorer
from cfnade.sides.side import Who

TASTE = 0.5
"""Picked and liked."""

_FEWEST = 48  # candidates that are rated at first
_CELLS = 1 << 19  # that are rated at once
_LEAST_EACH = 1 << 10  # scores of a person, by which the number of people at once is reckoned
_PEOPLE = 256  # of whom chances are held at once
_SLACK = 1 + 1e-6  # chances may add up to a little more than 1; an equal one may have a lower index


@dataclass(frozen=True)
class PickedLists:
    """By what is picked, or picked and liked."""

    scorer: Scorer
    calibrator: Calibrator
    model: InteractionModel
    by: RankBy
    taste: float
    n: int
    allowed: Listable

    @property
    def scores_each(self) -> int:
        # Some two thousand people share a reading of the tables, if the catalogue is not too large.
        return max(_LEAST_EACH, len(self.allowed.items) // 16)

    def lists(self, people: Sequence[Who]) -> tuple[Best, IntArray]:
        # What is excluded because it was seen has no chance already.
        ranked = log_chances(self.scorer, self.model, people, left_out=self.allowed.exclude_seen)
        ranked[:, ~self.allowed.shown] = -np.inf
        make = self._picked_and_liked
        if not self.scorer.fitted.rates or self.taste == 0:
            make = self._picked
        return make(ranked, people), self.allowed.hidden(people)

    def _picked(self, ranked: ScoreArray, people: Sequence[Who]) -> Best:
        """By the choice alone; ratings are said of what is listed."""
        which, items = _cells(ranked, nth_largest(ranked, self.n), _above(ranked))
        picks = np.exp(ranked[which, items].astype(np.float64))
        order = first_of_each(self.n, which, items, picks)
        which, items, picks = which[order], items[order], picks[order]
        chances = self._honest(people, which, items)
        return Best(which, items, picks, self._means(chances), chances, picks)

    def _picked_and_liked(self, ranked: ScoreArray, people: Sequence[Who]) -> Best:
        """The likeliest are rated; then all that could still come into the list."""
        least = nth_largest(ranked, max(_FEWEST, 2 * self.n))
        likeliest = self._rated(ranked, people, *_cells(ranked, least, _above(ranked)))
        reach = self._reach(likeliest, len(people)).astype(np.float32)
        more = self._rated(ranked, people, *_cells(ranked, np.nextafter(reach, -np.inf), least))
        every = Best.joined([likeliest, more])
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _rated(
        self, ranked: ScoreArray, people: Sequence[Who], which: IntArray, items: IntArray
    ) -> Best:
        """The lists of people among some cells."""
        if len(which) <= _CELLS:
            return self._some_rated(ranked, people, which, items)
        parts = [Best.none(len(self.by.scale))]
        for first in range(0, len(which), _CELLS):
            mine = slice(first, first + _CELLS)
            parts.append(self._some_rated(ranked, people, which[mine], items[mine]))
        every = Best.joined(parts)
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _some_rated(
        self, ranked: ScoreArray, people: Sequence[Who], which: IntArray, items: IntArray
    ) -> Best:
        if not len(which):
            return Best.none(len(self.by.scale))
        asked, local = people, which
        if len(people) > 1:
            numbers, local = np.unique(which, return_inverse=True)
            asked = [people[number] for number in numbers.tolist()]
        chances = self._honest(asked, local, items)
        logs = ranked[which, items].astype(np.float64)
        with np.errstate(divide="ignore"):
            liked = np.log(self.by.chance_of_liking(chances))
        scores = np.exp(self._pick_power * logs + self._like_power * liked)
        order = first_of_each(self.n, which, items, scores)
        which, items, chances = which[order], items[order], chances[order]
        picks = np.exp(logs[order])
        return Best(which, items, scores[order], self._means(chances), chances, picks)

    def _reach(self, listed: Best, people: int) -> FloatArray:
        """The log P(picked next) that an item needs to come into each person's list. (people,)."""
        counts = np.bincount(listed.which, minlength=people)
        full = counts == self.n
        worst = np.zeros(people)
        worst[full] = listed.scores[np.cumsum(counts)[full] - 1]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(worst / _SLACK) / self._pick_power)

    @property
    def _pick_power(self) -> float:
        return min(1.0, 2 - 2 * self.taste)

    @property
    def _like_power(self) -> float:
        return min(1.0, 2 * self.taste)

    def _honest(self, people: Sequence[Who], which: IntArray, items: IntArray) -> FloatArray:
        if not self.scorer.fitted.rates:
            return np.ones((len(which), 1))
        if len(people) == 1 and self.scorer.fitted.axes == ("user",):
            # One state and one product for both rounds, and for the person's next question.
            shown, leave_out = np.flatnonzero(self.allowed.shown), not self.allowed.exclude_seen
            said = self.scorer.lists(people, shown, leave_out=leave_out)
            return self.calibrator.for_user(said.chances(which, items), people[0], items)
        chances = self.scorer.of_people(people, which, items)
        return self.calibrator.for_users(chances, people, which, items)

    def _means(self, chances: FloatArray) -> FloatArray:
        return means_of(chances, self.by.scale.array())


def log_chances(
    scorer: Scorer, model: InteractionModel, people: Sequence[Who], *, left_out: bool = True
) -> ScoreArray:
    """log P(picked next) of every item for some people. Returns (B, M)."""

    def made() -> list[ScoreArray]:
        return [model.log_probabilities(known_interactions(scorer, people), exclude_known=left_out)]

    return made()[0] if len(people) > 1 else scorer.cached(people[0], made, left_out)[0].copy()


def with_picks(
    lists: Rankings, scorer: Scorer, people: Sequence[Who], *, left_out: bool
) -> Rankings:
    """The same lists with the chance of each item to be picked next, where it was not asked yet."""
    top, model = lists.top, scorer.fitted.interaction_model
    if model is None or not np.isnan(top.picks).any():
        return lists
    picks = np.empty(len(top.items))
    for first in range(0, len(people), _PEOPLE):
        mine = slice(*np.searchsorted(top.which, [first, first + _PEOPLE]))
        logs = log_chances(scorer, model, people[first : first + _PEOPLE], left_out=left_out)
        picks[mine] = np.exp(logs[top.which[mine] - first, top.items[mine]].astype(np.float64))
    return lists._replace(top=top._replace(picks=picks))


def known_interactions(scorer: Scorer, people: Sequence[Who]) -> InteractionRows:
    """Return what is known of people, users of the data or new ones."""
    rows = InteractionRows.from_histories(
        [who.rated for who in people], scorer.fitted.context.n_items
    )
    if scorer.fitted.context.weights is None:
        return rows
    weights = rows.weights.copy()  # 1 for an interaction that the context does not hold
    for person, who in enumerate(people):
        if who.user >= 0:
            own = slice(rows.indptr[person], rows.indptr[person + 1])
            weights[own] = scorer.interactions.weights_of(who.user, rows.columns[own])
    return rows.with_weights(weights)


def _cells(ranked: ScoreArray, low: ScoreArray, high: ScoreArray) -> tuple[IntArray, IntArray]:
    """Whose and which items have a chance from low (B,) on and below high (B,)."""
    low = np.maximum(low, np.finfo(np.float32).min)  # -∞ is no chance
    return cells_between(ranked, low, high, expected=len(ranked) * _FEWEST)


def _above(ranked: ScoreArray) -> ScoreArray:
    return np.full(len(ranked), np.inf, np.float32)
