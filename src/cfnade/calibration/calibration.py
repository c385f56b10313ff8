"""Calibration of rating distributions that keeps their means.

The ordinal cost fits the mean but makes distributions too narrow. Calibration turns p into
p' ∝ p^(1/T) · w · exp(c·φ + θ·v). The temperature T, the level weights w and the weight c of a
user's level preferences φ (per_user.py) are fitted on validation ratings. θ is solved for each
distribution, so that its mean over the scale's values v does not change. See
docs/concepts/calibration.md.

Shapes: n distributions over K levels.
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
from cfnade.kernels.newton import tilt_to_mean

MAX_TEMPERATURE = 20.0
"""T lies in 1/20..20: beyond, a distribution is flat or certain for all practical purposes."""

MAX_USER_WEIGHT = 10.0
"""Limit of c, which is near 1 where level preferences are as strong as they look."""

MAX_FIT_RATINGS = 1 << 17
"""Ratings to fit on: so few parameters need no more. The sample is taken at even distances."""

PENALTY, LEVEL_PENALTY = 50.0, 200.0
"""Penalties in ratings on T and c, and on each level weight: there are many of these, and a small
validation part would be overfitted."""

_CHUNK = 1 << 14  # distributions that are tilted at a time
_COPIED = 8 * _CHUNK  # distributions that are copied at a time
_MAX_ITERATIONS = 50  # of the fit; usually about 6


@dataclass(frozen=True)
class Calibration:
    """Parameters of the calibration. The defaults change nothing.

    Args:
        temperature: T; values above 1 flatten distributions.
        log_weights: Log weight of each level, (K,), or () for none.
        user_weight: c, the weight of a user's level preferences; 0 for none.
    """

    temperature: float = 1.0
    log_weights: tuple[float, ...] = ()
    user_weight: float = 0.0

    def __post_init__(self) -> None:
        if not 1 / MAX_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            raise PredictionError(
                f"temperature (={self.temperature}) must lie in "
                f"{1 / MAX_TEMPERATURE:g}..{MAX_TEMPERATURE:g}"
            )
        if not all(math.isfinite(weight) for weight in self.log_weights):
            raise PredictionError(f"log_weights (={self.log_weights}) must be finite")
        if not 0 <= self.user_weight <= MAX_USER_WEIGHT:
            raise PredictionError(
                f"user_weight (={self.user_weight}) must lie in 0..{MAX_USER_WEIGHT:g}"
            )

    def apply(
        self,
        probabilities: npt.ArrayLike,
        values: npt.ArrayLike,
        preferences: FloatArray | None = None,
    ) -> FloatArray:
        """Return calibrated distributions (n, K) with the same means.

        Args:
            probabilities: Distributions, (n, K).
            values: Values of the levels, (K,).
            preferences: Level preferences of each distribution's user, (n, K); None for none.
        """
        table = np.asarray(probabilities, np.float64)
        if table.ndim == 2 and len(table) == 0:
            return table.copy()
        p = check_probabilities(table)
        unit = unit_values(check_values(values, p.shape[1]))
        if len(self.log_weights) not in (0, p.shape[1]):
            raise PredictionError(
                f"this calibration is for {len(self.log_weights)} levels, the probabilities have "
                f"{p.shape[1]}"
            )
        preferences = None if preferences is None else _check_preferences(preferences, p)
        return self.apply_unchecked(p, unit, preferences)

    def apply_unchecked(
        self, p: FloatArray, unit: FloatArray, preferences: FloatArray | None
    ) -> FloatArray:
        """Do the same for distributions of a model, which need no checks.

        `unit` are the values of the levels, scaled to 0..1.
        """
        p = _normalize(p)
        user_weight = () if preferences is None else (self.user_weight,)
        if self.temperature == 1.0 and not any(self.log_weights) and not any(user_weight):
            return p
        weights = self.log_weights or (0.0,) * p.shape[1]
        x = np.array([1 / self.temperature, *user_weight, *weights])
        return _calibrate(p, unit, x, preferences, out=p)

    def nll(
        self,
        probabilities: FloatArray,
        levels: npt.NDArray[np.integer[Any]],
        values: npt.ArrayLike,
        preferences: FloatArray | None = None,
    ) -> float:
        """Return `rating_metrics.nll` of levels (n,) after calibration, in constant memory."""
        of_truth = np.empty(len(levels))
        for start in range(0, len(levels), _COPIED):
            part = slice(start, start + _COPIED)
            part_preferences = None if preferences is None else preferences[part]
            table = self.apply(probabilities[part], values, part_preferences)
            of_truth[part] = table[np.arange(len(table)), levels[part]]
        return mean_surprisal(of_truth)

    def with_preference(self, preference: FloatArray) -> Calibration:
        """Return the same calibration with a preference (K,) in its level weights."""
        log_weights = np.array(self.log_weights or [0.0] * len(preference))
        log_weights = log_weights + self.user_weight * preference
        return Calibration(self.temperature, tuple(log_weights.tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters for JSON."""
        return {
            "temperature": self.temperature,
            "log_weights": list(self.log_weights),
            "user_weight": self.user_weight,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Calibration:
        """Return the calibration that `to_dict` described; raise if it is incomplete."""
        try:
            log_weights = tuple(float(weight) for weight in saved["log_weights"])
            return cls(float(saved["temperature"]), log_weights, float(saved["user_weight"]))
        except (KeyError, TypeError) as error:
            raise PredictionError(
                f"calibration (={saved!r}) must hold numbers named temperature and user_weight, "
                "and a list of numbers named log_weights"
            ) from error


def fit_calibration(
    probabilities: npt.ArrayLike,
    levels: npt.ArrayLike,
    values: npt.ArrayLike,
    preferences: FloatArray | None = None,
) -> Calibration:
    """Return the calibration that maximizes the penalized likelihood of held-out ratings.

    The penalty keeps it near the identity where there are few ratings. It is the identity if the
    fit does not improve the likelihood of all ratings.

    Args:
        probabilities: Predicted distributions, (n, K).
        levels: Levels of the observed ratings, (n,).
        values: Values of the levels, (K,).
        preferences: Level preferences of each rating's user, (n, K); None to fit none.
    """
    p = check_probabilities(probabilities)
    truth = check_levels(levels, p)
    unit = unit_values(check_values(values, p.shape[1]))
    preferences = None if preferences is None else _check_preferences(preferences, p)
    # Ratings of probability 0 stay impossible and tell nothing about the parameters.
    possible = p[np.arange(len(p)), truth] > 0
    if not possible.all():
        p, truth = p[possible], truth[possible]
        preferences = None if preferences is None else preferences[possible]
    if len(p) == 0:
        return Calibration()
    p = _normalize(p)
    sample = np.arange(0, len(p), -(-len(p) // MAX_FIT_RATINGS))
    sample_preferences = None if preferences is None else preferences[sample]
    calibration = _fit_penalized(p[sample], truth[sample], unit, sample_preferences)
    # What is fitted on a sample must hold for all.
    better = calibration.nll(p, truth, unit, preferences) < nll(p, truth)
    return calibration if better else Calibration()


class _Derivatives(NamedTuple):
    """Derivatives of the mean negative log-likelihood in J parameters: 1/T, c, log_weights.

    c is a parameter only with preferences.
    """

    gradient: FloatArray  # (J,)
    information: FloatArray  # (J, J) Fisher information


def _fit_penalized(
    p: FloatArray, truth: IntArray, unit: FloatArray, preferences: FloatArray | None
) -> Calibration:
    """Run Fisher scoring with step halving from the identity: no step increases the cost."""
    n, K = p.shape
    identity = np.zeros(K + 1 if preferences is None else K + 2)
    identity[0] = 1.0
    is_level_weight = np.arange(len(identity)) >= len(identity) - K
    penalty = np.where(is_level_weight, LEVEL_PENALTY, PENALTY)
    x = identity.copy()  # 1/T, c with preferences, then log_weights

    def cost(x: FloatArray, q: FloatArray) -> float:
        return float(nll(q, truth) + penalty @ np.square(x - identity) / (2 * n))

    q, current = p, nll(p, truth)
    for _ in range(_MAX_ITERATIONS):
        derivatives = _derivatives(p, q, truth, unit, preferences)
        matrix = derivatives.information + np.diag(penalty) / n
        step = np.linalg.solve(matrix, derivatives.gradient + penalty * (x - identity) / n)
        for size in 0.5 ** np.arange(12):
            next_x = x - size * step
            next_x[0] = np.clip(next_x[0], 1 / MAX_TEMPERATURE, MAX_TEMPERATURE)
            next_q = _calibrate(p, unit, next_x, preferences)
            next_cost = cost(next_x, next_q)
            if next_cost < current:
                break
        else:
            break
        gain, x, q, current = current - next_cost, next_x, next_q, next_cost
        if gain < 1e-9:
            break
    log_weights = tuple(x[-K:].tolist())
    if preferences is None:
        return Calibration(float(1 / x[0]), log_weights)
    if not x[1] > 0:  # preferences do not help; a negative weight would be an artefact
        return _fit_penalized(p, truth, unit, None)
    return Calibration(float(1 / x[0]), log_weights, min(float(x[1]), MAX_USER_WEIGHT))


def _derivatives(
    p: FloatArray, q: FloatArray, truth: IntArray, unit: FloatArray, preferences: FloatArray | None
) -> _Derivatives:
    """Return the derivatives at the calibrated distributions q.

    A parameter moves log q by its feature (log p, the preference, or the indicator of a level),
    minus its projection onto v, which the tilt takes back to keep the mean.
    """
    n, K = p.shape
    features = [np.log(p, where=p > 0, out=np.zeros_like(p))]  # each (n, K)
    features += [] if preferences is None else [preferences]
    F, rows = len(features), np.arange(n)
    offset = unit - (q @ unit)[:, None]  # (n, K)
    variance = np.sum(q * np.square(offset), axis=1)  # (n,)
    scaled = np.divide(1.0, variance, where=variance > 0, out=np.zeros(n))
    centered = [feature - np.sum(q * feature, axis=1, keepdims=True) for feature in features]
    weighted = [q * feature for feature in centered]  # covariances with each level, (n, K)
    parts = [np.sum(feature * unit, axis=1) for feature in weighted]
    along = np.column_stack([*parts, q * offset])  # covariances with v. (n, J)

    pull = scaled * offset[rows, truth]  # (n,)
    at_truth = np.bincount(truth, minlength=K) - q.sum(0)  # (K,)
    of_features = [feature[rows, truth].sum() for feature in centered]
    observed = np.concatenate([of_features, at_truth])  # (J,)
    gradient = -(observed - pull @ along) / n

    information = np.empty((F + K, F + K))
    information[:F, :F] = [[np.sum(a * b) for b in features] for a in weighted]
    information[:F, F:] = [feature.sum(0) for feature in weighted]
    information[F:, :F] = information[:F, F:].T
    information[F:, F:] = np.diag(q.sum(0)) - q.T @ q
    information -= along.T @ (scaled[:, None] * along)
    return _Derivatives(gradient, information / n)


def _calibrate(
    p: FloatArray,
    unit: FloatArray,
    x: FloatArray,
    preferences: FloatArray | None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Apply parameters x: 1/T, c with preferences, and log_weights. `out` may be p itself."""
    out, K = np.empty_like(p) if out is None else out, p.shape[1]
    for start in range(0, len(p), _CHUNK):
        part = slice(start, start + _CHUNK)
        with np.errstate(divide="ignore"):
            scores = np.log(p[part]) * x[0] + x[-K:]
        if preferences is not None:
            scores += x[1] * preferences[part]
        out[part] = tilt_to_mean(scores, unit, p[part])
    return out


def unit_values(values: FloatArray) -> FloatArray:
    """Return a scale's values, shifted and scaled to 0..1, (K,)."""
    return np.asarray((values - values[0]) / (values[-1] - values[0]))


def _check_preferences(preferences: FloatArray, p: FloatArray) -> FloatArray:
    if preferences.shape != p.shape or not np.isfinite(preferences).all():
        raise PredictionError(
            f"preferences have shape {preferences.shape}; give finite ones of shape {p.shape}, a "
            "row for each distribution"
        )
    return preferences


def _normalize(p: FloatArray) -> FloatArray:
    """Return a copy whose rows sum to 1 exactly, not within a float32's rounding error."""
    normalized: FloatArray = p / p.sum(1, keepdims=True)
    return normalized
