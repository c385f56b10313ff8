"""The addresses of the service: each takes the current model once and answers in a thread."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from cfnade.serve import answers, schemas
from cfnade.serve.assets import takes_gzip
from cfnade.serve.limits import Limits
from cfnade.serve.loading import Loaded, Models
from cfnade.serve.openapi import BODY, INPUT, UNKNOWN, WORK, refusals
from cfnade.serve.routes import StrictRoute
from cfnade.serve.work import Work

T = TypeVar("T")
_WORTHWHILE = 1_000
"""Bytes from which compression pays."""


def router(models: Models, work: Work, limits: Limits) -> APIRouter:
    """All addresses but those of the page and the documentation."""
    api = APIRouter(route_class=StrictRoute)

    async def answer(function: Callable[[Loaded, T], Any], wanted: T, request: Request) -> Response:
        return await work.run(
            lambda loaded: _json(function(loaded, wanted), request), models.current()
        )

    _add_questions(api, answer)
    _add_catalogue(api, answer)

    @api.get("/model", response_model=schemas.ModelOut, responses=refusals(503))
    async def model(request: Request) -> Response:
        """What the model is, the limits of the service, and tastes to begin with."""
        return _json(answers.model(models.current(), limits), request)

    @api.get("/version", response_model=schemas.VersionOut, responses=refusals(503))
    async def version(request: Request) -> Response:
        """Versions of the service and of the model loaded."""
        return _json(answers.version(models.current()), request)

    @api.get("/health", response_model=schemas.HealthOut, responses=refusals(503))
    async def health(request: Request) -> Response:
        """Whether the service can answer."""
        models.current()
        return _json({"status": "ok"}, request)

    return api


def _add_questions(api: APIRouter, answer: Callable[..., Any]) -> None:
    asked = refusals(*UNKNOWN, *BODY, *WORK)

    @api.post("/predict", response_model=schemas.PredictOut, responses=asked)
    async def predict(wanted: schemas.PredictIn, request: Request) -> Any:
        """The distribution of a person's rating of given items."""
        return await answer(answers.predict, wanted, request)

    @api.post("/recommend", response_model=schemas.RecommendOut, responses=asked)
    async def recommend(wanted: schemas.RecommendIn, request: Request) -> Any:
        """The best items for a person, by expected rating, by P(rating ≥ x), or by a quantile."""
        return await answer(answers.recommend, wanted, request)

    @api.post("/explain", response_model=schemas.ExplainOut, responses=asked)
    async def explain(wanted: schemas.ExplainIn, request: Request) -> Any:
        """Which ratings moved a prediction, and how much: each left out, exactly."""
        return await answer(answers.explain, wanted, request)


def _add_catalogue(api: APIRouter, answer: Callable[..., Any]) -> None:
    @api.get("/items", response_model=schemas.ItemsOut, responses=refusals(*INPUT, *WORK))
    async def items(wanted: Annotated[schemas.ItemsQuery, Query()], request: Request) -> Any:
        """Items by title; typing errors, accents, case and "The" are forgiven."""
        return await answer(answers.items, wanted, request)

    @api.post("/match", response_model=schemas.MatchOut, responses=refusals(*BODY, *WORK))
    async def match(wanted: schemas.MatchIn, request: Request) -> Any:
        """The items that films of a list from elsewhere are; null rather than a wrong one."""
        return await answer(answers.match, wanted, request)


def _json(content: Any, request: Request) -> Response:
    """The answer, compressed for who can unpack it: lists shrink to a fifth."""
    body, headers = to_json(content), {"vary": "accept-encoding"}
    if len(body) >= _WORTHWHILE and takes_gzip(request):
        body = gzip.compress(body, 1, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=headers)
