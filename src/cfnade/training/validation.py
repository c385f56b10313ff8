"""How good weights are on the validation part, given the training part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.calibration import Calibration
from cfnade.calibration import fit as fit_calibration
from cfnade.data.ratings import Ratings
from cfnade.fitted import FittedModel
from cfnade.metrics import calibration_error, nll, rmse
from cfnade.scorer import Scorer
from cfnade.sides import Axis, Member
from cfnade.training.loop import Validated
from cfnade.training.pooling import Answered, Replies, pooled

MOST = 500_000
"""About how many validation ratings are looked at after an epoch; more take longer than it does."""

WORSE = 0.001
"""Nats that a calibration for new people too may cost those of whom much is known."""


def score_by(fitted: FittedModel, valid: Ratings) -> Callable[[Member], Validated] | None:
    """How good weights are on the validation part, given the training part."""
    if len(valid) == 0:
        return None
    valid = looked_at(valid, fitted.axes)
    scorer, values, stars = Scorer(fitted), valid.values, valid.scale.array()

    def score(weights: Member) -> Validated:
        asked = scorer.with_members(weights)
        chances = asked.probabilities(valid.users, valid.items, valid.times)
        if not np.isfinite(chances).all():  # weights may be so large that none come of them
            return Validated(math.nan, math.nan)
        return Validated(rmse(values, chances @ stars), nll(chances, valid.levels))

    return score


def looked_at(valid: Ratings, axes: tuple[Axis, ...]) -> Ratings:
    """All of it, or if that is much the ratings of some rows (of both kinds, if both are read).

    Whole rows, because a row's context costs more than the cells that are asked of it.
    """
    share = MOST / max(1, len(valid))
    if share >= 1:
        return valid
    random, kept = np.random.default_rng(0), np.ones(len(valid), bool)
    indices = {"user": (valid.users, valid.n_users), "item": (valid.items, valid.n_items)}
    for axis in axes:
        index, count = indices[axis]
        kept &= (random.random(count) < share ** (1 / len(axes)))[index]
    return valid.select(kept)


def calibrated(answers: Replies, valid: Ratings) -> tuple[Calibration, dict[str, Any]]:
    """The calibration that fits what a model says of the validation part, and what both give."""
    stars, everything = valid.scale.array(), answers.everything
    calibration, raw = _of(everything, stars), everything.probabilities
    after = calibration.apply(raw, stars, everything.leanings)
    if answers.few is not None:
        for_few_too = _of(pooled(everything, answers.few), stars)
        then = for_few_too.apply(raw, stars, everything.leanings)
        if nll(then, valid.levels) <= nll(after, valid.levels) + WORSE:
            calibration, after = for_few_too, then
    metrics = {"rmse": rmse(valid.values, raw @ stars)}
    for name, measure in (("nll", nll), ("calibration_error", calibration_error)):
        metrics[f"{name}_raw"] = measure(raw, valid.levels)
        metrics[name] = measure(after, valid.levels)
    # A level that the model held impossible has no finite likelihood, and JSON no infinity.
    return calibration, {name: v if math.isfinite(v) else None for name, v in metrics.items()}


def _of(asked: Answered, stars: npt.NDArray[np.float64]) -> Calibration:
    return fit_calibration(asked.probabilities, asked.levels, stars, asked.leanings)
