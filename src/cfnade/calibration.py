"""Calibration: honest spread, the same mean.

The ordinal cost finds the mean but makes distributions too narrow. Here p becomes
p' ∝ p^(1/T) · w · exp(θ·v): the temperature T and a weight w for each level belong to the model and
are fitted on validation; θ is solved for each cell, so that the mean over the scale's values v
stays what it was. docs/calibration.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.errors import PredictionError
from cfnade.metrics import (
    FloatArray,
    LevelIndex,
    checked_levels,
    checked_probabilities,
    checked_values,
    nll,
)
from cfnade.tilting import tilt_to_mean

HOTTEST = 20.0
"""T lies in 1/20..20: beyond, a distribution is flat or certain for all practical purposes."""

ENOUGH = 1 << 17
"""Ratings to fit on: a handful of numbers needs no more; they are taken evenly from those given."""

_CHUNK = 1 << 14
_ROUNDS = 50  # of the fit, at most; usually about 6


@dataclass(frozen=True)
class Calibration:
    """A temperature above 1 flattens distributions; log_weights (K,) favour levels, () none."""

    temperature: float = 1.0
    log_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 / HOTTEST <= self.temperature <= HOTTEST:
            raise PredictionError(
                f"temperature (={self.temperature}) must lie in {1 / HOTTEST:g}..{HOTTEST:g}"
            )
        if not all(math.isfinite(weight) for weight in self.log_weights):
            raise PredictionError(f"log_weights (={self.log_weights}) must be finite")

    def apply(self, probabilities: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
        """Calibrated probabilities (n, K), each with the mean that it had over values (K,)."""
        given = np.asarray(probabilities, np.float64)
        if given.ndim == 2 and len(given) == 0:
            return given.copy()
        p = checked_probabilities(given)
        unit = _unit(values, p.shape[1])
        if len(self.log_weights) not in (0, p.shape[1]):
            raise PredictionError(
                f"this calibration is for {len(self.log_weights)} levels, the probabilities have "
                f"{p.shape[1]}"
            )
        p = _normalised(p)
        if self.temperature == 1.0 and not any(self.log_weights):
            return p
        weights = np.array(self.log_weights or [0.0] * p.shape[1])
        return _applied(p, unit, 1 / self.temperature, weights)

    def to_dict(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "log_weights": list(self.log_weights)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Calibration:
        """What to_dict wrote; anything else is refused."""
        try:
            temperature, weights = given["temperature"], given["log_weights"]
            return cls(float(temperature), tuple(float(weight) for weight in weights))
        except (KeyError, TypeError) as problem:
            raise PredictionError(
                f"calibration (={given!r}) must hold a number named temperature and a list of "
                "numbers named log_weights"
            ) from problem


def fit(probabilities: npt.ArrayLike, levels: npt.ArrayLike, values: npt.ArrayLike) -> Calibration:
    """The calibration under which ratings (n,) that the model did not learn from are likeliest.

    A small penalty, worth about one rating, keeps it at rest where there is nothing to fit on.
    """
    p = checked_probabilities(probabilities)
    truth = checked_levels(levels, p)
    unit = _unit(values, p.shape[1])
    # What was called impossible stays so, and says nothing about the rest.
    fits = p[np.arange(len(p)), truth] > 0
    p, truth = _normalised(p[fits]), truth[fits]
    if len(p) == 0:
        return Calibration()
    some = np.arange(0, len(p), -(-len(p) // ENOUGH))
    found = _likeliest(p[some], truth[some], unit)
    # What was fitted on some must hold for all.
    return found if nll(found.apply(p, unit), truth) < nll(p, truth) else Calibration()


class _Slope(NamedTuple):
    """Of the mean negative log-likelihood in (1/T, log_weights), J = K+1 numbers."""

    gradient: FloatArray  # (J,)
    information: FloatArray  # (J, J) Fisher's


def _likeliest(p: FloatArray, truth: LevelIndex, unit: FloatArray) -> Calibration:
    """Fisher scoring with step halving from rest: no step makes the penalised cost worse."""
    n, K = p.shape
    rest = np.concatenate([[1.0], np.zeros(K)])
    x = rest.copy()  # 1/T, then log_weights

    def cost(x: FloatArray, q: FloatArray) -> float:
        return float(nll(q, truth) + np.square(x - rest).sum() / (2 * n))

    q, now = p, nll(p, truth)
    for _ in range(_ROUNDS):
        slope = _slope(p, q, truth, unit)
        matrix = slope.information + np.eye(K + 1) / n
        step = np.linalg.solve(matrix, slope.gradient + (x - rest) / n)
        for size in 0.5 ** np.arange(12):
            ahead = x - size * step
            ahead[0] = np.clip(ahead[0], 1 / HOTTEST, HOTTEST)
            q_ahead = _applied(p, unit, float(ahead[0]), ahead[1:])
            after = cost(ahead, q_ahead)
            if after < now:
                break
        else:
            break
        gain, x, q, now = now - after, ahead, q_ahead, after
        if gain < 1e-9:
            break
    return Calibration(float(1 / x[0]), tuple(x[1:].tolist()))


def _slope(p: FloatArray, q: FloatArray, truth: LevelIndex, unit: FloatArray) -> _Slope:
    """A parameter moves log q by its feature (log p, or being at a level), less what the tilt takes
    back to keep the mean: the feature's part along v. What remains is what the truth is fitted by.
    """
    n, K = p.shape
    logs = np.log(p, where=p > 0, out=np.zeros_like(p))
    offset = unit - (q @ unit)[:, None]  # (n, K)
    variance = np.sum(q * np.square(offset), axis=1)  # (n,)
    scaled = np.divide(1.0, variance, where=variance > 0, out=np.zeros(n))
    log_offset = logs - np.sum(q * logs, axis=1, keepdims=True)  # (n, K)
    weighed = q * log_offset  # covariance of log p and being at each level. (n, K)
    along = np.column_stack([np.sum(weighed * unit, axis=1), q * offset])  # with v. (n, J)

    rows = np.arange(n)
    pull = scaled * offset[rows, truth]  # (n,)
    at_truth = np.bincount(truth, minlength=K) - q.sum(0)  # (K,)
    seen = np.concatenate([[log_offset[rows, truth].sum()], at_truth])  # (J,)
    gradient = -(seen - pull @ along) / n

    information = np.empty((K + 1, K + 1))
    information[0, 0] = np.sum(weighed * logs)
    information[0, 1:] = information[1:, 0] = weighed.sum(0)
    information[1:, 1:] = np.diag(q.sum(0)) - q.T @ q
    information -= along.T @ (scaled[:, None] * along)
    return _Slope(gradient, information / n)


def _applied(
    p: FloatArray, unit: FloatArray, inverse_temperature: float, log_weights: FloatArray
) -> FloatArray:
    out = np.empty_like(p)
    for first in range(0, len(p), _CHUNK):
        piece = p[first : first + _CHUNK]
        with np.errstate(divide="ignore"):
            scores = np.log(piece) * inverse_temperature + log_weights
        out[first : first + _CHUNK] = tilt_to_mean(scores, unit, piece)
    return out


def _normalised(p: FloatArray) -> FloatArray:
    """Sums that missed 1 by a float32's rounding are put right."""
    exact: FloatArray = p / p.sum(1, keepdims=True)
    return exact


def _unit(values: npt.ArrayLike, levels: int) -> FloatArray:
    """The scale's values, moved and stretched to 0..1."""
    stars = checked_values(values, levels)
    unit: FloatArray = (stars - stars[0]) / (stars[-1] - stars[0])
    return unit
