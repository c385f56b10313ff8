"""Predictions, recommendations, explanations and items to rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from cfnade._typing import IntArray
from cfnade.evaluation.rating_metrics import quantiles
from cfnade.inference.predictor import Predictor
from cfnade.inference.results import Predictions, TopN
from cfnade.server import schemas
from cfnade.server.auth import CurrentPrincipal, require_own_data
from cfnade.server.errors import ApiError, problem_responses
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import (
    find_items,
    rank_items,
    resolve_item,
    resolve_new_items,
    resolve_user,
)
from cfnade.server.routing import JsonRoute, Model, Pool, json_response
from cfnade.utils.cancellation import check_cancelled

Row = dict[str, Any]
_TAIL = 0.1
"""Probability beyond either end of an interval."""
_CONTRIBUTION = {"item", "title", "count", "rating", "prediction_without", "difference", "lift"}
_DISTRIBUTION = ("prediction", "std", "median", "interval", "probabilities", "baseline")

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
    require_own_data(principal, user_id=query.user_id, new_items=query.new_items or None)
    return await pool.run(json_response, predictions, model, query)


@router.post("/recommendations", response_model=schemas.RecommendationResponse)
async def recommend(
    query: schemas.RecommendationRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return the top-n items for a user."""
    require_own_data(principal, user_id=query.user_id)
    return await pool.run(json_response, recommendations, model, query)


