"""How good weights are on the validation part, given the training part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cfnade.bundle import Bundle, Sides, Single
from cfnade.calibration import Calibration
from cfnade.calibration import fit as fit_calibration
from cfnade.cells import Cells
from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError
from cfnade.metrics import calibration_error, nll, rmse

MOST = 500_000
"""About how many validation ratings are looked at after an epoch; more take longer than it does."""


def scorer(bundle: Bundle, valid: Ratings) -> Callable[[Single], float] | None:
    """The RMSE of weights on the validation part, given the training part."""
    if len(valid) == 0:
        return None
    valid = looked_at(valid, bundle.side)
    cells, values = Cells(bundle), valid.values
    stars = valid.scale.array()

    def score(weights: Single) -> float:
        try:
            asked = cells.with_model(weights)
            found = asked.probabilities(valid.users, valid.items, valid.times)
            return rmse(values, found @ stars)
        except ModelError:  # weights so large that no probabilities come of them
            return math.nan

    return score


def looked_at(valid: Ratings, side: Sides) -> Ratings:
    """All of it, or if that is much the ratings of some rows (with side "both": and columns).

    Whole rows, because a row's context costs more than the cells that are asked of it.
    """
    share = MOST / max(1, len(valid))
    if share >= 1:
        return valid
    random, kept = np.random.default_rng(0), np.ones(len(valid), bool)
    indices = {"user": (valid.users, valid.n_users), "item": (valid.items, valid.n_items)}
    names = ["user", "item"] if side == "both" else [side]
    for name in names:
        index, count = indices[name]
        kept &= (random.random(count) < share ** (1 / len(names)))[index]
    return valid.select(kept)


def calibrated(bundle: Bundle, valid: Ratings) -> tuple[Calibration | None, dict[str, Any]]:
    """The calibration that fits the validation part, and what both give there."""
    if len(valid) == 0:
        return None, {}
    raw = Cells(bundle).probabilities(valid.users, valid.items, valid.times)
    stars = valid.scale.array()
    calibration = fit_calibration(raw, valid.levels, stars)
    after = calibration.apply(raw, stars)
    metrics = {"rmse": rmse(valid.values, raw @ stars)}
    for name, measure in (("nll", nll), ("calibration_error", calibration_error)):
        metrics[f"{name}_raw"] = measure(raw, valid.levels)
        metrics[name] = measure(after, valid.levels)
    # A level that the model held impossible has no finite likelihood, and JSON no infinity.
    return calibration, {name: v if math.isfinite(v) else None for name, v in metrics.items()}
