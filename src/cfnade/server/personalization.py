"""Lists by what is special to somebody: people's average of an item, plus so many times what the
person differs from it. Once is the expected rating, none is everybody's list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfnade.inference.predictor import Predictor
from cfnade.inference.results import UserTopN
from cfnade.server.errors import ApiError
from cfnade.server.schemas import RecommendIn


def length_to_rank(predictor: Predictor, asked: RecommendIn) -> int:
    """How many items are to be ranked at first: by another measure any of them may be the best."""
    if asked.own is None:
        return asked.n
    usual = "expected" if predictor.fitted.interaction_model is None else "picked"
    if (asked.rank or usual) != "expected" or asked.diversity:
        raise ApiError(
            422, 'own goes with rank "expected" and without diversity; leave one out', where="own"
        )
    return len(predictor.items.table)


def weighed(predictor: Predictor, best: UserTopN, asked: RecommendIn) -> UserTopN:
    """The list as it was asked for; it holds all items if it is to be ranked anew."""
    if asked.own is None:
        return best
    usual = predictor.usual[best.items] @ predictor.scale.array()
    scores = usual + asked.own * (best.predictions - usual)
    first = np.argsort(-scores, kind="stable")[: asked.n]
    return replace(
        best,
        items=best.items[first],
        scores=scores[first],
        predictions=best.predictions[first],
        probabilities=best.probabilities[first],
        known_of_items=best.known_of_items[first],
    )
