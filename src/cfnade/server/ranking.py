"""Rankings as requests ask for them: criteria, filters and personalization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cfnade.inference.objectives import RankBy as PredictorRankBy
from cfnade.inference.predictor import Predictor
from cfnade.inference.results import UserTopN
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import ResolvedUser
from cfnade.server.schemas import RankBy, RankingFields

_CRITERIA: dict[RankBy, PredictorRankBy] = {
    "interaction": "picked",
    "prediction": "expected",
    "threshold": "at_least",
}


def criteria(predictor: Predictor) -> list[RankBy]:
    """Return what items may be ranked by, the default first."""
    interaction: list[RankBy] = ["interaction"] * (predictor.fitted.interaction_model is not None)
    ratings: list[RankBy] = ["prediction", "threshold"]
    return [*interaction, *(ratings if predictor.fitted.rates else [])]


def rank_items(
    model: LoadedModel,
    user: ResolvedUser,
    options: RankingFields,
    candidates: list[Any] | None,
    excluded: list[Any] | None,
) -> UserTopN:
    """Return the top-n items for a user; candidates and excluded items are raw ids."""
    predictor = model.predictor
    if options.personalization is not None:
        _check_personalization(predictor, options)
    top = predictor.ranked(
        user.user,
        history=user.history,
        # By another criterion any item may be the best.
        n=options.n if options.personalization is None else len(predictor.items.table),
        exclude_seen=options.exclude_seen,
        rank=None if options.rank_by is None else _CRITERIA[options.rank_by],
        taste=options.balance,
        threshold=options.threshold,
        min_ratings=options.min_ratings,
        items=_in_decades(model, candidates, options.decades),
        without=excluded,
        genres=options.genres,
        diversity=options.diversity,
        popularity_penalty=options.popularity_penalty,
    )
    if options.personalization is None:
        return top
    return _personalized(predictor, top, options.personalization, options.n)


def _check_personalization(predictor: Predictor, options: RankingFields) -> None:
    rank_by = options.rank_by or criteria(predictor)[0]
    if rank_by != "prediction" or options.diversity:
        raise ApiError(
            422,
            'personalization goes with rank_by "prediction" and without diversity; leave one out',
            field="personalization",
        )


def _in_decades(
    model: LoadedModel, candidates: list[Any] | None, decades: list[int] | None
) -> list[Any] | None:
    """Return the candidates of these decades."""
    if decades is None:
        return candidates
    raws = model.predictor.items.table[model.metadata.in_decades(decades)].tolist()
    return raws if candidates is None else [raw for raw in raws if raw in set(candidates)]


def _personalized(predictor: Predictor, top: UserTopN, weight: float, n: int) -> UserTopN:
    """Rank all items by their average plus `weight` times what the user differs from it."""
    averages = predictor.usual[top.items] @ predictor.scale.array()
    scores = averages + weight * (top.predictions - averages)
    first = np.argsort(-scores, kind="stable")[:n]
    return replace(
        top,
        items=top.items[first],
        scores=scores[first],
        predictions=top.predictions[first],
        probabilities=top.probabilities[first],
        known_of_items=top.known_of_items[first],
    )
