"""Predictions, recommendations, explanations and items to rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Response

from cfnade._typing import IntArray
from cfnade.evaluation.rating_metrics import quantiles
from cfnade.inference.predictor import Predictor
from cfnade.inference.query import Entities
from cfnade.inference.results import UserTopN
from cfnade.server import schemas
from cfnade.server.auth import CurrentPrincipal, require_own_data
from cfnade.server.bodies import JsonRoute
from cfnade.server.dependencies import Model, Pool, json_response
from cfnade.server.errors import ApiError, problem_responses
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import (
    ResolvedUser,
    find_items,
    rank_items,
    resolve_item,
    resolve_new_items,
    resolve_user,
)
from cfnade.utils.cancellation import check_cancelled

Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
_TAIL = 0.1
"""Probability beyond either end of an interval."""
_RATING_CONTRIBUTION = ("item", "title", "count", "rating", "prediction_without", "difference")
_INTERACTION_CONTRIBUTION = ("item", "title", "rating", "prediction_without", "lift")
_RATING_FIELDS = ("prediction", "std", "median", "interval", "probabilities", "baseline")

router = APIRouter(
    tags=["inference"],
    route_class=JsonRoute,
    responses=problem_responses(404, 408, 413, 422, 503, 504),
)


@router.post("/predictions", response_model=schemas.PredictionResponse)
async def predict(
    query: schemas.PredictionRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return the distribution of a user's rating of each item."""
    new_items = query.new_items or None
    require_own_data(principal, {"user_id": query.user_id, "new_items": new_items})
    return await pool.run(json_response, predictions, model, query)