@router.post("/explanations", response_model=schemas.ExplanationResponse)
async def explain(
    query: schemas.ExplanationRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return how much each rating or interaction changes a prediction: each left out, exactly."""
    require_own_data(principal, user_id=query.user_id)
    return await pool.run(json_response, explanation, model, query)


@router.post("/items-to-rate", response_model=schemas.ItemsToRateResponse)
async def suggest_items_to_rate(
    query: schemas.ItemsToRateRequest, principal: CurrentPrincipal, model: Model, pool: Pool
) -> Response:
    """Return the items whose ratings would tell most about a user."""
    require_own_data(principal, user_id=query.user_id)
    return await pool.run(json_response, items_to_rate, model, query)


# -- computed in a thread ------------------------------------------------------------------------


def predictions(model: LoadedModel, query: schemas.PredictionRequest) -> Row:
    predictor = model.predictor
    if not predictor.fitted.predicts_ratings:
        raise ApiError(
            422, "this model knows no ratings to predict; POST /recommendations ranks items"
        )
    if predictor.fitted.needs_times and query.timestamp is None:
        reason = "this model uses timestamps: give timestamp, in seconds since 1970"
        raise ApiError(422, reason, field="timestamp")
    if query.timestamp is not None and not predictor.fitted.needs_times:
        reason = "this model uses no timestamps; leave timestamp out"
        raise ApiError(422, reason, field="timestamp")
    user = resolve_user(predictor, query)
    entities = user.entities(predictor)
    new_items = resolve_new_items(predictor, query.new_items) if query.new_items else {}
    indices = find_items(predictor, [item for item in query.items if item not in new_items])
    indices = {item: index for item, index in indices.items() if index >= 0}
    rows = {}
    if indices:
        items = np.array([*indices.values()])
        result = predictor.predict_items(entities, items, query.timestamp)
        rows = dict(zip(indices, prediction_rows(predictor, result), strict=True))
    for name in new_items.keys() & set(query.items):
        check_cancelled()
        new = predictor.predict_new_item(entities, new_items[name])
        (row,) = prediction_rows(predictor, new)
        rows[name] = row | {"item": name, "title": None, "baseline": None}
    return {
        "predictions": [rows[item] for item in query.items if item in rows],
        "unknown_items": [item for item in query.items if item not in rows],
        "ignored": user.ignored,
    }


def recommendations(model: LoadedModel, query: schemas.RecommendationRequest) -> Row:
    user = resolve_user(model.predictor, query)
    top, unknown = rank_items(model, user, query)
    return ranking(model, top) | {"unknown_items": unknown, "ignored": user.ignored}


def explanation(model: LoadedModel, query: schemas.ExplanationRequest) -> Row:
    predictor = model.predictor
    user = resolve_user(predictor, query)
    item = np.array([resolve_item(predictor, query.item)])
    (row,) = item_rows(predictor, item)
    entities = user.entities(predictor)
    frame = predictor.explain(entities, int(item[0]), query.target)
    lines = frame.to_dicts()
    contributions = [
        {name: value for name, value in line.items() if name in _CONTRIBUTION} for line in lines
    ]
    row |= {"prediction": None, "interaction_probability": None, "ignored": user.ignored}
    if "lift" in frame.columns:  # an interaction is explained
        row["interaction_probability"] = lines[0]["interaction_probability"] if lines else None
        contributions = [{"rating": None} | line for line in contributions]
    else:
        result = predictor.predict_items(entities, item)
        (row["prediction"],) = prediction_rows(predictor, result)
    return row | {"contributions": contributions}


def items_to_rate(model: LoadedModel, query: schemas.ItemsToRateRequest) -> Row:
    predictor = model.predictor
    user = resolve_user(predictor, query)
    found = find_items(predictor, query.exclude_items or [])
    excluded = np.array([index for index in found.values() if index >= 0], np.int64)
    entities = user.entities(predictor)
    suggested = predictor.suggest_items_to_rate(entities, query.n, excluded)
    items = item_rows(predictor, suggested.items, suggested.n_item_ratings)
    rows = zip(items, suggested.reductions.tolist(), strict=True)
    return {
        "items": [row | {"uncertainty_reduction": _or_null(by)} for row, by in rows],
        "uncertainty": _or_null(suggested.uncertainty),
        "unknown_items": [item for item, index in found.items() if index < 0],
        "ignored": user.ignored,
    }


# -- rows ----------------------------------------------------------------------------------------


def ranking(model: LoadedModel, top: TopN) -> Row:
    """Return a ranking as the service writes it."""
    rows = prediction_rows(model.predictor, top)
    probabilities = top.interaction_probabilities
    interactions = [None] * len(rows) if probabilities is None else probabilities.tolist()
    genres = [model.metadata.genres[item] for item in top.items.tolist()]
    columns = zip(rows, top.scores.tolist(), interactions, genres, strict=True)
    items = [
        row
        | {"rank": rank, "score": score, "interaction_probability": probability, "genres": names}
        for rank, (row, score, probability, names) in enumerate(columns, 1)
    ]
    return {
        "items": items,
        "n_hidden_items": int(top.n_hidden_items[0]),
        "min_ratings": top.min_ratings,
    }


def prediction_rows(predictor: Predictor, result: Predictions | TopN) -> list[Row]:
    """Return predictions of items, with the baseline: how all users rated them.

    Column by column, which costs little for a list of 500. Null for a model without ratings.
    """
    rows = item_rows(predictor, result.items, result.n_item_ratings)
    if not predictor.fitted.predicts_ratings:
        empty = dict.fromkeys(_DISTRIBUTION)
        return [row | empty for row in rows]
    means, probabilities, values = (
        result.predictions,
        result.probabilities,
        predictor.scale.array(),
    )
    low, median, high = quantiles(probabilities, values, np.array([_TAIL, 0.5, 1 - _TAIL]))
    variances = (probabilities * np.square(values - means[:, None])).sum(1)
    columns = zip(
        means.tolist(),
        np.sqrt(variances).tolist(),
        median.tolist(),
        zip(low.tolist(), high.tolist(), strict=True),
        probabilities.tolist(),
        predictor.baseline[result.items].tolist(),
        strict=True,
    )
    return [
        row | dict(zip(_DISTRIBUTION, line, strict=True))
        for row, line in zip(rows, columns, strict=True)
    ]


def item_rows(
    predictor: Predictor, indices: IntArray, n_ratings: IntArray | None = None
) -> list[Row]:
    """Return items by raw id and title, and with their numbers of ratings if these are given."""
    titles, raws = predictor.catalog.titles, predictor.items.table[indices].tolist()
    names = [None] * len(raws) if titles is None else titles[indices].tolist()
    rows = [{"item": raw, "title": name or None} for raw, name in zip(raws, names, strict=True)]
    if n_ratings is None:
        return rows
    counts = n_ratings.tolist()
    return [row | {"n_item_ratings": count} for row, count in zip(rows, counts, strict=True)]


def _or_null(number: float) -> float | None:
    return None if np.isnan(number) else number
