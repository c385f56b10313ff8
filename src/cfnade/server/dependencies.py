"""What the routes take from the application: the model, threads and stored ratings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request, Response
from pydantic_core import to_json

from cfnade.server.model_registry import LoadedModel, ModelRegistry
from cfnade.server.settings import ServerSettings
from cfnade.server.worker_pool import WorkerPool

if TYPE_CHECKING:
    from cfnade.server.user_ratings import UserRatings
else:  # its module needs SQLAlchemy, which only a service with a store imports
    UserRatings = Any


async def current_model(request: Request) -> LoadedModel:
    """Return the model that is served now; a request keeps it until it is answered."""
    registry: ModelRegistry = request.app.state.registry
    return registry.current()


async def worker_pool(request: Request) -> WorkerPool:
    pool: WorkerPool = request.app.state.pool
    return pool


async def server_settings(request: Request) -> ServerSettings:
    settings: ServerSettings = request.app.state.settings
    return settings


async def user_ratings(request: Request) -> Any:
    return request.app.state.user_ratings


Model = Annotated[LoadedModel, Depends(current_model)]
Pool = Annotated[WorkerPool, Depends(worker_pool)]
Settings = Annotated[ServerSettings, Depends(server_settings)]
Ratings = Annotated[UserRatings, Depends(user_ratings)]


def json_response(function: Callable[..., Any], *args: object) -> Response:
    """Call a function and write what it returns as JSON: both in the thread of the caller."""
    return Response(to_json(function(*args)), media_type="application/json")
