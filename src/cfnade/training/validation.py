"""How good weights are on the validation part, given the training part."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.calibration.calibration import Calibration, fit_calibration
from cfnade.components import Axis, Member
from cfnade.data.dataset import Dataset
from cfnade.evaluation.rating_metrics import calibration_error, nll, rmse
from cfnade.fitted_model import FittedModel
from cfnade.inference.scorer import Scorer
from cfnade.training.loop import Validated
from cfnade.training.pooling import Answered, Replies, pooled

MOST = 500_000
"""About how many validation ratings are looked at after an epoch; more take longer than it does."""

WORSE = 0.001
"""Nats that a calibration for new people too may cost those of whom much is known."""

ENOUGH = 300
"""Replies about people as new ones, for a calibration of their own."""


def score_by(fitted: FittedModel, valid: Dataset) -> Callable[[Member], Validated] | None:
    """How good weights are on the validation part, given the training part."""
    if len(valid) == 0:
        return None
    valid = _trained(looked_at(valid, fitted.axes), fitted.context)
    scorer, values, stars = Scorer(fitted), valid.values, valid.scale.array()
    near = _Near()

    def score(weights: Member) -> Validated:
        asked = scorer.with_members(near(weights))
        with np.errstate(all="ignore"):  # huge weights give no probabilities
            chances = asked.probabilities(valid.users, valid.items, valid.times)
        if not np.isfinite(chances).all():
            return Validated(math.nan, math.nan)
        return Validated(rmse(values, chances @ stars), nll(chances, valid.levels))

    return score


class _Near:
    """Weights on the CPU, where models answer; those of another device in a copy that is kept."""

    def __init__(self) -> None:
        self._copy: Member | None = None

    def __call__(self, weights: Member) -> Member:
        state = weights.state_dict()
        if all(tensor.device.type == "cpu" for tensor in state.values()):
            return weights
        if self._copy is None:
            self._copy = deepcopy(weights).to("cpu")
        self._copy.load_state_dict(state)
        return self._copy


def looked_at(valid: Dataset, axes: tuple[Axis, ...]) -> Dataset:
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


FEW = 0.1
"""Part of the validation ratings that may be left out between epochs."""


def _trained(valid: Dataset, context: Dataset) -> Dataset:
    """Without ratings by users or of items that training knows nothing of, if they are few.

    To fold these in takes longer than an epoch of a small file, and tells nothing of the weights.
    """
    known = (context.counts("user") > 0)[valid.users] & (context.counts("item") > 0)[valid.items]
    return valid.select(known) if known.any() and (~known).mean() <= FEW else valid


class Calibrated(NamedTuple):
    """What fits a model's answers of the validation part, and how good they are."""

    known: Calibration
    new: Calibration | None
    """For people asked about as new ones; None: as for the others."""
    metrics: dict[str, Any]


def calibrated(answers: Replies, valid: Dataset, *, apart: bool) -> Calibrated:
    """The calibration for people who were trained on, and that for new ones.

    They are apart if the model has weights for people, and so none for new ones. To a model without
    them both are alike: one calibration, fitted on what is asked from few and from all, serves
    both, unless that costs those of whom much is known.
    """
    stars, everything, few = valid.scale.array(), answers.everything, answers.few
    calibration, raw, new = _of(everything, stars), everything.probabilities, None
    if few is not None and apart and len(few.levels) >= ENOUGH:
        new = _of(few, stars)
    elif few is not None and not apart:
        for_few_too, asked = _of(pooled(everything, few), stars), (raw, valid.levels, stars)
        least = calibration.nll(*asked, everything.leanings)
        if for_few_too.nll(*asked, everything.leanings) <= least + WORSE:
            calibration = for_few_too
    after = calibration.apply(raw, stars, everything.leanings)
    metrics = {"rmse": rmse(valid.values, raw @ stars)}
    for name, measure in (("nll", nll), ("calibration_error", calibration_error)):
        metrics[f"{name}_raw"] = measure(raw, valid.levels)
        metrics[name] = measure(after, valid.levels)
    # A level that the model held impossible has no finite likelihood, and JSON no infinity.
    finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
    return Calibrated(calibration, new, finite)


def _of(asked: Answered, stars: npt.NDArray[np.float64]) -> Calibration:
    return fit_calibration(asked.probabilities, asked.levels, stars, asked.leanings)
