"""Stored ratings of users, recommendations from them, tokens and erasure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from cfnade.online.event_store import Event, StoredRating
from cfnade.server import schemas
from cfnade.server.auth import Authenticator, UserId, require_service, require_user
from cfnade.server.errors import ApiError, problem_responses
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import (
    check_rating,
    id_index,
    id_of_text,
    item_names,
    rank_items,
    resolve_stored_user,
    unknown_item,
    user_index,
)
from cfnade.server.routers.inference import ranking
from cfnade.server.routing import JsonRoute, Model, Pool, Ratings, json_response
from cfnade.server.user_ratings import KnownItem, UserRatings

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
    titles = await ratings.titles(model, [rating.item_id for rating in stored])
    rows = [
        {
            "item": id_of_text(model.predictor.items, rating.item_id),
            "title": titles.get(rating.item_id),
            "rating": rating.rating,
            "timestamp": rating.timestamp,
        }
        for rating in stored
    ]
    in_training_data = bool(stored) and user_index(model.predictor, user) >= 0
    answer = {"user_id": user, "in_training_data": in_training_data, "ratings": rows}
    return json_response(dict, answer)


@router.post(
    "/ratings",
    response_model=schemas.ChangedRatingsResponse,
    responses=problem_responses(*_BODY),
)
async def add_ratings(
    user: User, body: schemas.StoredRatingsRequest, model: Model, ratings: Ratings
) -> Response:
    """Store several ratings of a user; unknown items are named in the response."""
    if not model.predictor.fitted.predicts_ratings:
        raise ApiError(422, "this model knows no ratings; PUT each item without one")
    for position, entry in enumerate(body.ratings):
        check_rating(model.predictor, entry["rating"], f"ratings[{position}].rating")
    names = item_names(body.ratings)
    found = await ratings.find_items(model, [str(name) for name in names])
    items = [item for item in found if item is not None]
    for item, count in Counter(items).items():
        if count > 1:
            detail = f"ratings: item {item.item_id!r} is there more than once; give it once"
            raise ApiError(422, detail, field="ratings")
    values = [
        entry["rating"] for entry, item in zip(body.ratings, found, strict=True) if item is not None
    ]
    rows = await _store_ratings(user, items, values, model, ratings)
    unknown = [name for name, item in zip(names, found, strict=True) if item is None]
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
    (row,) = await _store_ratings(user, [item], [body.rating], model, ratings)
    return json_response(dict, row)


async def _store_ratings(
    user: str,
    items: Sequence[KnownItem],
    values: Sequence[float | None],
    model: LoadedModel,
    ratings: UserRatings,
) -> list[Row]:
    """Store ratings, or interactions (None), and return them as they are stored."""
    events = [
        Event(user, item.item_id, "interaction" if value is None else "rating", value)
        for item, value in zip(items, values, strict=True)
    ]
    results = await ratings.append(model, events)
    ids = model.predictor.items
    return [
        {
            "item": id_of_text(ids, item.item_id),
            "title": item.title,
            "rating": event.rating,
            "timestamp": result.timestamp,
            "changed": result.event_id is not None,
            "in_model": id_index(ids, item.item_id) >= 0,
        }
        for item, event, result in zip(items, events, results, strict=True)
    ]


@router.delete("/ratings/{item_id:path}", status_code=204)
async def delete_rating(
    user: User, item_id: schemas.ItemPath, model: Model, ratings: Ratings
) -> None:
    """Withdraw a rating."""
    (item,) = await ratings.find_items(model, [item_id])
    stored_id = item_id if item is None else item.item_id
    await ratings.append(model, [Event(user, stored_id, "withdrawal")])


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


def user_recommendations(
    model: LoadedModel,
    user_id: str,
    stored: Sequence[StoredRating],
    query: schemas.UserRankingQuery,
) -> Row:
    predictor = model.predictor
    user = resolve_stored_user(predictor, user_id, stored)
    indices = [id_index(predictor.items, rating.item_id) for rating in stored]
    seen = [predictor.items.raw(index) for index in indices if index >= 0 and query.exclude_seen]
    top, unknown = rank_items(model, user, query, seen=seen, texts=True)
    n_user_ratings = len(stored) if user.history is None else len(user.history)
    return ranking(model, top) | {"n_user_ratings": n_user_ratings, "unknown_items": unknown}


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
