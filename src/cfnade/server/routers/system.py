"""The model, health and metrics."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from cfnade import __version__
from cfnade.inference.ranking_options import CRITERIA
from cfnade.server import schemas
from cfnade.server.auth import require_service
from cfnade.server.errors import problem_responses
from cfnade.server.metrics import CONTENT_TYPE
from cfnade.server.model_registry import LoadedModel
from cfnade.server.routing import Model, Pool, Settings, json_response
from cfnade.server.settings import MAX_ITEMS, MAX_N, MAX_RATINGS, ServerSettings

router = APIRouter(tags=["system"])
open_router = APIRouter(tags=["system"])
"""Routes that need no key."""


@router.get("/model", response_model=schemas.ModelResponse, responses=problem_responses(503, 504))
async def get_model(model: Model, settings: Settings, pool: Pool) -> Response:
    """Return what the model can do, the limits of the service, and example users."""
    return await pool.run(json_response, describe_model, model, settings)


@open_router.get("/health", response_model=schemas.HealthResponse, responses=problem_responses(503))
@open_router.head("/health", include_in_schema=False)
async def get_health(_: Model) -> Response:
    """Return 200 if the service can answer."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/metrics", include_in_schema=False, dependencies=[Depends(require_service)])
async def get_metrics(request: Request) -> Response:
    """Return metrics for Prometheus; those of the store may take a moment to read."""
    text = await asyncio.to_thread(request.app.state.metrics.text)
    return Response(text, headers={"content-type": CONTENT_TYPE})


def describe_model(model: LoadedModel, settings: ServerSettings) -> dict[str, Any]:
    predictor, fitted = model.predictor, model.predictor.fitted
    learned = {
        "interaction": fitted.interaction_model is not None,
        "prediction": fitted.predicts_ratings,
        "threshold": fitted.predicts_ratings,
    }
    return {
        "name": model.name,
        "version": __version__,
        "fingerprint": model.fingerprint,
        "loaded_at": model.loaded_at.isoformat(timespec="seconds"),
        "side": fitted.side,
        "capabilities": {
            "ratings": fitted.predicts_ratings,
            "interactions": fitted.interaction_model is not None,
            "new_users": fitted.takes_histories and not fitted.needs_times,
            "recommendations": not fitted.needs_times,
            "titles": predictor.catalog.titles is not None,
            "stored_ratings": settings.store_url is not None,
            "tokens": settings.api_key is not None,
        },
        "scale": list(predictor.scale.values) if fitted.predicts_ratings else [],
        "n_items": len(predictor.items.table),
        "min_ratings": predictor.default_min_ratings,
        "limits": {
            "ratings": MAX_RATINGS,
            "n": MAX_N,
            "items": MAX_ITEMS,
            "body_bytes": settings.limits.body_bytes,
        },
        "rank_by": [criterion for criterion in CRITERIA if learned[criterion]],
        "genres": list(predictor.genres),
        "decades": model.metadata.decades,
        "item_name": settings.item_name or model.metadata.item_name,
        "sample_profiles": model.sample_profiles,
    }
