"""Predictions of the validation part, and the calibration fitted to them.

A model that conditions on a few ratings is in another state than with hundreds. Calibration is
fitted to both: some validation users are predicted again as new users with 1, 5, 20 and 80 ratings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration, fit_calibration
from cfnade.calibration.per_user import LevelPreferences
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray
from cfnade.evaluation.rating_metrics import calibration_error, nll, rmse
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Entities, KnownRatings, Query
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]

HISTORY_SIZES = (1, 5, 20, 80)
MAX_NEW_USERS, MAX_NEW_USER_RATINGS = 300, 12_000
"""Maximum users predicted as new ones, and ratings of theirs that calibration uses."""

KNOWN_PER_NEW = 3
"""Predictions for known users per prediction for a new one, when one calibration serves both."""

MAX_NLL_INCREASE = 0.001
"""Nats that known users may lose by a calibration that also suits new users."""

MIN_NEW_USER_RATINGS = 300
"""Minimum predictions for new users to fit a calibration to them alone."""


class Predictions(NamedTuple):
    """Distributions of some ratings before calibration."""

    probabilities: FloatArray  # (n, K)
    levels: LevelArray  # (n,) true levels
    preferences: FloatArray  # (n, K) of the user for each level

    def sample(self, count: int) -> Predictions:
        """Return evenly spaced predictions."""
        indices = np.arange(count) * len(self.levels) // count
        return Predictions(
            self.probabilities[indices], self.levels[indices], self.preferences[indices]
        )


class ValidationPredictions(NamedTuple):
    """Predictions of the validation part, from full and from short histories."""

    known: Predictions
    new: Predictions | None
    """Some users predicted as new ones; None for a model that cannot fold in histories."""


class CalibrationResult(NamedTuple):
    """The calibration of an ensemble, and its validation metrics."""

    known: Calibration | None
    new: Calibration | None
    """For new users; None if `known` is for them too."""
    metrics: dict[str, Any]


# -- predictions -----------------------------------------------------------------------------------


def predict_validation(model: FittedModel, valid: Dataset, *, seed: int) -> ValidationPredictions:
    """Return the predictions of a model; the seed samples the short histories."""
    folds_in = model.takes_histories and not model.needs_times
    new = predict_as_new_users(model, valid, seed=seed) if folds_in else None
    return ValidationPredictions(predict_known_users(model, valid), new)


def predict_known_users(model: FittedModel, valid: Dataset) -> Predictions:
    """Return predictions of the validation ratings, given the whole context."""
    users, items = valid.users.astype(np.int64), valid.items.astype(np.int64)
    probabilities = Scorer(model).probabilities(users, items, valid.times)
    preferences = LevelPreferences(model).for_query(Query.of_pairs(model.context, users, items))
    return Predictions(probabilities, valid.levels, preferences)


def predict_as_new_users(model: FittedModel, valid: Dataset, *, seed: int) -> Predictions:
    """Return predictions of validation ratings, given a few of each user's ratings."""
    rows = valid.rows("user")
    stored = Entities.of_dataset(model.context, "user")
    histories, parts = list[KnownRatings](), [np.empty(0, np.int64)]
    for user in sample_users(valid, seed).tolist():
        entries = np.arange(rows.offsets[user], rows.offsets[user + 1])
        for history in short_histories(stored.ratings(user), user, seed):
            histories.append(history)
            parts.append(entries)
    user_numbers = np.repeat(np.arange(len(histories)), [len(entries) for entries in parts[1:]])
    entries = np.concatenate(parts)
    items, levels = rows.columns[entries].astype(np.int64), rows.levels[entries]
    if not histories:
        K = len(valid.scale)
        return Predictions(np.empty((0, K)), levels, np.empty((0, K)))
    new, n_items, K = [-1] * len(histories), model.context.n_items, len(valid.scale)
    users = Entities.of_histories(new, histories, n_items, K)
    query = Query.of_users(model.context, users, user_numbers, items)
    preferences = LevelPreferences(model).for_query(query)
    return Predictions(Scorer(model).rating_probabilities(query), levels, preferences)


