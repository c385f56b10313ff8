"""Calibration: honest spread, the same mean.

The ordinal cost finds the mean but makes distributions too narrow. Here p becomes
p' ∝ p^(1/T) · w · exp(c·φ + θ·v): the temperature T, a weight w for each level and what a person's
own leaning φ counts (c; personal.py) belong to the model and are fitted on validation; θ is solved
for each cell, so that the mean over the scale's values v stays what it was. docs/calibration.md
says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.evaluation.rating_metrics import (
    FloatArray,
    check_levels,
    check_probabilities,
    check_values,
    mean_surprisal,
    nll,
)
from cfnade.exceptions import PredictionError
from cfnade.kernels.mean_tilt import tilt_to_mean

HOTTEST = 20.0
"""T lies in 1/20..20: beyond, a distribution is flat or certain for all practical purposes."""

MOST_PERSONAL = 10.0
"""Of c, which is near 1 where people's leanings are as strong as they look."""

ENOUGH = 1 << 17
"""Ratings to fit on: a handful of numbers needs no more; they are taken evenly from those given."""

REST, REST_OF_LEVELS = 50.0, 200.0
"""The penalty on whatever changes distributions, in ratings, and on weights of levels, which are
many: else a small validation part would be learnt by heart."""

_CHUNK = 1 << 14
_PIECE = 8 * _CHUNK  # distributions of which a copy is made at a time
_ROUNDS = 50  # of the fit, at most; usually about 6


