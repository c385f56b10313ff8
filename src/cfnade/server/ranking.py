"""Rankings as requests ask for them."""

from __future__ import annotations

from typing import Any

from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankBy
from cfnade.inference.results import UserTopN
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import ResolvedUser
from cfnade.server.schemas import RankingFields


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
    return model.predictor.ranked(
        user.user,
        history=user.history,
        n=options.n,
        exclude_seen=options.exclude_seen,
        rank_by=options.rank_by,
        balance=options.balance,
        threshold=options.threshold,
        personalization=options.personalization,
        min_ratings=options.min_ratings,
        candidate_items=_in_decades(model, candidates, options.decades),
        exclude_items=excluded,
        genres=options.genres,
        diversity=options.diversity,
        popularity_penalty=options.popularity_penalty,
    )


def _in_decades(
    model: LoadedModel, candidates: list[Any] | None, decades: list[int] | None
) -> list[Any] | None:
    """Return the candidates of these decades."""
    if decades is None:
        return candidates
    raws = model.predictor.items.table[model.metadata.in_decades(decades)].tolist()
    return raws if candidates is None else [raw for raw in raws if raw in set(candidates)]