def sample_users(valid: Dataset, seed: int) -> IntArray:
    """Return at most MAX_NEW_USERS users of the validation part, in ascending order."""
    users = np.unique(valid.users).astype(np.int64)
    return np.sort(np.random.default_rng((seed, 0)).permutation(users)[:MAX_NEW_USERS])


def short_histories(history: KnownRatings, user: int, seed: int) -> Iterator[KnownRatings]:
    """Yield nested samples of a user's ratings, of each size below the whole."""
    order = np.random.default_rng((seed, 1, user)).permutation(len(history[1]))
    for size in HISTORY_SIZES:
        if size < len(order):
            yield history[0][order[:size]], history[1][order[:size]]


def mix_predictions(
    predictions: Sequence[ValidationPredictions], weights: Sequence[tuple[float, float]]
) -> ValidationPredictions:
    """Return the predictions of an ensemble with these weights for known and for new users."""
    known = [
        (prediction.known, weight)
        for prediction, (weight, _) in zip(predictions, weights, strict=True)
    ]
    weighted = [
        (prediction.new, weight)
        for prediction, (_, weight) in zip(predictions, weights, strict=True)
        if weight
    ]
    new = [(prediction, weight) for prediction, weight in weighted if prediction is not None]
    return ValidationPredictions(
        _mixture(known), _mixture(new) if new and len(new) == len(weighted) else None
    )


def _mixture(predictions: Sequence[tuple[Predictions, float]]) -> Predictions:
    first, weight = predictions[0]
    if len(predictions) == 1 and weight == 1:
        return first
    total = sum(weight * prediction.probabilities for prediction, weight in predictions)
    return first._replace(probabilities=np.asarray(total))


def pool_predictions(known: Predictions, new: Predictions) -> Predictions:
    """Return KNOWN_PER_NEW predictions for known users with each for a new one.

    Only those for known users if there are too few of either.
    """
    count = min(len(new.levels), MAX_NEW_USER_RATINGS, len(known.levels) // KNOWN_PER_NEW)
    if count == 0:
        return known
    prediction, new_sample = known.sample(KNOWN_PER_NEW * count), new.sample(count)
    return Predictions(
        np.concatenate([prediction.probabilities, new_sample.probabilities]),
        np.concatenate([prediction.levels, new_sample.levels]),
        np.concatenate([prediction.preferences, new_sample.preferences]),
    )


# -- calibration -----------------------------------------------------------------------------------


def calibrate(
    predictions: ValidationPredictions, valid: Dataset, *, knows_users: bool
) -> CalibrationResult:
    """Fit calibration to the predictions of an ensemble.

    Args:
        predictions: Those of the ensemble.
        valid: The validation part.
        knows_users: Whether the model has parameters of each user, which new users lack. It then
            has a second calibration for new users. Otherwise one calibration, fitted to short and
            full histories, serves both, unless known users lose by it.
    """
    stars, (known, new) = valid.scale.array(), predictions
    raw, calibration, for_new = known.probabilities, _fit(known, stars), None
    if new is not None and knows_users and len(new.levels) >= MIN_NEW_USER_RATINGS:
        for_new = _fit(new, stars)
    elif new is not None and not knows_users:
        pooled = _fit(pool_predictions(known, new), stars)
        truth = raw, valid.levels, stars, known.preferences
        if pooled.nll(*truth) <= calibration.nll(*truth) + MAX_NLL_INCREASE:
            calibration = pooled
    calibrated = calibration.apply(raw, stars, known.preferences)
    metrics = {"rmse": rmse(valid.values, raw @ stars)}
    for name, metric in (("nll", nll), ("calibration_error", calibration_error)):
        metrics[f"{name}_raw"] = metric(raw, valid.levels)
        metrics[name] = metric(calibrated, valid.levels)
    # A level with probability 0 has an infinite NLL, which JSON cannot hold.
    finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
    return CalibrationResult(calibration, for_new, finite)


def _fit(predictions: Predictions, stars: FloatArray) -> Calibration:
    return fit_calibration(
        predictions.probabilities, predictions.levels, stars, predictions.preferences
    )
