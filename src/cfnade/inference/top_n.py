"""Lists of any number of people: some at a time, so that memory does not grow with them.

Each thread takes people of its own through all steps: nothing waits for another thread but at the
end, and one person is answered on the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.components.base import Who
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.inference.lists import Lists
from cfnade.inference.objectives import FloatArray, Objective, means_of
from cfnade.inference.results import RankedItems, TopN
from cfnade.inference.scorer import Scorer
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade.kernels.top_k import (
    MEAN_SLACK,
    cells_between,
    criterion_bounds,
    keep_candidates,
    nth_largest,
)

BoolArray = npt.NDArray[np.bool_]

LISTED = 1 << 21
"""So many scores are held at once, by each thread and of each side."""

FEW = 4
"""So many people are answered one by one: their bits do not depend on their company."""


_EVEN = 256  # people of a step that is like all others


class Ranker(Protocol):
    """Makes the lists of some people, few enough for all scores to be in memory."""

    @property
    def scores_each(self) -> int:
        """How many scores a person needs."""

    def lists(self, people: Sequence[Who]) -> tuple[RankedItems, IntArray]:
        """Their lists, and how many items each could have besides but for min_ratings (B,)."""


@dataclass(frozen=True)
class Candidates:
    """Which items may be listed."""

    items: BoolArray  # (M,) by what was asked for
    enough: BoolArray  # (M,) by how many ratings there are of each
    exclude_seen: bool

    @property
    def shown(self) -> BoolArray:
        """To who knows nothing. Returns (M,)."""
        return self.items & self.enough

    def of(self, people: Sequence[Who]) -> BoolArray:
        """For each person. Returns (B, M)."""
        allowed = np.tile(self.shown, (len(people), 1))
        if self.exclude_seen:
            for number, who in enumerate(people):
                allowed[number, who.rated.columns] = False
        return allowed

    def hidden(self, people: Sequence[Who]) -> IntArray:
        """How many are hidden from each. Returns (B,)."""
        thin = self.items & ~self.enough
        hidden = np.full(len(people), np.count_nonzero(thin))
        if self.exclude_seen and hidden.any():
            hidden -= [np.count_nonzero(thin[who.rated.columns]) for who in people]
        return hidden


@dataclass(frozen=True)
class RatingRanker:
    """By what is said of ratings."""

    scorer: Scorer
    calibrator: Calibrator
    by: Objective
    n: int
    allowed: Candidates

    @property
    def scores_each(self) -> int:
        return len(self.allowed.items) * len(self.by.scale)

    def lists(self, people: Sequence[Who]) -> tuple[RankedItems, IntArray]:
        items = np.flatnonzero(self.allowed.shown)
        leave_out = not self.allowed.exclude_seen
        said = self.scorer.lists(people, items, leave_out=leave_out)
        top = best(said, self.allowed.of(people), self.n, self.by, self.calibrator)
        return top, self.allowed.hidden(people)


def even_step(lister: Ranker) -> int:
    """How many people a step takes if all steps are to be alike, however many people there are."""
    return max(1, min(_EVEN, LISTED // lister.scores_each))


def filled(people: Sequence[Who], step: int) -> list[Who]:
    """The same people and the last one again, until they are whole steps and not a few."""
    count = -(-max(len(people), FEW + 1) // step) * step if people else 0
    return [*people, *[people[-1]] * (count - len(people))] if people else []


def rankings(
    lister: Ranker, scorer: Scorer, people: Sequence[Who], step: int | None = None
) -> TopN:
    """The lists of all of these; by steps of so many people if that is said."""
    threads = 1 if len(people) <= FEW else thread_count(None)
    if len(people) <= FEW:
        step = 1
    elif step is None:
        rounds = -(-len(people) // (threads * max(1, LISTED // lister.scores_each)))
        step = -(-len(people) // (threads * rounds))  # no thread waits for the last step of another
    firsts = range(0, len(people), step)
    shares = [firsts[thread::threads] for thread in range(min(threads, len(firsts)))]
    ranked = (
        run_parallel(_some, [(lister, people, mine, step) for mine in shares]) if shares else []
    )
    parts = sorted((part for share in ranked for part in share), key=lambda part: part[0])
    nobody = RankedItems.none(len(scorer.fitted.context.scale))
    tops = [nobody, *(top._replace(which=first + top.which) for first, top, _ in parts)]
    top = RankedItems.joined(tops)
    return TopN(
        top,
        scorer.known("item")[top.items],
        np.array([len(who.rated.columns) for who in people], np.int64),
        np.concatenate([np.empty(0, np.int64), *(hidden for _, _, hidden in parts)]),
    )


def _some(
    lister: Ranker, people: Sequence[Who], firsts: range, step: int
) -> list[tuple[int, RankedItems, IntArray]]:
    """Of the next people from each of these on."""
    # Of a few, what is made once and kept must have the bits that any other question gives it.
    with nullcontext() if len(people) <= FEW else single_torch_thread():
        return [(first, *lister.lists(people[first : first + step])) for first in firsts]


def best(
    lists: Lists, allowed: npt.NDArray[np.bool_], n: int, by: Objective, calibrator: Calibrator
) -> RankedItems:
    """The n best of each person's allowed items (B, M), a mask that is used up.

    Of equal ones the lower index comes first, so the list never depends on chance.
    """
    keep_candidates(*_bounds(lists, by, calibrator), n, allowed)
    which, items = np.nonzero(allowed)
    chances = lists.chances(which, items)
    means = means_of(chances, by.scale.array())
    if by.rank == "expected":  # which calibration does not move
        first = first_of_each(n, which, items, means)
        chosen = which[first], items[first]
        honest = calibrator.for_users(chances[first], lists.people, *chosen)
        return RankedItems(*chosen, means[first], means[first], honest, np.full(len(first), np.nan))
    honest = calibrator.for_users(chances, lists.people, which, items)
    ranked = by.scores(means, honest)
    first = first_of_each(n, which, items, ranked)
    chosen, unasked = (which[first], items[first]), np.full(len(first), np.nan)
    return RankedItems(*chosen, ranked[first], means[first], honest[first], unasked)


def first_of_each(n: int, which: IntArray, items: IntArray, ranked: FloatArray) -> IntArray:
    """The places of each person's n best, person by person."""
    order = np.lexsort((items, -ranked, which))
    whose = which[order]
    return order[np.arange(len(order)) - np.searchsorted(whose, whose) < n]


