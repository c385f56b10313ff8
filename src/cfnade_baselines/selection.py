"""Early stopping: of the states that a fit passes through, keep the best on validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade_baselines.base import RatingPredictor

EVALUATE_EVERY = 5
"""Epochs between evaluations, for models whose evaluation costs as much as an epoch."""


def select_by_validation(
    model: RatingPredictor,
    states: Iterable[Mapping[str, Any]],
    valid: Dataset,
    *,
    remedy: str,
    until_worse: bool = False,
) -> None:
    """Set the learned attributes of `model` to the state with the least squared error on `valid`.

    Args:
        model: Gets each state in turn to predict with it.
        states: Learned attributes by name; arrays must not change afterwards.
        valid: Validation ratings; if empty, the last state is kept.
        remedy: Ends the message of the error that is raised if no state gives finite predictions.
        until_worse: Stop at the first state that is worse than the one before.
    """
    best, least = None, np.inf
    for state in states:
        model._set(**state)
        errors = model.predict(valid.users, valid.items) - valid.values
        error = float(np.square(errors).sum())
        if error < least or len(valid) == 0:
            best, least = state, error
        elif until_worse:
            break
    if best is None:
        raise TrainingError(f"the fit diverged: no prediction is a finite number; {remedy}")
    model._set(**best)
