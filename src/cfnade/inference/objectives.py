"""What lists are ranked by, and the best of all items by it.

Bounds of all items pick the few that can be in the list; only these are calibrated exactly, so the
list is that of the whole catalogue at a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.kernels.top_k import PROBABILITY, QUANTILE, Criterion

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
RankBy = Literal["expected", "at_least", "quantile", "picked"]

CRITERIA: tuple[RankBy, ...] = ("expected", "at_least", "quantile", "picked")
QUANTILE_DEFAULT = 0.2
"""A careful list: eight of ten ratings will be higher than what it is ranked by."""


class How(TypedDict, total=False):
    """What Predictor.recommend takes beside the people and the length of their lists."""

    rank: RankBy | None
    threshold: float | None
    quantile: float | None
    taste: float | None
    min_ratings: int | None
    items: Any
    without: Any
    genres: Any
    diversity: float


@dataclass(frozen=True)
class Objective:
    """The expected rating, the chance of a rating of at least `threshold`, or a quantile; or what
    would be picked, together with that chance (picking.py)."""

    rank: RankBy
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


def resolve_objective(rank: Any, threshold: Any, quantile: Any, scale: Scale) -> Objective:
    """Check what a list is to be ranked by; without a threshold or quantile take the usual ones."""
    if rank not in CRITERIA:
        raise PredictionError(f"rank (={rank!r}) must be one of {', '.join(map(repr, CRITERIA))}")
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
        return Objective(rank, scale, scale.values[0], QUANTILE_DEFAULT)
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
    return Objective(rank, scale, threshold, quantile)


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