@dataclass(frozen=True)
class Calibration:
    """A temperature above 1 flattens distributions; log_weights (K,) favour levels, () none.

    personal is what a person's leaning is multiplied by, 0 for none.
    """

    temperature: float = 1.0
    log_weights: tuple[float, ...] = ()
    personal: float = 0.0

    def __post_init__(self) -> None:
        if not 1 / HOTTEST <= self.temperature <= HOTTEST:
            raise PredictionError(
                f"temperature (={self.temperature}) must lie in {1 / HOTTEST:g}..{HOTTEST:g}"
            )
        if not all(math.isfinite(weight) for weight in self.log_weights):
            raise PredictionError(f"log_weights (={self.log_weights}) must be finite")
        if not 0 <= self.personal <= MOST_PERSONAL:
            raise PredictionError(f"personal (={self.personal}) must lie in 0..{MOST_PERSONAL:g}")

    def apply(
        self,
        probabilities: npt.ArrayLike,
        values: npt.ArrayLike,
        leanings: FloatArray | None = None,
    ) -> FloatArray:
        """Calibrated probabilities (n, K), each with the mean that it had over values (K,).

        leanings (n, K) are those of the people asked about; without them nobody leans.
        """
        table = np.asarray(probabilities, np.float64)
        if table.ndim == 2 and len(table) == 0:
            return table.copy()
        p = check_probabilities(table)
        unit = unit_of(check_values(values, p.shape[1]))
        if len(self.log_weights) not in (0, p.shape[1]):
            raise PredictionError(
                f"this calibration is for {len(self.log_weights)} levels, the probabilities have "
                f"{p.shape[1]}"
            )
        leanings = None if leanings is None else _checked_leanings(leanings, p)
        return self.applied(p, unit, leanings)

    def applied(self, p: FloatArray, unit: FloatArray, leanings: FloatArray | None) -> FloatArray:
        """The same of what a model says, which need not be checked; values stretched to 0..1."""
        p = _normalised(p)
        own = () if leanings is None else (self.personal,)
        if self.temperature == 1.0 and not any(self.log_weights) and not any(own):
            return p
        weights = self.log_weights or (0.0,) * p.shape[1]
        x = np.array([1 / self.temperature, *own, *weights])
        return _applied(p, unit, x, leanings, out=p)

    def nll(
        self,
        probabilities: FloatArray,
        levels: npt.NDArray[np.integer[Any]],
        values: npt.ArrayLike,
        leanings: FloatArray | None = None,
    ) -> float:
        """That of levels (n,) after calibration: `metrics.nll`, without a table of all of them."""
        of_truth = np.empty(len(levels))
        for first in range(0, len(levels), _PIECE):
            part = slice(first, first + _PIECE)
            own = None if leanings is None else leanings[part]
            table = self.apply(probabilities[part], values, own)
            of_truth[part] = table[np.arange(len(table)), levels[part]]
        return mean_surprisal(of_truth)

    def for_leaning(self, leaning: FloatArray) -> Calibration:
        """The same for cells that all have this leaning (K,), as one that asks for none."""
        weights = np.array(self.log_weights or [0.0] * len(leaning)) + self.personal * leaning
        return Calibration(self.temperature, tuple(weights.tolist()))

    def to_dict(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "log_weights": list(self.log_weights),
            "personal": self.personal,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Calibration:
        """What to_dict wrote, now or before anything was personal; anything else is refused."""
        try:
            temperature, weights = given["temperature"], given["log_weights"]
            personal = float(given.get("personal", 0.0))
            return cls(float(temperature), tuple(float(weight) for weight in weights), personal)
        except (KeyError, TypeError) as problem:
            raise PredictionError(
                f"calibration (={given!r}) must hold a number named temperature, a list of "
                "numbers named log_weights and maybe a number named personal"
            ) from problem


def fit(
    probabilities: npt.ArrayLike,
    levels: npt.ArrayLike,
    values: npt.ArrayLike,
    leanings: FloatArray | None = None,
) -> Calibration:
    """The calibration under which ratings (n,) that the model did not learn from are likeliest.

    With leanings (n, K) it is personal, if that is likelier. A penalty (REST) keeps it near rest
    where there is little to fit on.
    """
    p = check_probabilities(probabilities)
    truth = check_levels(levels, p)
    unit = unit_of(check_values(values, p.shape[1]))
    leanings = None if leanings is None else _checked_leanings(leanings, p)
    # What was called impossible stays so, and says nothing about the rest.
    fits = p[np.arange(len(p)), truth] > 0
    if not fits.all():
        p, truth = p[fits], truth[fits]
        leanings = None if leanings is None else leanings[fits]
    if len(p) == 0:
        return Calibration()
    p = _normalised(p)
    some = np.arange(0, len(p), -(-len(p) // ENOUGH))
    calibration = _likeliest(
        p[some], truth[some], unit, None if leanings is None else leanings[some]
    )
    # What was fitted on some must hold for all.
    better = calibration.nll(p, truth, unit, leanings) < nll(p, truth)
    return calibration if better else Calibration()


class _Slope(NamedTuple):
    """Of the mean negative log-likelihood in (1/T, c, log_weights), J numbers; c with leanings."""

    gradient: FloatArray  # (J,)
    information: FloatArray  # (J, J) Fisher's


def _likeliest(
    p: FloatArray, truth: IntArray, unit: FloatArray, leanings: FloatArray | None
) -> Calibration:
    """Fisher scoring with step halving from rest: no step makes the penalised cost worse."""
    n, K = p.shape
    rest = np.zeros(K + 1 if leanings is None else K + 2)
    rest[0] = 1.0
    firm = np.where(np.arange(len(rest)) < len(rest) - K, REST, REST_OF_LEVELS)
    x = rest.copy()  # 1/T, c if there are leanings, then log_weights

    def cost(x: FloatArray, q: FloatArray) -> float:
        return float(nll(q, truth) + firm @ np.square(x - rest) / (2 * n))

    q, now = p, nll(p, truth)
    for _ in range(_ROUNDS):
        slope = _slope(p, q, truth, unit, leanings)
        matrix = slope.information + np.diag(firm) / n
        step = np.linalg.solve(matrix, slope.gradient + firm * (x - rest) / n)
        for size in 0.5 ** np.arange(12):
            ahead = x - size * step
            ahead[0] = np.clip(ahead[0], 1 / HOTTEST, HOTTEST)
            q_ahead = _applied(p, unit, ahead, leanings)
            after = cost(ahead, q_ahead)
            if after < now:
                break
        else:
            break
        gain, x, q, now = now - after, ahead, q_ahead, after
        if gain < 1e-9:
            break
    weights = tuple(x[-K:].tolist())
    if leanings is None:
        return Calibration(float(1 / x[0]), weights)
    if not x[1] > 0:  # leanings tell nothing: nobody is taken for the opposite of themselves
        return _likeliest(p, truth, unit, None)
    return Calibration(float(1 / x[0]), weights, min(float(x[1]), MOST_PERSONAL))


def _slope(
    p: FloatArray, q: FloatArray, truth: IntArray, unit: FloatArray, leanings: FloatArray | None
) -> _Slope:
    """A parameter moves log q by its feature (log p, the leaning, or being at a level), less what
    the tilt takes back to keep the mean: the feature's part along v. What remains is what the truth
    is fitted by.
    """
    n, K = p.shape
    features = [np.log(p, where=p > 0, out=np.zeros_like(p))]  # of cells, each (n, K)
    features += [] if leanings is None else [leanings]
    F, rows = len(features), np.arange(n)
    offset = unit - (q @ unit)[:, None]  # (n, K)
    variance = np.sum(q * np.square(offset), axis=1)  # (n,)
    scaled = np.divide(1.0, variance, where=variance > 0, out=np.zeros(n))
    centred = [feature - np.sum(q * feature, axis=1, keepdims=True) for feature in features]
    weighed = [q * one for one in centred]  # covariances with being at each level, (n, K)
    parts = [np.sum(one * unit, axis=1) for one in weighed]
    along = np.column_stack([*parts, q * offset])  # covariances with v. (n, J)

    pull = scaled * offset[rows, truth]  # (n,)
    at_truth = np.bincount(truth, minlength=K) - q.sum(0)  # (K,)
    seen = np.concatenate([[one[rows, truth].sum() for one in centred], at_truth])  # (J,)
    gradient = -(seen - pull @ along) / n

    information = np.empty((F + K, F + K))
    information[:F, :F] = [[np.sum(a * b) for b in features] for a in weighed]
    information[:F, F:] = [one.sum(0) for one in weighed]
    information[F:, :F] = information[:F, F:].T
    information[F:, F:] = np.diag(q.sum(0)) - q.T @ q
    information -= along.T @ (scaled[:, None] * along)
    return _Slope(gradient, information / n)


def _applied(
    p: FloatArray,
    unit: FloatArray,
    x: FloatArray,
    leanings: FloatArray | None,
    out: FloatArray | None = None,
) -> FloatArray:
    """x holds 1/T, c if there are leanings, and log_weights; out may be p itself."""
    out, K = np.empty_like(p) if out is None else out, p.shape[1]
    for first in range(0, len(p), _CHUNK):
        part = slice(first, first + _CHUNK)
        with np.errstate(divide="ignore"):
            scores = np.log(p[part]) * x[0] + x[-K:]
        if leanings is not None:
            scores += x[1] * leanings[part]
        out[part] = tilt_to_mean(scores, unit, p[part])
    return out


def _checked_leanings(leanings: FloatArray, p: FloatArray) -> FloatArray:
    if leanings.shape != p.shape or not np.isfinite(leanings).all():
        raise PredictionError(
            f"leanings have shape {leanings.shape}; give finite ones of shape {p.shape}, a line "
            "for each distribution"
        )
    return leanings


def _normalised(p: FloatArray) -> FloatArray:
    """Sums that missed 1 by a float32's rounding are put right."""
    exact: FloatArray = p / p.sum(1, keepdims=True)
    return exact


def unit_of(values: FloatArray) -> FloatArray:
    """A scale's values, moved and stretched to 0..1. Returns (K,)."""
    return np.asarray((values - values[0]) / (values[-1] - values[0]))
