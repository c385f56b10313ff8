"""Lists of any number of people: some at a time, so that memory does not grow with them.

Each thread takes people of its own through all steps: nothing waits for another thread but at the
end, and one person is answered on the calling thread.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.data.dataset import Dataset
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.inference.objectives import FloatArray, Objective, means_of
from cfnade.inference.query import BoolArray, Entities, Query
from cfnade.inference.results import RankedItems, TopN
from cfnade.inference.scorer import ItemScores, Scorer
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade.kernels.top_k import (
    MEAN_SLACK,
    cells_between,
    criterion_bounds,
    keep_candidates,
    nth_largest,
)

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

    def lists(self, users: Entities) -> tuple[RankedItems, IntArray]:
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

    def of(self, users: Entities) -> BoolArray:
        """For each person. Returns (B, M)."""
        allowed = np.tile(self.shown, (len(users), 1))
        if self.exclude_seen:
            numbers = np.repeat(np.arange(len(users)), users.counts())
            allowed[numbers, users.rows.columns] = False
        return allowed

    def hidden(self, users: Entities) -> IntArray:
        """How many are hidden from each. Returns (B,)."""
        thin = self.items & ~self.enough
        hidden = np.full(len(users), np.count_nonzero(thin))
        if self.exclude_seen and hidden.any():
            numbers = np.repeat(np.arange(len(users)), users.counts())
            hidden -= np.bincount(numbers[thin[users.rows.columns]], minlength=len(users))
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

    def lists(self, users: Entities) -> tuple[RankedItems, IntArray]:
        items = np.flatnonzero(self.allowed.shown)
        leave_out = not self.allowed.exclude_seen
        scores = self.scorer.item_scores(users, items, leave_one_out=leave_out)
        context, allowed = self.scorer.fitted.context, self.allowed.of(users)
        top = best(scores, context, allowed, self.n, self.by, self.calibrator)
        return top, self.allowed.hidden(users)


def even_step(lister: Ranker) -> int:
    """How many people a step takes if all steps are to be alike, however many people there are."""
    return max(1, min(_EVEN, LISTED // lister.scores_each))


def filled(users: Entities, step: int) -> Entities:
    """The same users and the last one again, until they are whole steps and not a few."""
    if not len(users):
        return users
    count = -(-max(len(users), FEW + 1) // step) * step
    return users.take(np.minimum(np.arange(count), len(users) - 1))


def rankings(lister: Ranker, scorer: Scorer, users: Entities, step: int | None = None) -> TopN:
    """The lists of all of these; by steps of so many people if that is said."""
    threads = 1 if len(users) <= FEW else thread_count(None)
    if len(users) <= FEW:
        step = 1
    elif step is None:
        rounds = -(-len(users) // (threads * max(1, LISTED // lister.scores_each)))
        step = -(-len(users) // (threads * rounds))  # no thread waits for the last step of another
    firsts = range(0, len(users), step)
    shares = [firsts[thread::threads] for thread in range(min(threads, len(firsts)))]
    ranked = run_parallel(_some, [(lister, users, mine, step) for mine in shares]) if shares else []
    parts = sorted((part for share in ranked for part in share), key=lambda part: part[0])
    nobody = RankedItems.none(len(scorer.fitted.context.scale))
    tops = [nobody, *(top._replace(which=first + top.which) for first, top, _ in parts)]
    top = RankedItems.joined(tops)
    return TopN(
        top,
        scorer.known("item")[top.items],
        users.counts(),
        np.concatenate([np.empty(0, np.int64), *(hidden for _, _, hidden in parts)]),
    )


def _some(
    lister: Ranker, users: Entities, firsts: range, step: int
) -> list[tuple[int, RankedItems, IntArray]]:
    """Of the next people from each of these on."""
    # Of a few, what is made once and kept must have the bits that any other question gives it.
    with nullcontext() if len(users) <= FEW else single_torch_thread():
        return [(first, *lister.lists(_part(users, first, step))) for first in firsts]


def _part(users: Entities, first: int, step: int) -> Entities:
    if first == 0 and len(users) <= step:
        return users
    return users.take(np.arange(first, min(first + step, len(users))))


def best(
    lists: ItemScores,
    context: Dataset,
    allowed: BoolArray,
    n: int,
    by: Objective,
    calibrator: Calibrator,
) -> RankedItems:
    """The n best of each person's allowed items (B, M), a mask that is used up.

    Of equal ones the lower index comes first, so the list never depends on chance.
    """
    keep_candidates(*_bounds(lists, by, calibrator), n, allowed)
    which, items = np.nonzero(allowed)
    chances = lists.probabilities(which, items)
    means = means_of(chances, by.scale.array())
    if by.rank_by == "prediction":  # which calibration does not move
        scores = by.scores(items, means, chances)
        first = first_of_each(n, which, items, scores)
        chosen, unasked = (which[first], items[first]), np.full(len(first), np.nan)
        honest = calibrator.apply(chances[first], Query.of_users(context, lists.users, *chosen))
        return RankedItems(*chosen, scores[first], means[first], honest, unasked)
    honest = calibrator.apply(chances, Query.of_users(context, lists.users, which, items))
    ranked = by.scores(items, means, honest)
    first = first_of_each(n, which, items, ranked)
    chosen, unasked = (which[first], items[first]), np.full(len(first), np.nan)
    return RankedItems(*chosen, ranked[first], means[first], honest[first], unasked)


def first_of_each(n: int, which: IntArray, items: IntArray, ranked: FloatArray) -> IntArray:
    """The places of each person's n best, person by person."""
    order = np.lexsort((items, -ranked, which))
    whose = which[order]
    return order[np.arange(len(order)) - np.searchsorted(whose, whose) < n]


