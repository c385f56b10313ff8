"""The addresses of the service: each takes the current model once and answers in a thread.

Bodies are read strictly: JSON and nothing else, no NaN, no depth that would exhaust a parser.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json

from cfnade.serve import answers, schemas
from cfnade.serve.assets import takes_gzip
from cfnade.serve.docs import BODY, INPUT, UNKNOWN, WORK, refusals
from cfnade.serve.limits import Limits, Work
from cfnade.serve.loading import Loaded, Models
from cfnade.serve.problems import Problem

T = TypeVar("T")
_WORTHWHILE = 1_000
"""Bytes from which compression pays."""


class StrictRequest(Request):
    """A request whose body is read by pydantic's parser."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False, cache_strings="keys")
        except ValueError as error:
            raise Problem(422, f"the body is not JSON: {str(error)[:200]}") from None


class StrictRoute(APIRoute):
    """A route that refuses other types of body before it reads them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0]
            if self.body_field is not None and kind.strip().lower() != "application/json":
                raise Problem(415, "send the body as JSON, with Content-Type: application/json")
            return await handle(StrictRequest(request.scope, request.receive))

        return checked


def router(models: Models, work: Work, limits: Limits) -> APIRouter:
    """All addresses but those of the page and the documentation."""
    api = APIRouter(route_class=StrictRoute)

    async def answer(function: Callable[[Loaded, T], Any], asked: T, request: Request) -> Response:
        return await work.run(_answered, function, models.current(), asked, request)

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
    asked_of = refusals(*UNKNOWN, *BODY, *WORK)

    @api.post("/predict", response_model=schemas.PredictOut, responses=asked_of)
    async def predict(asked: schemas.PredictIn, request: Request) -> Any:
        """The distribution of a person's rating of given items."""
        return await answer(answers.predict, asked, request)

    @api.post("/recommend", response_model=schemas.RecommendOut, responses=asked_of)
    async def recommend(asked: schemas.RecommendIn, request: Request) -> Any:
        """The best items for a person, by expected rating, by P(rating ≥ x), or by a quantile."""
        return await answer(answers.recommend, asked, request)

    @api.post("/explain", response_model=schemas.ExplainOut, responses=asked_of)
    async def explain(asked: schemas.ExplainIn, request: Request) -> Any:
        """Which ratings moved a prediction, and how much: each left out, exactly."""
        return await answer(answers.explain, asked, request)


def _add_catalogue(api: APIRouter, answer: Callable[..., Any]) -> None:
    @api.get("/items", response_model=schemas.ItemsOut, responses=refusals(*INPUT, *WORK))
    async def items(asked: Annotated[schemas.ItemsQuery, Query()], request: Request) -> Any:
        """Items by title; typing errors, accents, case and "The" are forgiven."""
        return await answer(answers.items, asked, request)

    @api.post("/match", response_model=schemas.MatchOut, responses=refusals(*BODY, *WORK))
    async def match(asked: schemas.MatchIn, request: Request) -> Any:
        """The items that films of a list from elsewhere are; null rather than a wrong one."""
        return await answer(answers.match, asked, request)


def _answered(
    function: Callable[[Loaded, T], Any], loaded: Loaded, asked: T, request: Request
) -> Response:
    return _json(function(loaded, asked), request)


def _json(content: Any, request: Request) -> Response:
    """The answer, compressed for who can unpack it: lists shrink to a fifth."""
    body, headers = to_json(content), {"vary": "accept-encoding"}
    if len(body) >= _WORTHWHILE and takes_gzip(request):
        body = gzip.compress(body, 1, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=headers)
