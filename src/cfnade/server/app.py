"""The service as an ASGI application: its addresses, their schema, and what stands before them.

A question takes the current model once and is answered in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from cfnade import __version__
from cfnade.server import schemas, visit_schemas
from cfnade.server.bodies import JsonRoute
from cfnade.server.errors import add_handlers
from cfnade.server.metrics import KIND, Metrics, add_model_figures
from cfnade.server.middleware import (
    OPEN,
    RequestLimitsMiddleware,
    SecurityHeadersMiddleware,
    TrustedHostMiddleware,
)
from cfnade.server.model_registry import LoadedModel, ModelRegistry, keep_fresh
from cfnade.server.pages import add_pages
from cfnade.server.request_log import RequestLogMiddleware, Style
from cfnade.server.routers import inference as answers
from cfnade.server.settings import Limits, WorkerPool
from cfnade.server.stored import Stored

_WORTHWHILE = 500
"""Bytes from which compression pays: lists shrink to a fifth."""
_BODY, _WORK = (408, 413, 415, 422), (503, 504)
_ABOUT = {
    401: "The key is missing or wrong.",
    403: "The token is a person's, who may not ask that.",
    404: "The model does not know the user or item.",
    408: "The body took too long to arrive.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    422: "The input cannot be used; the detail says what to change.",
    503: "The model is being loaded, too many requests wait, or the store is out of reach.",
    504: "The answer took too long.",
}
_KEYS = {
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}


class Question(NamedTuple):
    """What can be asked at an address; the answer's docstring says of what use it is."""

    answer: Callable[[LoadedModel, Any], Any]
    takes: Any
    gives: type[BaseModel]
    refusals: tuple[int, ...] = (404, *_BODY, *_WORK)


QUESTIONS = {
    ("POST", "/predict"): Question(answers.predict, schemas.PredictIn, schemas.PredictOut),
    ("POST", "/recommend"): Question(answers.recommend, schemas.RecommendIn, schemas.RecommendOut),
    ("POST", "/explain"): Question(answers.explain, schemas.ExplainIn, schemas.ExplainOut),
    ("POST", "/ask"): Question(answers.ask, visit_schemas.AskIn, visit_schemas.AskOut),
    ("POST", "/similar"): Question(answers.similar, schemas.SimilarIn, schemas.SimilarOut),
    ("GET", "/items"): Question(
        answers.items, Annotated[schemas.ItemsQuery, Query()], schemas.ItemsOut, (422, *_WORK)
    ),
    ("POST", "/match"): Question(
        answers.match, schemas.MatchIn, schemas.MatchOut, (*_BODY, *_WORK)
    ),
}


def create_app(
    models: ModelRegistry,
    *,
    limits: Limits | None = None,
    key: str | None = None,
    cors: Sequence[str] = (),
    hosts: Collection[str] | None = None,
    watch: float | None = None,
    access_log: Style | None = None,
    store: str | None = None,
    noun: str | None = None,
) -> FastAPI:
    """The service of a folder's model, which is loaded when the service starts if it is not yet.

    With a key, clients must send it. cors names other origins whose pages may ask, hosts the names
    by which it may be called (any if None). watch is the number of seconds after which the folder
    is looked at again for another model. store is the address of a store that keeps what people
    say. noun is what the page calls an item, such as book; None lets the data say. Figures of
    others go to `app.state.metrics.add`.
    """
    limits = limits or Limits()
    work = WorkerPool(limits)
    stored = Stored(store, limits, key)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with keep_fresh(models, watch), stored.open():
            yield
        work.close()

    app = FastAPI(
        title="cfnade",
        version=__version__,
        description="What rating a person would give an item, as a whole distribution, and what "
        "they would pick next.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    own = _router(models, work, limits, noun, people=store is not None)
    theirs = stored.routers(models, work, route=JsonRoute, refusals=_refusals)
    paths = _include(app, own, *theirs)
    _complete(app, keyed=key is not None, people=store is not None)
    add_pages(app)
    metrics = _add_metrics(app, models)
    stored.add_figures(metrics)
    add_handlers(app)
    # The last one added is the first that a request meets.
    app.add_middleware(GZipMiddleware, minimum_size=_WORTHWHILE, compresslevel=1)
    app.add_middleware(RequestLimitsMiddleware, limits=limits, key=key)
    stored.add_passport(app)
    if cors:
        _allow_origins(app, cors, people=store is not None)
    if hosts is not None:
        app.add_middleware(TrustedHostMiddleware, names=hosts)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(RequestLogMiddleware, metrics=metrics, paths=paths, style=access_log)
    return app


def _include(app: FastAPI, *routers: APIRouter) -> set[str]:
    """Add addresses. Returns all that figures tell apart."""
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes]
    formats = {route.path_format for route in routes if isinstance(route, APIRoute)}
    return {*formats, *OPEN, "/metrics"}


