"""Which of the states that a fit goes through is kept: the one that validation likes best."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade_baselines.base import F, Fitted

LOOK = 5
"""Epochs between looks at validation, where a look costs much beside an epoch."""


def best_by_validation(
    states: Iterable[F], valid: Dataset, *, cure: str, until_worse: bool = False
) -> F:
    """The state with the least squared error on `valid`, or the last if that is empty.

    With `until_worse` no further state is asked for once one is worse than the one before. A fit
    without a state that predicts numbers is an error that ends with `cure`.
    """
    best, least = None, np.inf
    for state in states:
        error = _squared_error(state, valid)
        if error < least or len(valid) == 0:
            best, least = state, error
        elif until_worse:
            break
    if best is None:
        raise TrainingError(f"the fit diverged: no prediction is a number; {cure}")
    return best


def _squared_error(state: Fitted, valid: Dataset) -> float:
    return float(np.square(state.predict(valid.users, valid.items) - valid.values).sum())
