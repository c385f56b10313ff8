"""What lists are ranked by, and the best of all items by it.

Bounds of all items pick the few that can be in the list; only these are calibrated exactly, so the
list is that of the whole catalogue at a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.calibration.per_user import Calibrator
from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.kernels.top_k import (
    MEAN_SLACK,
    PROBABILITY,
    QUANTILE,
    Criterion,
    criterion_bounds,
    keep_candidates,
)
from cfnade.lists import Lists

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Rank = Literal["expected", "at_least", "quantile", "picked"]

RANKS: tuple[Rank, ...] = ("expected", "at_least", "quantile", "picked")
QUANTILE_DEFAULT = 0.2
"""A careful list: eight of ten ratings will be higher than what it is ranked by."""


class How(TypedDict, total=False):
    """What Predictor.recommend takes beside the people and the length of their lists."""

    rank: Rank | None
    threshold: float | None
    quantile: float | None
    taste: float | None
    min_ratings: int | None
    items: Any
    without: Any
    genres: Any
    diversity: float


class Answers(NamedTuple):
    """Of each cell asked for."""

    items: IntArray  # (n,) indices
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K) calibrated
    known_of_user: IntArray  # (n,)
    known_of_item: IntArray  # (n,)


@dataclass(frozen=True, eq=False)
class Ranking:
    """One person's list, best first, as arrays."""

    items: IntArray  # (n,) indices
    scores: FloatArray  # (n,) what they are ranked by
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K) calibrated
    known_of_items: IntArray  # (n,)
    known_of_user: int
    hidden: int
    """How many items could be listed but have fewer than min_ratings ratings."""
    min_ratings: int
    picks: FloatArray | None = None
    """(n,) chances to be picked next, of a list by "picked"."""

    def __len__(self) -> int:
        return len(self.items)


class Best(NamedTuple):
    """The chosen items of some people, person by person and best first."""

    which: IntArray  # (n,) whose
    items: IntArray
    scores: FloatArray
    predictions: FloatArray
    probabilities: FloatArray
    picks: FloatArray
    """Chances to be picked next; NaN where they were not asked for."""

    @classmethod
    def joined(cls, parts: Sequence[Best]) -> Best:
        """All of these, one after the other."""
        columns: Any = zip(*parts, strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, places: IntArray) -> Best:
        """Those at these places."""
        columns: tuple[Any, ...] = self
        return Best(*(column[places] for column in columns))

    @classmethod
    def none(cls, K: int) -> Best:
        """Of nobody."""
        index, value = np.empty(0, np.int64), np.empty(0)
        return cls(index, index, value, value, np.empty((0, K)), value)


@dataclass(frozen=True)
class RankBy:
    """The expected rating, the chance of a rating of at least `threshold`, or a quantile; or what
    would be picked, together with that chance (picking.py)."""

    rank: Rank
    scale: Scale
    threshold: float
    quantile: float

    def scores(self, means: FloatArray, calibrated: FloatArray) -> FloatArray:
        """What distributions (n, K) with means (n,) are ranked by. Returns (n,)."""
        if self.rank == "expected":
            return means
        if self.rank == "at_least":
            return self.chance_of_liking(calibrated)
        return quantiles(calibrated, self.scale, self.quantile)

    def chance_of_liking(self, calibrated: FloatArray) -> FloatArray:
        """That of a rating of at least `threshold`. Returns (n,)."""
        return np.asarray(calibrated[:, self._first() :].sum(1))

    @property
    def unit(self) -> FloatArray:
        """The scale's values, moved and stretched to 0..1. Returns (K,)."""
        return unit_values(self.scale.array())

    def criterion(self, calibrations: Sequence[Calibration]) -> Criterion:
        """A chance or a quantile as the kernel takes it: a calibration of each person, all of one
        temperature."""
        nothing = (0.0,) * len(self.scale)
        return Criterion(
            kind=PROBABILITY if self.rank == "at_least" else QUANTILE,
            unit=self.unit,
            sharpness=1 / calibrations[0].temperature,
            log_weights=np.array([one.log_weights or nothing for one in calibrations]),
            first=self._first(),
            share=self.quantile,
            edges=level_edges(self.scale),
        )

    def _first(self) -> int:
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        slack = 1e-9 * max(1.0, abs(self.threshold))
        return int(np.searchsorted(self.scale.array(), self.threshold - slack))