def _allow_origins(app: FastAPI, origins: Sequence[str], *, people: bool) -> None:
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", *(["PUT", "DELETE"] if people else [])],
        allow_headers=["authorization", "content-type", "x-api-key"],
    )


def _add_metrics(app: FastAPI, models: ModelRegistry) -> Metrics:
    """Figures for Prometheus, at an address that the schema leaves out."""
    app.state.metrics = metrics = Metrics()
    add_model_figures(metrics, models)

    async def told() -> Response:
        text = await asyncio.to_thread(metrics.text)  # figures of others may be slow to read
        return Response(text, headers={"content-type": KIND})

    app.add_api_route("/metrics", told, include_in_schema=False)
    return metrics


# -- addresses -----------------------------------------------------------------------------------


def _router(
    models: ModelRegistry, work: WorkerPool, limits: Limits, noun: str | None, *, people: bool
) -> APIRouter:
    """All addresses but those of the page and the documentation."""
    api = APIRouter(route_class=JsonRoute)

    def add(question: Question, method: str, path: str) -> None:
        async def ask(asked: Any) -> Response:
            return await work.run(_json, question.answer, models.current(), asked)

        ask.__annotations__["asked"] = question.takes  # FastAPI reads what it takes here
        api.add_api_route(
            path,
            ask,
            methods=[method],
            name=path[1:],
            description=question.answer.__doc__,
            response_model=question.gives,
            responses=_refusals(*question.refusals),
        )

    for (method, path), question in QUESTIONS.items():
        add(question, method, path)

    @api.get("/model", response_model=schemas.ModelOut, responses=_refusals(503))
    async def model() -> Response:
        """What the model is, the limits of the service, and tastes to begin with."""
        return _json(answers.model, models.current(), limits, noun, people)

    @api.get("/map", response_model=visit_schemas.MapOut, responses=_refusals(*_WORK))
    async def item_map() -> Response:
        return await work.run(_json, answers.item_map, models.current())

    item_map.__doc__ = answers.item_map.__doc__

    @api.get("/version", response_model=schemas.VersionOut, responses=_refusals(503))
    async def version() -> Response:
        """Versions of the service and of the model loaded."""
        return _json(answers.version, models.current())

    @api.get("/health", response_model=schemas.HealthOut, responses=_refusals(503))
    async def health() -> Response:
        """Whether the service can answer."""
        models.current()
        return Response(b'{"status":"ok"}', media_type="application/json")

    return api


def _json(answer: Callable[..., Any], *asked: Any) -> Response:
    return Response(to_json(answer(*asked)), media_type="application/json")


# -- schema --------------------------------------------------------------------------------------


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What FastAPI needs to know of refusals with these statuses."""
    return {
        status: {"model": schemas.ProblemOut, "description": _ABOUT[status]}
        for status in sorted(statuses)
    }


def _complete(app: FastAPI, *, keyed: bool, people: bool) -> None:
    """Have the schema, once it is asked for, say what FastAPI cannot know: problems by their media
    type, headers, and the key if there is one, which people's tokens do not equal."""
    plain = app.openapi

    @cache
    def completed() -> dict[str, Any]:
        schema = plain()
        _add_refusals(schema, keyed=keyed, people=people)
        if keyed:
            schema["components"]["securitySchemes"] = _KEYS
        return schema

    app.openapi = completed  # type: ignore[method-assign]


def _add_refusals(schema: dict[str, Any], *, keyed: bool, people: bool) -> None:
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            if keyed and path != "/health":
                for status in ("401", *(["403"] if people else [])):
                    responses[status] = {
                        "description": _ABOUT[int(status)],
                        "content": {
                            "application/json": responses["503"]["content"]["application/json"]
                        },
                    }
                operation["security"] = [{name: []} for name in _KEYS]
            for status, response in responses.items():
                if int(status) >= 400:
                    _as_problem(response, status)


def _as_problem(response: dict[str, Any], status: str) -> None:
    content = response["content"]
    content["application/problem+json"] = content.pop("application/json")
    header = {"401": "WWW-Authenticate", "503": "Retry-After"}.get(status)
    if header is not None:
        response["headers"] = {header: {"required": True, "schema": {"type": "string"}}}
