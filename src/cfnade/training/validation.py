"""Validation: scores of weights, gains of components without training, and the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from cfnade.components import Axis, Member, RatingComponent
from cfnade.components.optimizers import network_arrays
from cfnade.data.dataset import Dataset
from cfnade.evaluation.rating_metrics import nll, rmse
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Query
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]

MAX_RATINGS = 500_000
"""Approximate maximum of ratings that an epoch is scored on; more take longer than the epoch."""

MAX_UNSEEN_FRACTION = 0.1
"""Fraction of the validation ratings that scores between epochs may leave out."""

SHRINKAGE = 5.0
"""Pseudo-ratings at the mean of every item and user of the baseline."""

NEWTON_STEPS = 20
GAIN_PRIOR = 2.0
"""Weight of a gain of 0, in squared levels, against noise in a small validation part."""


# -- scores of weights -----------------------------------------------------------------------------


def validation_scorer(
    model: FittedModel, valid: Dataset
) -> Callable[[nn.Module], dict[str, float]] | None:
    """Return a function that gives RMSE and NLL of weights, conditioned on the training part."""
    if len(valid) == 0:
        return None
    valid = _without_unseen(scored_ratings(valid, model.axes), model.context)
    scorer, values, stars = Scorer(model), valid.values, valid.scale.array()
    member = model.members[0]

    def score(network: nn.Module) -> dict[str, float]:
        weighted = scorer.with_members(member.with_arrays(network_arrays(network)))
        with np.errstate(all="ignore"):  # huge weights give no probabilities
            probabilities = weighted.probabilities(valid.users, valid.items, valid.times)
        if not np.isfinite(probabilities).all():
            return {"rmse": math.nan, "nll": math.nan}
        return {
            "rmse": rmse(values, probabilities @ stars),
            "nll": nll(probabilities, valid.levels),
        }

    return score


def scored_ratings(valid: Dataset, axes: tuple[Axis, ...]) -> Dataset:
    """Return the ratings of some rows (of both axes, if both are read), about MAX_RATINGS.

    Whole rows, because the context of a row costs more than predictions of its cells.
    """
    fraction = MAX_RATINGS / max(1, len(valid))
    if fraction >= 1:
        return valid
    random, mask = np.random.default_rng(0), np.ones(len(valid), bool)
    indices = {"user": (valid.users, valid.n_users), "item": (valid.items, valid.n_items)}
    for axis in axes:
        index, count = indices[axis]
        mask &= (random.random(count) < fraction ** (1 / len(axes)))[index]
    return valid.select(mask)


def _without_unseen(valid: Dataset, context: Dataset) -> Dataset:
    """Return the ratings of users and items with training ratings, if few others are lost.

    To fold the others in takes longer than an epoch of a small file, and does not depend on the
    weights.
    """
    seen = (context.counts("user") > 0)[valid.users] & (context.counts("item") > 0)[valid.items]
    few = seen.any() and (~seen).mean() <= MAX_UNSEEN_FRACTION
    return valid.select(seen) if few else valid


# -- gains -----------------------------------------------------------------------------------------


def fit_component_gains(model: FittedModel, valid: Dataset) -> None:
    """Find the gains of the components that have them, in place, for a model of one member.

    Such a component (neighborhood) adds scores k·(g·c + h) of levels k and is not trained. The
    gains g and one shift h minimize the squared error of the validation part. A negative gain
    would reverse a correction, so it becomes 0. Without validation, gains stay as they are.
    """
    components = [
        component for component in model.members[0].components.values() if component.tunes
    ]
    if not components or not len(valid):
        return
    users, items = valid.users.astype(np.int64), valid.items.astype(np.int64)
    _set_gains(components, np.zeros(len(components) + 1))
    plain = Scorer(model).probabilities(users, items, valid.times)
    corrections = [_corrections(component, model, users, items) for component in components]
    features = np.column_stack([*corrections, np.ones(len(users))])
    _set_gains(components, least_squares_gains(plain, features, valid))


def copy_gains(source: Member, target: Member) -> None:
    """Copy the gains that validation found to a member that is fitted to all ratings."""
    for old, new in zip(source.components.values(), target.components.values(), strict=True):
        if old.tunes:
            _set_gain(new, float(old.arrays["gain"]), float(old.arrays["shift"]))


def _set_gain(component: RatingComponent, gain: float, shift: float) -> None:
    component.arrays["gain"][...], component.arrays["shift"][...] = gain, shift


def _set_gains(components: list[RatingComponent], gains: FloatArray) -> None:
    """Set all gains, and the shift of the first component."""
    for number, component in enumerate(components):
        _set_gain(component, float(gains[number]), float(gains[-1]) if number == 0 else 0.0)


def _corrections(
    component: RatingComponent,
    model: FittedModel,
    users: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
) -> FloatArray:
    """Return c of cells, (n,): what a gain of 1 adds from one level to the next."""
    _set_gain(component, 1.0, 0.0)
    query = Query.of_pairs(model.context, users, items)
    axis = component.axis or "user"
    scores = component.scorer(query.entities(axis)[0].rows).score_pairs(query.pairs(axis))
    _set_gain(component, 0.0, 0.0)
    return np.asarray(scores[:, 1], np.float64)


def least_squares_gains(plain: FloatArray, features: FloatArray, valid: Dataset) -> FloatArray:
    """Return weights of features (n, F) by Gauss-Newton, (F,); all but the last at least 0."""
    k, truth = np.arange(plain.shape[1]), valid.levels.astype(np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(plain)
    used = np.ones(features.shape[1], bool)
    while True:
        gains = np.zeros(len(used))
        for _ in range(NEWTON_STEPS):
            tilted = logs + (features @ gains)[:, None] * k
            probabilities = np.exp(tilted - tilted.max(1, keepdims=True))
            probabilities /= probabilities.sum(1, keepdims=True)
            means = probabilities @ k
            variances = probabilities @ np.square(k) - np.square(means)
            gradient = features[:, used] * variances[:, None]
            hessian = gradient.T @ gradient + GAIN_PRIOR * np.eye(used.sum())
            descent = gradient.T @ (truth - means) - GAIN_PRIOR * gains[used]
            gains[used] += np.linalg.solve(hessian, descent)
        negative = np.flatnonzero(gains[:-1] < 0)
        if not len(negative):
            return gains
        used[negative] = False


# -- baseline --------------------------------------------------------------------------------------


def baseline_rmse(train: Dataset, valid: Dataset) -> float:
    """Return the RMSE of mean + item offset + user offset, shrunk and clipped to the scale."""
    stars, counts = train.scale.array(), train.level_counts("item")
    mean = float(counts.sum(0) @ stars / len(train))
    items = counts @ (stars - mean) / (counts.sum(1) + SHRINKAGE)
    counts = train.level_counts("user")
    explained = np.zeros(train.n_users)  # Σ item offsets of the items that each user rated
    for users, rated in train.chunks("users", "items"):
        explained += np.bincount(users, items[rated], train.n_users)
    users = (counts @ (stars - mean) - explained) / (counts.sum(1) + SHRINKAGE)
    predictions = np.clip(mean + items[valid.items] + users[valid.users], stars[0], stars[-1])
    return rmse(valid.values, predictions)


def warn_below_baseline(metadata: Mapping[str, Any]) -> str | None:
    """Return a warning if the baseline predicts the validation part as well as the model."""
    valid = metadata.get("valid") or {}
    if valid.get("rmse") is None or round(valid["rmse"], 4) <= round(valid["means_rmse"], 4):
        return None
    return (
        f"on the validation part the model (RMSE {valid['rmse']:.4f}) is no better than plain "
        f"means of users and items ({valid['means_rmse']:.4f}); there may be too few ratings to "
        "learn from"
    )