def _bounds(
    lists: Lists, by: Objective, calibrator: Calibrator
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Of what all items are ranked by; none of what is rated, calibrated apart. Both (B, M)."""
    if by.rank == "expected":
        means = lists.means(by.unit)
        return means, means + 2 * MEAN_SLACK
    scores, each = lists.scores(), [calibrator.calibration_of(who) for who in lists.people]
    sharp = np.array([one.temperature for one in each])
    lower, upper = np.empty(scores.shape[:2]), np.empty(scores.shape[:2])
    for temperature in np.unique(sharp):  # one, unless known and new people are asked at once
        mine = np.flatnonzero(sharp == temperature)
        some = scores if len(mine) == len(sharp) else scores[mine]
        lower[mine], upper[mine] = criterion_bounds(some, by.criterion([each[n] for n in mine]))
    for below, above, who in zip(lower, upper, lists.people, strict=True):
        below[who.rated.columns], above[who.rated.columns] = -np.inf, np.inf
    return lower, upper


# -- by interactions ---------------------------------------------------------------------------
TASTE = 0.5
"""Picked and liked."""

_FEWEST = 48  # candidates that are rated at first
_CELLS = 1 << 19  # that are rated at once
_LEAST_EACH = 1 << 10  # scores of a person, by which the number of people at once is reckoned
_PEOPLE = 256  # of whom chances are held at once
_SLACK = 1 + 1e-6  # chances may add up to a little more than 1; an equal one may have a lower index


@dataclass(frozen=True)
class InteractionRanker:
    """By what is picked, or picked and liked."""

    scorer: Scorer
    calibrator: Calibrator
    model: InteractionModel
    by: Objective
    taste: float
    n: int
    allowed: Candidates
    popularity_penalty: float = 0.0
    """How much an item's probability for a user without interactions counts against it."""

    @property
    def scores_each(self) -> int:
        # Some two thousand people share a reading of the tables, if the catalog is not too large.
        return max(_LEAST_EACH, len(self.allowed.items) // 16)

    def lists(self, people: Sequence[Who]) -> tuple[RankedItems, IntArray]:
        # What is excluded because it was seen has no chance already.
        ranked = log_chances(self.scorer, self.model, people, left_out=self.allowed.exclude_seen)
        ranked[:, ~self.allowed.shown] = -np.inf
        ranked -= self._penalties
        make = self._picked_and_liked
        if not self.scorer.fitted.rates or self.taste == 0:
            make = self._picked
        return make(ranked, people), self.allowed.hidden(people)

    def _picked(self, ranked: ScoreArray, people: Sequence[Who]) -> RankedItems:
        """By the choice alone; ratings are said of what is listed."""
        which, items = _cells(ranked, nth_largest(ranked, self.n), _above(ranked))
        scores = np.exp(ranked[which, items].astype(np.float64))
        order = first_of_each(self.n, which, items, scores)
        which, items, scores = which[order], items[order], scores[order]
        chances = self._honest(people, which, items)
        picks = scores * np.exp(self._penalties[items])
        return RankedItems(which, items, scores, self._means(chances), chances, picks)

    def _picked_and_liked(self, ranked: ScoreArray, people: Sequence[Who]) -> RankedItems:
        """The likeliest are rated; then all that could still come into the list."""
        least = nth_largest(ranked, max(_FEWEST, 2 * self.n))
        likeliest = self._rated(ranked, people, *_cells(ranked, least, _above(ranked)))
        reach = self._reach(likeliest, len(people)).astype(np.float32)
        more = self._rated(ranked, people, *_cells(ranked, np.nextafter(reach, -np.inf), least))
        every = RankedItems.joined([likeliest, more])
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _rated(
        self, ranked: ScoreArray, people: Sequence[Who], which: IntArray, items: IntArray
    ) -> RankedItems:
        """The lists of people among some cells."""
        if len(which) <= _CELLS:
            return self._some_rated(ranked, people, which, items)
        parts = [RankedItems.none(len(self.by.scale))]
        for first in range(0, len(which), _CELLS):
            mine = slice(first, first + _CELLS)
            parts.append(self._some_rated(ranked, people, which[mine], items[mine]))
        every = RankedItems.joined(parts)
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _some_rated(
        self, ranked: ScoreArray, people: Sequence[Who], which: IntArray, items: IntArray
    ) -> RankedItems:
        if not len(which):
            return RankedItems.none(len(self.by.scale))
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
        picks = np.exp(logs[order] + self._penalties[items])
        return RankedItems(which, items, scores[order], self._means(chances), chances, picks)

    def _reach(self, listed: RankedItems, people: int) -> FloatArray:
        """The log P(picked next) that an item needs to come into each person's list. (people,)."""
        counts = np.bincount(listed.which, minlength=people)
        full = counts == self.n
        worst = np.zeros(people)
        worst[full] = listed.scores[np.cumsum(counts)[full] - 1]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(worst / _SLACK) / self._pick_power)

    @cached_property
    def _penalties(self) -> ScoreArray:
        """What is taken from log P(picked next) of each item. (M,)."""
        return np.float32(self.popularity_penalty) * self.model.base_log_probabilities

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


def with_picks(lists: TopN, scorer: Scorer, people: Sequence[Who], *, left_out: bool) -> TopN:
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