def _bounds(
    lists: ItemScores, by: Objective, calibrator: Calibrator
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Of what all items are ranked by; none of what is rated, calibrated apart. Both (B, M)."""
    if by.rank_by == "prediction":
        scores = by.personalized_units(lists.means(by.unit))
        return scores, scores + 2 * MEAN_SLACK * max(1.0, by.personalization)
    scores, each = lists.scores(), calibrator.calibrations(lists.users)
    sharp = np.array([one.temperature for one in each])
    lower, upper = np.empty(scores.shape[:2]), np.empty(scores.shape[:2])
    for temperature in np.unique(sharp):  # one, unless known and new people are asked at once
        mine = np.flatnonzero(sharp == temperature)
        some = scores if len(mine) == len(sharp) else scores[mine]
        lower[mine], upper[mine] = criterion_bounds(some, by.criterion([each[n] for n in mine]))
    rated = np.repeat(np.arange(len(lists.users)), lists.users.counts()), lists.users.rows.columns
    lower[rated], upper[rated] = -np.inf, np.inf
    return lower, upper


# -- by interactions ---------------------------------------------------------------------------
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
    balance: float
    n: int
    allowed: Candidates
    popularity_penalty: float = 0.0
    """How much an item's probability for a user without interactions counts against it."""

    @property
    def scores_each(self) -> int:
        # Some two thousand people share a reading of the tables, if the catalog is not too large.
        return max(_LEAST_EACH, len(self.allowed.items) // 16)

    def lists(self, users: Entities) -> tuple[RankedItems, IntArray]:
        # What is excluded because it was seen has no chance already.
        ranked = log_chances(self.scorer, self.model, users, left_out=self.allowed.exclude_seen)
        ranked[:, ~self.allowed.shown] = -np.inf
        ranked -= self._penalties
        make = self._picked_and_liked
        if not self.scorer.fitted.predicts_ratings or self.balance == 0:
            make = self._picked
        return make(ranked, users), self.allowed.hidden(users)

    def _picked(self, ranked: ScoreArray, users: Entities) -> RankedItems:
        """By the choice alone; ratings are said of what is listed."""
        which, items = _cells(ranked, nth_largest(ranked, self.n), _above(ranked))
        scores = np.exp(ranked[which, items].astype(np.float64))
        order = first_of_each(self.n, which, items, scores)
        which, items, scores = which[order], items[order], scores[order]
        chances = self._honest(users, which, items)
        picks = scores * np.exp(self._penalties[items])
        return RankedItems(which, items, scores, self._means(chances), chances, picks)

    def _picked_and_liked(self, ranked: ScoreArray, users: Entities) -> RankedItems:
        """The likeliest are rated; then all that could still come into the list."""
        least = nth_largest(ranked, max(_FEWEST, 2 * self.n))
        likeliest = self._rated(ranked, users, *_cells(ranked, least, _above(ranked)))
        reach = self._reach(likeliest, len(users)).astype(np.float32)
        more = self._rated(ranked, users, *_cells(ranked, np.nextafter(reach, -np.inf), least))
        every = RankedItems.joined([likeliest, more])
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _rated(
        self, ranked: ScoreArray, users: Entities, which: IntArray, items: IntArray
    ) -> RankedItems:
        """The lists of people among some cells."""
        if len(which) <= _CELLS:
            return self._some_rated(ranked, users, which, items)
        parts = [RankedItems.none(len(self.by.scale))]
        for first in range(0, len(which), _CELLS):
            mine = slice(first, first + _CELLS)
            parts.append(self._some_rated(ranked, users, which[mine], items[mine]))
        every = RankedItems.joined(parts)
        return every.take(first_of_each(self.n, every.which, every.items, every.scores))

    def _some_rated(
        self, ranked: ScoreArray, users: Entities, which: IntArray, items: IntArray
    ) -> RankedItems:
        if not len(which):
            return RankedItems.none(len(self.by.scale))
        asked, local = users, which
        if len(users) > 1:
            numbers, local = np.unique(which, return_inverse=True)
            asked = users.take(numbers)
        chances = self._honest(asked, local, items)
        logs = ranked[which, items].astype(np.float64)
        with np.errstate(divide="ignore"):
            liked = np.log(self.by.probability_of_liking(chances))
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
        return min(1.0, 2 - 2 * self.balance)

    @property
    def _like_power(self) -> float:
        return min(1.0, 2 * self.balance)

    def _honest(self, users: Entities, which: IntArray, items: IntArray) -> FloatArray:
        if not self.scorer.fitted.predicts_ratings:
            return np.ones((len(which), 1))
        context = self.scorer.fitted.context
        if len(users) == 1 and self.scorer.fitted.axes == ("user",):
            # One state and one product for both rounds, and for the person's next question.
            shown, leave_out = np.flatnonzero(self.allowed.shown), not self.allowed.exclude_seen
            scores = self.scorer.item_scores(users, shown, leave_one_out=leave_out)
            query = Query.of_users(context, users, which, items)
            return self.calibrator.apply(scores.probabilities(which, items), query)
        query = Query.of_users(context, users, which, items)
        return self.calibrator.apply(self.scorer.rating_probabilities(query), query)

    def _means(self, chances: FloatArray) -> FloatArray:
        return means_of(chances, self.by.scale.array())


def log_chances(
    scorer: Scorer, model: InteractionModel, users: Entities, *, left_out: bool = True
) -> ScoreArray:
    """log P(picked next) of every item for some people. Returns (B, M)."""

    def made() -> list[ScoreArray]:
        return [model.log_probabilities(known_interactions(scorer, users), exclude_known=left_out)]

    return made()[0] if len(users) > 1 else scorer.cached(users, made, left_out)[0].copy()


def with_picks(lists: TopN, scorer: Scorer, users: Entities, *, left_out: bool) -> TopN:
    """The same lists with the chance of each item to be picked next, where it was not asked yet."""
    top, model = lists.top, scorer.fitted.interaction_model
    if model is None or not np.isnan(top.picks).any():
        return lists
    picks = np.empty(len(top.items))
    for first in range(0, len(users), _PEOPLE):
        mine = slice(*np.searchsorted(top.which, [first, first + _PEOPLE]))
        logs = log_chances(scorer, model, _part(users, first, _PEOPLE), left_out=left_out)
        picks[mine] = np.exp(logs[top.which[mine] - first, top.items[mine]].astype(np.float64))
    return lists._replace(top=top._replace(picks=picks))


def known_interactions(scorer: Scorer, users: Entities) -> InteractionRows:
    """Return what is known of people, users of the data or new ones."""
    rows = InteractionRows.from_rows(users.rows)
    if scorer.fitted.context.weights is None:
        return rows
    weights = rows.weights.copy()  # 1 for an interaction that the context does not hold
    for number, user in enumerate(users.index.tolist()):
        if user >= 0:
            own = slice(rows.indptr[number], rows.indptr[number + 1])
            weights[own] = scorer.interactions.weights_of(user, rows.columns[own])
    return rows.with_weights(weights)


def _cells(ranked: ScoreArray, low: ScoreArray, high: ScoreArray) -> tuple[IntArray, IntArray]:
    """Whose and which items have a chance from low (B,) on and below high (B,)."""
    low = np.maximum(low, np.finfo(np.float32).min)  # -∞ is no chance
    return cells_between(ranked, low, high, expected=len(ranked) * _FEWEST)


def _above(ranked: ScoreArray) -> ScoreArray:
    return np.full(len(ranked), np.inf, np.float32)
