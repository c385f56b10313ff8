"""Lists by what a person would pick, weighed with how much they would like it.

    score = P(picked next)^a · P(rating ≥ t | picked)^b
    a = min(1, 2 - 2 taste), b = min(1, 2 taste)

`taste` goes from 0, what people like you pick, over ½, picked and liked, to 1, what you would rate
highest. As P(rating ≥ t) is at most 1, items that are hardly ever picked need not be rated: the
likeliest are, until no other can come into the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cfnade.choice import Choice
from cfnade.choice.choice_side import ScoreArray
from cfnade.choice.picks import Picks
from cfnade.data.ratings import IntArray
from cfnade.personal import Calibrator
from cfnade.predictor.listing import BoolArray, Listable, Rankings
from cfnade.predictor.ranking import Best, FloatArray, RankBy, first_of_each, means_of
from cfnade.scorer import Scorer
from cfnade.sides.side import Who

TASTE = 0.5
"""Picked and liked."""

_FEWEST = 64  # candidates that are rated at first
_MORE = 4  # times as many, where these do not settle it
_PEOPLE = 256  # of whom chances are held at once
_SLACK = 1 + 1e-9  # chances may add up to a little more than 1; an equal one may have a lower index


@dataclass(frozen=True)
class PickedLists:
    """By what is picked, or picked and liked."""

    scorer: Scorer
    calibrator: Calibrator
    choice: Choice
    by: RankBy
    taste: float
    n: int
    allowed: Listable

    @property
    def scores_each(self) -> int:
        return max(1, len(self.allowed.items) // 4)  # tables stay in cache for many people

    def lists(self, people: Sequence[Who]) -> tuple[Best, IntArray]:
        allowed, hidden = self.allowed.of(people)
        logs = log_chances(self.scorer, self.choice, people, left_out=self.allowed.exclude_seen)
        ranked = np.where(allowed, logs, -np.inf)
        if not self.scorer.fitted.members or self.taste == 0:
            return self._picked(ranked, people), hidden
        return self._picked_and_liked(ranked, people), hidden

    def _picked(self, ranked: ScoreArray, people: Sequence[Who]) -> Best:
        """By the choice alone; ratings are said of what is listed."""
        which, items = _likeliest(ranked, self.n)
        picks = np.exp(ranked[which, items].astype(np.float64))
        order = first_of_each(self.n, which, items, picks)
        which, items, picks = which[order], items[order], picks[order]
        chances = self._honest(people, which, items)
        return Best(which, items, picks, self._means(chances), chances, picks)

    def _picked_and_liked(self, ranked: ScoreArray, people: Sequence[Who]) -> Best:
        left, size, parts = np.arange(len(people)), max(_FEWEST, 4 * self.n), []
        while len(left):
            some = self._rated(ranked, people, left, size)
            settled = self._settled(some, ranked, left, size)
            keep = settled[np.searchsorted(left, some.which)]
            parts.append(some.take(np.flatnonzero(keep)))
            left, size = left[~settled], size * _MORE
        every = Best(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(every.which, kind="stable")
        return every.take(order)

    def _rated(self, ranked: ScoreArray, people: Sequence[Who], left: IntArray, size: int) -> Best:
        """The lists of some people among their `size` likeliest items."""
        local, items = _likeliest(ranked[left], size)
        which = left[local]
        chances = self._honest(people, which, items)
        logs = ranked[which, items].astype(np.float64)
        with np.errstate(divide="ignore"):
            liked = np.log(self.by.chance_of_liking(chances))
        scores = np.exp(self._pick_power * logs + self._like_power * liked)
        order = first_of_each(self.n, which, items, scores)
        which, items, chances = which[order], items[order], chances[order]
        picks = np.exp(logs[order])
        return Best(which, items, scores[order], self._means(chances), chances, picks)

    def _settled(self, some: Best, ranked: ScoreArray, left: IntArray, size: int) -> BoolArray:
        """Whether no item beyond the `size` likeliest can be in each person's list. (left,)."""
        M = ranked.shape[1]
        if size >= M:
            return np.ones(len(left), bool)
        bound = -np.partition(-ranked[left], size, axis=1)[:, size]
        counts = np.bincount(np.searchsorted(left, some.which), minlength=len(left))
        worst = np.full(len(left), -np.inf)
        ends = np.cumsum(counts) - 1
        full = counts == self.n
        worst[full] = some.scores[ends[full]]
        reach = np.exp(self._pick_power * bound.astype(np.float64))
        return np.asarray((bound == -np.inf) | (worst > _SLACK * reach))

    @property
    def _pick_power(self) -> float:
        return min(1.0, 2 - 2 * self.taste)

    @property
    def _like_power(self) -> float:
        return min(1.0, 2 * self.taste)

    def _honest(self, people: Sequence[Who], which: IntArray, items: IntArray) -> FloatArray:
        if not self.scorer.fitted.members:
            return np.ones((len(which), 1))
        chances = self.scorer.of_people(people, which, items)
        return self.calibrator.of_people(chances, people, which, items)

    def _means(self, chances: FloatArray) -> FloatArray:
        return means_of(chances, self.by.scale.array())


def log_chances(
    scorer: Scorer, choice: Choice, people: Sequence[Who], *, left_out: bool = True
) -> ScoreArray:
    """log P(picked next) of every item for some people. Returns (B, M)."""
    return choice.log_chances(known_picks(scorer, people), left_out=left_out)


def with_picks(
    lists: Rankings, scorer: Scorer, people: Sequence[Who], *, left_out: bool
) -> Rankings:
    """The same lists with the chance of each item to be picked next, where it was not asked yet."""
    top, choice = lists.top, scorer.fitted.choice
    if choice is None or not np.isnan(top.picks).any():
        return lists
    picks = np.empty(len(top.items))
    for first in range(0, len(people), _PEOPLE):
        mine = slice(*np.searchsorted(top.which, [first, first + _PEOPLE]))
        logs = log_chances(scorer, choice, people[first : first + _PEOPLE], left_out=left_out)
        picks[mine] = np.exp(logs[top.which[mine] - first, top.items[mine]].astype(np.float64))
    return lists._replace(top=top._replace(picks=picks))


def known_picks(scorer: Scorer, people: Sequence[Who]) -> Picks:
    """What is known of people, users of the data or new ones."""
    picks = Picks.of_people([who.rated for who in people], scorer.fitted.context.n_items)
    if scorer.fitted.context.weights is None:
        return picks
    users = np.array([who.user for who in people], np.int64)
    weights = picks.weights.copy()  # 1 for what somebody new tells
    weights[users[picks.rows] >= 0] = scorer.picks.take(users[users >= 0]).weights
    return replace(picks, weights=weights)


def _likeliest(ranked: ScoreArray, size: int) -> tuple[IntArray, IntArray]:
    """The people and items of each person's `size` likeliest, and of all that are as likely."""
    size = min(size, ranked.shape[1])
    least = -np.partition(-ranked, size - 1, axis=1)[:, size - 1 :][:, :1]
    which, items = np.nonzero((ranked >= least) & (ranked > -np.inf))
    return which, items