def rank_by(rank: Any, threshold: Any, quantile: Any, scale: Scale) -> RankBy:
    """Check what a list is to be ranked by; without a threshold or quantile take the usual ones."""
    if rank not in RANKS:
        raise PredictionError(f"rank (={rank!r}) must be one of {', '.join(map(repr, RANKS))}")
    for name, value, its_rank in (
        ("threshold", threshold, ("at_least", "picked")),
        ("quantile", quantile, ("quantile",)),
    ):
        if value is not None and rank not in its_rank:
            ranks = " or ".join(map(repr, its_rank))
            raise PredictionError(
                f"{name} (={value!r}) goes with rank={ranks}, not with {rank!r}; leave one out"
            )
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise PredictionError(f"{name} (={value!r}) must be a number")
    if len(scale) == 1:  # interactions: nothing to be liked more or less
        if threshold is not None:
            raise PredictionError(
                f"threshold (={threshold!r}) is a rating, and this model knows none; leave it out"
            )
        return RankBy(rank, scale, scale.values[0], QUANTILE_DEFAULT)
    low, high = scale.values[0], scale.values[-1]
    threshold = scale.default_threshold if threshold is None else float(threshold)
    if not low < threshold <= high:
        raise PredictionError(
            f"threshold (={threshold:g}) must lie above {low:g}, the lowest rating, and be at most "
            f"{high:g}, the highest"
        )
    quantile = QUANTILE_DEFAULT if quantile is None else float(quantile)
    if not 0.0 < quantile < 1.0:
        raise PredictionError(
            f"quantile (={quantile:g}) must lie between 0 and 1: low is careful, high adventurous"
        )
    return RankBy(rank, scale, threshold, quantile)


def level_edges(scale: Scale) -> FloatArray:
    """Where each value's share of the number line begins and ends. Returns (K+1,)."""
    values = scale.array()
    inner = (values[1:] + values[:-1]) / 2 if scale.edges is None else np.array(scale.edges)
    ends = 2 * values[0] - inner[0], 2 * values[-1] - inner[-1]
    return np.concatenate([ends[:1], inner, ends[1:]])


def quantiles(probabilities: FloatArray, scale: Scale, share: float) -> FloatArray:
    """Where the share of each distribution is reached. Returns (n,).

    A level's probability counts as spread evenly around its value, to half-way to the next, so
    that the answer moves with every change of a distribution and not in whole levels.
    """
    before = np.cumsum(probabilities, 1) - probabilities  # (n, K)
    left = share - before
    some = probabilities > 0
    parts = np.divide(left, probabilities, out=(left > 0).astype(float), where=some)
    edges = level_edges(scale)
    return np.asarray(edges[0] + (np.clip(parts, 0.0, 1.0) * np.diff(edges)).sum(1))


def means_of(probabilities: FloatArray, values: FloatArray) -> FloatArray:
    """Expected ratings, each a sum of its own: equal rows get equal bits. Returns (n,)."""
    return np.asarray((probabilities * values).sum(1))


def best(
    lists: Lists, allowed: npt.NDArray[np.bool_], n: int, by: RankBy, calibrator: Calibrator
) -> Best:
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
        return Best(*chosen, means[first], means[first], honest, np.full(len(first), np.nan))
    honest = calibrator.for_users(chances, lists.people, which, items)
    ranked = by.scores(means, honest)
    first = first_of_each(n, which, items, ranked)
    chosen, unasked = (which[first], items[first]), np.full(len(first), np.nan)
    return Best(*chosen, ranked[first], means[first], honest[first], unasked)


def first_of_each(n: int, which: IntArray, items: IntArray, ranked: FloatArray) -> IntArray:
    """The places of each person's n best, person by person."""
    order = np.lexsort((items, -ranked, which))
    whose = which[order]
    return order[np.arange(len(order)) - np.searchsorted(whose, whose) < n]


def _bounds(
    lists: Lists, by: RankBy, calibrator: Calibrator
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