@router.post("/recommendations", response_model=schemas.RecommendationResponse)
async def recommend(
    query: schemas.RecommendationRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return the top-n items for a user."""
    require_own_data(principal, {"user_id": query.user_id})
    return await pool.run(json_response, recommendations, model, query)


@router.post("/explanations", response_model=schemas.ExplanationResponse)
async def explain(
    query: schemas.ExplanationRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return how much each rating or interaction changes a prediction: each left out, exactly."""
    require_own_data(principal, {"user_id": query.user_id})
    return await pool.run(json_response, explanation, model, query)


@router.post("/items-to-rate", response_model=schemas.ItemsToRateResponse)
async def suggest_items_to_rate(
    query: schemas.ItemsToRateRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return the items whose ratings would tell most about a user."""
    require_own_data(principal, {"user_id": query.user_id})
    return await pool.run(json_response, items_to_rate, model, query)


# -- computed in a thread ------------------------------------------------------------------------


def predictions(model: LoadedModel, query: schemas.PredictionRequest) -> Row:
    predictor = model.predictor
    if not predictor.fitted.rates:
        raise ApiError(
            422, "this model knows no ratings to predict; POST /recommendations ranks items"
        )
    user = resolve_user(predictor, query)
    _check_timestamp(predictor, query.timestamp)
    new = resolve_new_items(predictor, query.new_items) if query.new_items else {}
    different = list(dict.fromkeys(query.items))
    found = find_items(predictor, [item for item in different if item not in new])
    known = {item: index for item, index in found.items() if index is not None}
    predicted = _predicted(predictor, user, list(known.values()), query.timestamp)
    rows = dict(zip(known, predicted, strict=True))
    for item in different:
        if item in new:
            check_cancelled()
            rows[item] = _new_item_row(predictor, user, item, new[item])
    return {
        "predictions": [rows[item] for item in query.items if item in rows],
        "unknown_items": [item for item in query.items if item not in rows],
        "ignored": user.ignored,
    }


def recommendations(model: LoadedModel, query: schemas.RecommendationRequest) -> Row:
    user = resolve_user(model.predictor, query)
    top, unknown = rank_items(model, user, query)
    return ranking_rows(model, top, unknown) | {"ignored": user.ignored}


def explanation(model: LoadedModel, query: schemas.ExplanationRequest) -> Row:
    predictor = model.predictor
    user = resolve_user(predictor, query)
    index = resolve_item(predictor, query.item)
    (row,) = named_rows(predictor, np.array([index]))
    frame = predictor.explain(
        item=row["item"],
        user=user.user,
        history=user.history,
        target=query.target,
    )
    lines = frame.to_dicts()
    answer = row | {"prediction": None, "interaction_probability": None, "ignored": user.ignored}
    columns: tuple[str, ...] = _RATING_CONTRIBUTION
    if "lift" in frame.columns:
        columns = _INTERACTION_CONTRIBUTION
        answer["interaction_probability"] = lines[0]["interaction_probability"] if lines else None
        lines = [{"rating": None} | line for line in lines]
    else:
        (answer["prediction"],) = _predicted(predictor, user, [index])
    contributions = [{name: line[name] for name in columns if name in line} for line in lines]
    return answer | {"contributions": contributions}


def items_to_rate(model: LoadedModel, query: schemas.ItemsToRateRequest) -> Row:
    predictor = model.predictor
    user = resolve_user(predictor, query)
    found = find_items(predictor, query.exclude_items or [])
    excluded = np.array([index for index in found.values() if index is not None], np.int64)
    questions = predictor.interview.questions(user.as_known(predictor), query.n, excluded)
    rows = zip(catalog_rows(model, questions.items), questions.reductions.tolist(), strict=True)
    return {
        "items": [row | {"uncertainty_reduction": _or_null(by)} for row, by in rows],
        "uncertainty": _or_null(questions.unknown),
        "unknown_items": [item for item, index in found.items() if index is None],
        "ignored": user.ignored,
    }


# -- rows ----------------------------------------------------------------------------------------


def ranking_rows(model: LoadedModel, top: UserTopN, unknown: list[Any]) -> Row:
    """Return a ranking, with the items of its filters that are unknown."""
    return {
        "items": _recommended_rows(model, top),
        "n_hidden_items": top.n_hidden_items,
        "min_ratings": top.min_ratings,
        "unknown_items": unknown,
    }


def _recommended_rows(model: LoadedModel, top: UserTopN) -> list[Row]:
    predictor = model.predictor
    if predictor.fitted.rates:
        values = top.predictions, top.probabilities, top.n_item_ratings
        rows = _prediction_rows(predictor, top.items, *values)
    else:
        empty = dict.fromkeys(_RATING_FIELDS)
        counts = top.n_item_ratings.tolist()
        rows = [
            row | empty | {"n_item_ratings": count}
            for row, count in zip(named_rows(predictor, top.items), counts, strict=True)
        ]
    probabilities = [None] * len(rows) if top.picks is None else top.picks.tolist()
    genres = [model.metadata.genres[item] for item in top.items.tolist()]
    columns = zip(rows, top.scores.tolist(), probabilities, genres, strict=True)
    return [
        row | {"rank": rank, "score": score, "interaction_probability": probability, "genres": own}
        for rank, (row, score, probability, own) in enumerate(columns, 1)
    ]


def catalog_rows(model: LoadedModel, indices: IntArray) -> list[Row]:
    """Return items with the number of their training ratings."""
    rows, counts = named_rows(model.predictor, indices), model.counts[indices].tolist()
    return [row | {"n_item_ratings": count} for row, count in zip(rows, counts, strict=True)]


def named_rows(predictor: Predictor, indices: IntArray) -> list[Row]:
    """Return items by raw id and title."""
    titles, raws = predictor.catalog.titles, predictor.items.table[indices].tolist()
    names = [None] * len(raws) if titles is None else titles[indices].tolist()
    return [{"item": raw, "title": name or None} for raw, name in zip(raws, names, strict=True)]


def _predicted(
    predictor: Predictor, user: ResolvedUser, indices: list[int], timestamp: int | None = None
) -> list[Row]:
    if not indices:
        return []
    found = predictor.predicted(
        np.array(indices), user.user, history=user.history, timestamp=timestamp
    )
    return _prediction_rows(
        predictor, found.items, found.predictions, found.probabilities, found.n_item_ratings
    )


def _new_item_row(predictor: Predictor, user: ResolvedUser, name: int | str, item: Entities) -> Row:
    found = predictor.predicted_of_new(item, user.user, history=user.history)
    rows = [{"item": name, "title": None}]
    values = found.predictions, found.probabilities, found.n_item_ratings
    return _distribution_rows(predictor, rows, *values, [None])[0]


def _prediction_rows(
    predictor: Predictor,
    indices: IntArray,
    means: FloatArray,
    probabilities: FloatArray,  # (n, K)
    counts: IntArray,
) -> list[Row]:
    """Return predictions of items, with how all users rated them."""
    baseline = predictor.baseline[indices].tolist()
    rows = named_rows(predictor, indices)
    return _distribution_rows(predictor, rows, means, probabilities, counts, baseline)


def _distribution_rows(
    predictor: Predictor,
    rows: list[Row],
    means: FloatArray,
    probabilities: FloatArray,  # (n, K)
    counts: IntArray,
    baseline: list[Any],
) -> list[Row]:
    """Describe distributions column by column, which costs little for a list of 500."""
    values = predictor.scale.array()
    low, median, high = quantiles(probabilities, values, np.array([_TAIL, 0.5, 1 - _TAIL]))
    deviations = np.square(values - means[:, None])
    columns = {
        "prediction": means.tolist(),
        "std": np.sqrt((probabilities * deviations).sum(1)).tolist(),
        "median": median.tolist(),
        "interval": list(zip(low.tolist(), high.tolist(), strict=True)),
        "probabilities": probabilities.tolist(),
        "baseline": baseline,
        "n_item_ratings": counts.tolist(),
    }
    lines = zip(rows, *columns.values(), strict=True)
    return [row | dict(zip(columns, line, strict=True)) for row, *line in lines]


def _check_timestamp(predictor: Predictor, timestamp: int | None) -> None:
    if predictor.fitted.needs_times and timestamp is None:
        raise ApiError(
            422,
            "this model uses timestamps: give timestamp, in seconds since 1970",
            field="timestamp",
        )
    if timestamp is not None and not predictor.fitted.needs_times:
        raise ApiError(422, "this model uses no timestamps; leave timestamp out", field="timestamp")


def _or_null(number: float) -> float | None:
    return None if np.isnan(number) else number
