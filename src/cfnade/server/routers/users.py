"""Stored ratings of users, recommendations from them, tokens and erasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from cfnade.online.event_store import AppendResult, Event, StoredRating
from cfnade.server import schemas
from cfnade.server.auth import Authenticator, UserId, require_service, require_user
from cfnade.server.bodies import JsonRoute
from cfnade.server.dependencies import Model, Pool, Ratings, json_response
from cfnade.server.errors import ApiError, problem_responses
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import (
    check_different,
    check_rating,
    id_index,
    item_names,
    rank_items,
    rating_levels,
    resolve_stored_user,
    unknown_item,
    user_index,
)
from cfnade.server.routers.inference import ranking_rows

Row = dict[str, Any]
_BODY = (408, 413)
User = Annotated[str, Depends(require_user)]

router = APIRouter(
    prefix="/users/{user_id}",
    tags=["users"],
    route_class=JsonRoute,
    responses=problem_responses(422, 503, 504),
)
token_router = APIRouter(prefix="/users/{user_id}", tags=["users"], route_class=JsonRoute)
"""Routes of a service with a key."""


@router.get("/ratings", response_model=schemas.UserRatingsResponse)
async def list_ratings(user: User, model: Model, ratings: Ratings) -> Response:
    """Return the current ratings of a user."""
    stored = await ratings.ratings(model, user)
    in_training_data = bool(stored) and user_index(model.predictor, user) >= 0
    rows = [
        _rating_row(model, rating.item_id, rating.rating, rating.timestamp) for rating in stored
    ]
    return json_response(
        dict, {"user_id": user, "in_training_data": in_training_data, "ratings": rows}
    )


@router.post(
    "/ratings",
    response_model=schemas.ChangedRatingsResponse,
    responses=problem_responses(*_BODY),
)
async def add_ratings(
    user: User, body: schemas.StoredRatingsRequest, model: Model, ratings: Ratings
) -> Response:
    """Store several ratings of a user; unknown items are named in the response."""
    if not model.predictor.fitted.rates:
        raise ApiError(422, "this model knows no ratings; PUT each item without one")
    rating_levels(model.predictor, body.ratings)
    names = item_names(body.ratings)
    items = await ratings.find_items(model, [str(name) for name in names])
    check_different([item for item in items if item is not None])
    events = [
        Event(user, item, "rating", entry["rating"])
        for entry, item in zip(body.ratings, items, strict=True)
        if item is not None
    ]
    results = await ratings.append(model, events)
    unknown = [name for name, item in zip(names, items, strict=True) if item is None]
    rows = [
        _changed_row(model, event, result) for event, result in zip(events, results, strict=True)
    ]
    return json_response(dict, {"ratings": rows, "unknown_items": unknown})


@router.put(
    "/ratings/{item_id:path}",
    response_model=schemas.ChangedRatingResponse,
    responses=problem_responses(404, *_BODY),
)
async def put_rating(
    user: User,
    item_id: schemas.ItemPath,
    body: schemas.StoredRatingRequest,
    model: Model,
    ratings: Ratings,
) -> Response:
    """Store the rating of an item, in place of an earlier one; it is durable when answered."""
    check_rating(model.predictor, body.rating)
    (item,) = await ratings.find_items(model, [item_id])
    if item is None:
        raise unknown_item(item_id, "item_id")
    event = Event(user, item, "interaction" if body.rating is None else "rating", body.rating)
    (result,) = await ratings.append(model, [event])
    return json_response(_changed_row, model, event, result)


@router.delete("/ratings/{item_id:path}", status_code=204)
async def delete_rating(
    user: User, item_id: schemas.ItemPath, model: Model, ratings: Ratings
) -> None:
    """Withdraw a rating."""
    (item,) = await ratings.find_items(model, [item_id])
    await ratings.append(model, [Event(user, item_id if item is None else item, "withdrawal")])


@router.delete("", status_code=204, dependencies=[Depends(require_service)])
async def erase_user(user_id: UserId, ratings: Ratings) -> None:
    """Erase everything that is stored about a user."""
    await ratings.erase_user(user_id)


@router.get("/recommendations", response_model=schemas.UserRecommendationResponse)
async def recommend(
    user: User,
    query: Annotated[schemas.UserRankingQuery, Query()],
    model: Model,
    ratings: Ratings,
    pool: Pool,
) -> Response:
    """Return the top-n items for a user, from their current ratings."""
    stored = await ratings.ratings(model, user)
    return await pool.run(json_response, user_recommendations, model, user, stored, query)


@token_router.post(
    "/tokens",
    status_code=201,
    response_model=schemas.TokenResponse,
    responses=problem_responses(*_BODY, 422),
    dependencies=[Depends(require_service)],
)
async def issue_token(
    request: Request, user_id: UserId, body: schemas.TokenRequest
) -> schemas.TokenResponse:
    """Issue a token with which a user may read and change their own ratings."""
    authenticator: Authenticator = request.app.state.authenticator
    token = authenticator.issue_token(user_id, body.expires_in)
    return schemas.TokenResponse(
        access_token=token, token_type="Bearer", expires_in=body.expires_in
    )


# -- computed in a thread ------------------------------------------------------------------------


def user_recommendations(
    model: LoadedModel,
    user_id: str,
    stored: Sequence[StoredRating],
    query: schemas.UserRankingQuery,
) -> Row:
    predictor = model.predictor
    user = resolve_stored_user(predictor, user_id, stored)
    indices = [id_index(predictor.items, rating.item_id) for rating in stored]
    rated = [predictor.items.raw(index) for index in indices if index >= 0]
    top, unknown = rank_items(
        model, user, query, rated=rated if query.exclude_seen else (), texts=True
    )
    n_user_ratings = len(stored) if user.history is None else len(user.history)
    return ranking_rows(model, top, unknown) | {"n_user_ratings": n_user_ratings}


# -- rows ----------------------------------------------------------------------------------------


def _rating_row(model: LoadedModel, item: str, rating: float | None, timestamp: int) -> Row:
    """Return a stored rating, with the id and title that the model has for the item."""
    index, titles = id_index(model.predictor.items, item), model.predictor.catalog.titles
    raw = item if index < 0 else model.predictor.items.raw(index)
    title = None if index < 0 or titles is None else titles[index] or None
    return {"item": raw, "title": title, "rating": rating, "timestamp": timestamp}


def _changed_row(model: LoadedModel, event: Event, result: AppendResult) -> Row:
    row = _rating_row(model, event.item_id, event.rating, result.timestamp)
    in_model = id_index(model.predictor.items, event.item_id) >= 0
    return row | {"changed": result.event_id is not None, "in_model": in_model}
