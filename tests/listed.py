"""Lists as tests look at them: the scores of every item, for each person."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.calibration.calibration import Calibration
from cfnade.calibration.per_user import Calibrator
from cfnade.components.base import NOTHING, Row, Who
from cfnade.inference.lists import Lists
from cfnade.inference.objectives import Objective
from cfnade.inference.results import RankedItems
from cfnade.inference.scorer import Scorer
from cfnade.inference.top_n import best


def lines(scorer: Scorer, people: Sequence[Who], *, leave_out: bool = True) -> npt.NDArray[Any]:
    """Scores whose softmax are distributions, (people, items, K)."""
    every = np.arange(scorer.fitted.context.n_items)
    return scorer.lists(people, every, leave_out=leave_out).scores()


def best_of(
    scores: npt.NDArray[Any],
    allowed: npt.NDArray[np.bool_],
    n: int,
    by: Objective,
    calibration: Calibration | None,
    *,
    rated: Row = NOTHING,
    among: Any = None,
) -> RankedItems:
    """The best of one line of scores (M, K), of somebody among the users of a fitted model."""
    told: Any = among or SimpleNamespace(
        calibration=calibration,
        calibration_of_new=None,
        context=SimpleNamespace(scale=by.scale),
        takes_histories=False,
        new=lambda users: users < 0,
    )
    lists = Lists([Who(-1, rated)], [scores[None]], np.ones((1, 1)))
    return best(lists, allowed[None].copy(), n, by, Calibrator(told))
