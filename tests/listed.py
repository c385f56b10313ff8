"""Lists as tests look at them: the scores of every item, for each person."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.queries import NOTHING

from cfnade.calibration.calibration import Calibration
from cfnade.calibration.per_user import Calibrator
from cfnade.data.dataset import Ratings
from cfnade.data.scale import Scale
from cfnade.inference.query import Entities, KnownRatings
from cfnade.inference.ranking_options import Objective
from cfnade.inference.scorer import ItemScores, Scorer
from cfnade.inference.top_n import RankedItems, rank_by_ratings


def lines(scorer: Scorer, people: Entities, *, leave_out: bool = True) -> npt.NDArray[Any]:
    """Scores whose softmax are distributions, (people, items, K)."""
    every = np.arange(scorer.fitted.context.n_items)
    return scorer.item_scores(people, every, leave_one_out=leave_out).scores()


def best_of(
    scores: npt.NDArray[Any],
    allowed: npt.NDArray[np.bool_],
    n: int,
    by: Objective,
    calibration: Calibration | None,
    *,
    rated: KnownRatings = NOTHING,
    among: Any = None,
) -> RankedItems:
    """The best of one line of scores (M, K), of somebody among the users of a fitted model."""
    told: Any = among or SimpleNamespace(
        calibration=calibration,
        calibration_of_new=None,
        context=no_ratings(*scores.shape),
        takes_histories=False,
        new=lambda users: users < 0,
    )
    M, K = scores.shape
    user = Entities.of_histories([-1], [rated], M, K)
    lists, context = ItemScores(user, [scores[None]], np.ones((1, 1))), no_ratings(M, K)
    return rank_by_ratings(lists, context, allowed[None].copy(), n, by, Calibrator(told))


def no_ratings(n_items: int, K: int) -> Any:
    """A data set without ratings."""
    return Ratings(
        users=np.empty(0, np.int32),
        items=np.empty(0, np.int32),
        levels=np.empty(0, np.uint8),
        scale=Scale(tuple(float(k) for k in range(1, K + 1))),
        user_ids=np.arange(1),
        item_ids=np.arange(n_items),
    )
