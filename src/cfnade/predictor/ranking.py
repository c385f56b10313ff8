"""What lists are ranked by, and the best of all items by it.

Bounds of all items pick the few that can be in the list; only these are calibrated exactly, so the
list is that of the whole catalogue at a fraction of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from cfnade.calibration import Calibration
from cfnade.data.scale import Scale, usual_threshold
from cfnade.errors import PredictionError
from cfnade.kernels.bounds import CHANCE, MEAN, QUANTILE, Criterion, bounds
from cfnade.personal import Leaning
from cfnade.scorer import distributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Rank = Literal["expected", "at_least", "quantile"]

RANKS: tuple[Rank, ...] = ("expected", "at_least", "quantile")
QUANTILE_DEFAULT = 0.2
"""A careful list: eight of ten ratings will be higher than what it is ranked by."""


class How(TypedDict, total=False):
    """What Predictor.recommend takes beside the people and the length of their lists."""

    rank: Rank
    threshold: float | None
    quantile: float | None
    min_ratings: int | None


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

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class RankBy:
    """The expected rating, the chance of a rating of at least `threshold`, or a quantile."""

    rank: Rank
    scale: Scale
    threshold: float
    quantile: float

    def scores(self, means: FloatArray, calibrated: FloatArray) -> FloatArray:
        """What distributions (n, K) with means (n,) are ranked by. Returns (n,)."""
        if self.rank == "expected":
            return means
        if self.rank == "at_least":
            return np.asarray(calibrated[:, self._first() :].sum(1))
        return quantiles(calibrated, self.scale, self.quantile)

    def criterion(self, calibration: Calibration) -> Criterion:
        """The same, as the kernel takes it."""
        values = self.scale.array()
        weights = calibration.log_weights or (0.0,) * len(values)
        return Criterion(
            kind={"expected": MEAN, "at_least": CHANCE, "quantile": QUANTILE}[self.rank],
            unit=(values - values[0]) / (values[-1] - values[0]),
            sharpness=1 / calibration.temperature,
            log_weights=np.array(weights),
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
    for name, given, its_rank in (
        ("threshold", threshold, "at_least"),
        ("quantile", quantile, "quantile"),
    ):
        if given is not None and rank != its_rank:
            raise PredictionError(
                f"{name} (={given!r}) goes with rank={its_rank!r}, not with {rank!r}; leave one out"
            )
        if given is not None and (isinstance(given, bool) or not isinstance(given, Real)):
            raise PredictionError(f"{name} (={given!r}) must be a number")
    low, high = scale.values[0], scale.values[-1]
    threshold = usual_threshold(scale) if threshold is None else float(threshold)
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


class Best(NamedTuple):
    """The chosen items of one line of scores: the first fields of a Ranking."""

    items: IntArray
    scores: FloatArray
    predictions: FloatArray
    probabilities: FloatArray


def best(
    scores: npt.NDArray[Any],
    allowed: npt.NDArray[np.bool_],
    n: int,
    by: RankBy,
    calibration: Calibration | None,
    leaning: Leaning | None = None,
) -> Best:
    """The n best of the allowed items, given the scores (M, K) of all before the softmax.

    leaning is the person's, if calibration is personal. Of equal ones the lower index comes first,
    so the list never depends on chance.
    """
    values = by.scale.array()
    candidates = np.flatnonzero(allowed)
    if n < len(candidates):
        lower, upper = _bounds(scores, by, calibration or Calibration(), leaning)
        least = np.partition(lower[candidates], len(candidates) - n)[len(candidates) - n]
        candidates = candidates[upper[candidates] >= least]
    chances = distributions(scores[candidates])
    means = means_of(chances, values)
    if by.rank == "expected":
        order = np.lexsort((candidates, -means))[:n]
        leans = _leans(leaning, candidates[order])
        final = _calibrated(chances[order], values, calibration, leans)
        return Best(candidates[order], means[order], means[order], final)
    # Equal distributions are calibrated once: twice might differ in the last bit, and in rank.
    leans = _leans(leaning, candidates)
    both = chances if leans is None else np.hstack([chances, leans])
    _, first, back = np.unique(both, axis=0, return_index=True, return_inverse=True)
    leans = None if leans is None else leans[first]
    honest = _calibrated(chances[first], values, calibration, leans)[back.reshape(-1)]
    ranked = by.scores(means, honest)
    order = np.lexsort((candidates, -ranked))[:n]
    return Best(candidates[order], ranked[order], means[order], honest[order])


def _bounds(
    scores: npt.NDArray[Any], by: RankBy, calibration: Calibration, leaning: Leaning | None
) -> tuple[FloatArray, FloatArray]:
    """Of what all items are ranked by; none where the person leans otherwise. Both (M,)."""
    if leaning is None:
        return bounds(scores, by.criterion(calibration))
    lower, upper = bounds(scores, by.criterion(calibration.for_leaning(leaning.whole)))
    if by.rank != "expected":
        lower[leaning.own], upper[leaning.own] = -np.inf, np.inf
    return lower, upper


def _leans(leaning: Leaning | None, items: IntArray) -> FloatArray | None:
    return None if leaning is None else leaning.of(items)


def _calibrated(
    chances: FloatArray,
    values: FloatArray,
    calibration: Calibration | None,
    leans: FloatArray | None,
) -> FloatArray:
    """The honest spread of distributions, with the means that they had. Returns (n, K)."""
    return chances if calibration is None else calibration.apply(chances, values, leans)
