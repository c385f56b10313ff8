"""The catalog: search, matching, similar items, the map, and registration."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Response

from cfnade.server import schemas
from cfnade.server.auth import require_service
from cfnade.server.errors import problem_responses
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import id_index, id_of_text, resolve_item_path
from cfnade.server.routers.inference import item_rows
from cfnade.server.routing import JsonRoute, Model, Pool, Ratings, json_response
from cfnade.utils.cancellation import check_cancelled

Row = dict[str, Any]
_BODY, _COMPUTED = (408, 413, 422), (503, 504)

router = APIRouter(tags=["items"], route_class=JsonRoute)
store_router = APIRouter(tags=["items"], route_class=JsonRoute)
"""Routes of a service with an event store."""


@router.get(
    "/items",
    response_model=schemas.ItemSearchResponse,
    responses=problem_responses(422, *_COMPUTED),
)
async def search_items(
    query: Annotated[schemas.ItemSearchQuery, Query()], model: Model, pool: Pool
) -> Response:
    """Find items by title; typing errors, accents, case and "The" are ignored."""
    return await pool.run(json_response, found_items, model, query)


@router.post(
    "/items/match",
    response_model=schemas.MatchResponse,
    responses=problem_responses(*_BODY, *_COMPUTED),
)
async def match_items(query: schemas.MatchRequest, model: Model, pool: Pool) -> Response:
    """Return the items that titles from elsewhere mean; null rather than a wrong one."""
    return await pool.run(json_response, matches, model, query)


@router.get(
    "/items/{item_id:path}/similar",
    response_model=schemas.SimilarItemsResponse,
    responses=problem_responses(404, 422, *_COMPUTED),
)
async def list_similar_items(
    item_id: schemas.ItemPath,
    query: Annotated[schemas.SimilarItemsQuery, Query()],
    model: Model,
    pool: Pool,
) -> Response:
    """Return the items that are most similar to one; `item_id` may be a title."""
    return await pool.run(json_response, similar_items, model, item_id, query.n)


@router.get(
    "/item-map", response_model=schemas.ItemMapResponse, responses=problem_responses(*_COMPUTED)
)
async def get_item_map(model: Model, pool: Pool) -> Response:
    """Return the most rated items in two dimensions, similar ones close together."""
    return await pool.run(json_response, map_items, model)


@store_router.put(
    "/items/{item_id:path}",
    response_model=schemas.RegisteredItem,
    responses=problem_responses(*_BODY, *_COMPUTED),
    dependencies=[Depends(require_service)],
)
async def register_item(
    item_id: schemas.ItemPath, item: schemas.ItemRequest, model: Model, ratings: Ratings
) -> Response:
    """Register an item in the store, so that users may rate it before the model knows it."""
    await ratings.register_item(item_id, item.title, item.genres)
    items = model.predictor.items
    row = {
        "item": id_of_text(items, item_id),
        "title": item.title,
        "genres": item.genres,
        "in_model": id_index(items, item_id) >= 0,
    }
    return json_response(dict, row)


# -- computed in a thread ------------------------------------------------------------------------


def found_items(model: LoadedModel, query: schemas.ItemSearchQuery) -> Row:
    text, catalog = query.q.strip(), model.predictor.catalog
    if not text:
        indices = model.popular[: query.limit]
    elif catalog.titles is None:  # ids that begin so, the most rated first
        raws = model.predictor.items.table[model.popular].tolist()
        matching = [position for position, raw in enumerate(raws) if str(raw).startswith(text)]
        indices = model.popular[matching[: query.limit]]
    else:
        indices, _ = catalog.search(text, query.limit)
    return {
        "items": item_rows(model.predictor, indices, model.counts[indices]),
        "query": query.q,
    }


def matches(model: LoadedModel, query: schemas.MatchRequest) -> Row:
    predictor = model.predictor
    titles = [(entry.title, entry.year) for entry in query.items]
    rows: dict[tuple[str, int | None], Row | None] = {}
    for title in dict.fromkeys(titles):
        check_cancelled()
        index = predictor.catalog.match(*title)
        rows[title] = None if index is None else item_rows(predictor, np.array([index]))[0]
    return {"matches": [rows[title] for title in titles]}


def similar_items(model: LoadedModel, item_id: str, n: int) -> Row:
    predictor = model.predictor
    index = resolve_item_path(predictor, item_id)
    (row,) = item_rows(predictor, np.array([index]))
    frame = predictor.similar_items(index, n)
    metric = "cosine" if predictor.fitted.interaction_model is None else "lift"
    return row | {"metric": metric, "items": frame.to_dicts()}


def map_items(model: LoadedModel) -> Row:
    indices, positions = model.item_map
    items = item_rows(model.predictor, indices, model.counts[indices])
    genres = [model.metadata.genres[index] for index in indices.tolist()]
    rows = zip(items, positions.tolist(), genres, strict=True)
    return {"items": [item | {"x": x, "y": y, "genres": names} for item, (x, y), names in rows]}
