"""The addresses of people, as the application knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import to_json

from cfnade.online.event_store import Event
from cfnade.server import person_schemas as schemas
from cfnade.server.auth import Authenticator, is_person, require_service, require_user
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.queries import check_rating, check_ratings
from cfnade.server.settings import WorkerPool
from cfnade.server.user_ratings import UserRatings

_READS = (404, 422, 503, 504)
_WRITES = (404, 422, 503, 504)
_BODY = (408, 413, 415)

Person = Annotated[schemas.PersonId, Path()]
Item = Annotated[schemas.ItemId, Path()]


Refusals = Callable[..., dict[int | str, dict[str, Any]]]


def person_router(
    visitors: UserRatings,
    models: ModelRegistry,
    work: WorkerPool,
    tokens: Authenticator | None,
    *,
    route: type[APIRoute],
    refusals: Refusals,
) -> APIRouter:
    """All addresses below /people; tokens are None where everybody may do all."""
    api = APIRouter(route_class=route)
    _add_writes(api, visitors, models, refusals)
    _add_reads(api, visitors, models, work, refusals)
    if tokens is not None:
        _add_token(api, models, tokens, refusals)
    return api


def _add_writes(
    api: APIRouter, visitors: UserRatings, models: ModelRegistry, refusals: Refusals
) -> None:
    address = "/people/{person}/ratings/{item:path}"

    @api.put(address, response_model=schemas.RatingOut, responses=refusals(*_WRITES, *_BODY))
    async def rate(
        request: Request, person: Person, item: Item, rating: schemas.RatingIn
    ) -> Response:
        """Keep what a person says of an item; the latest counts. It is on disk when answered."""
        require_user(request, person)
        loaded = models.current()
        stars = rating.rating
        if loaded.predictor.fitted.rates:
            check_rating(loaded.predictor, stars)
        elif stars is not None:
            raise ApiError(422, "rating: this model knows no ratings; leave it out", where="rating")
        kind: Any = "interaction" if stars is None else "rating"
        said = Event(person, item, kind, stars)
        return _json(await visitors.say(loaded, said, may_name=not is_person(request)))

    @api.post(
        "/people/{person}/ratings",
        response_model=schemas.RatingsOut,
        responses=refusals(*_WRITES, *_BODY),
    )
    async def rate_all(request: Request, person: Person, given: schemas.RatingsIn) -> Response:
        """Keep several ratings of a person; items that are not known are named, and not kept."""
        require_user(request, person)
        loaded = models.current()
        if not loaded.predictor.fitted.rates:
            raise ApiError(422, "this model knows no ratings; PUT each item without one")
        check_ratings(loaded.predictor, given.ratings)
        return _json(await visitors.say_all(loaded, person, given.ratings))

    @api.delete(
        "/people/{person}", response_model=schemas.ForgottenOut, responses=refusals(422, 503, 504)
    )
    async def forget(request: Request, person: Person) -> Response:
        """Remove all that is kept of a person; for the service key."""
        require_service(request)
        return _json(await visitors.forget(person))

    @api.delete(address, response_model=schemas.RatingOut, responses=refusals(*_WRITES))
    async def withdraw(request: Request, person: Person, item: Item) -> Response:
        """Take back what a person said of an item: it counts no longer."""
        require_user(request, person)
        said = Event(person, item, "withdrawal")
        return _json(await visitors.say(models.current(), said, may_name=False))


def _add_reads(
    api: APIRouter,
    visitors: UserRatings,
    models: ModelRegistry,
    work: WorkerPool,
    refusals: Refusals,
) -> None:
    @api.get("/people/{person}", response_model=schemas.PersonOut, responses=refusals(*_READS))
    async def about(request: Request, person: Person) -> Response:
        """What a person said and what counts of it."""
        require_user(request, person)
        return _json(await visitors.about(models.current(), person))

    @api.get(
        "/people/{person}/recommendations",
        response_model=schemas.PersonListOut,
        responses=refusals(*_READS),
    )
    async def recommendations(
        request: Request, person: Person, asked: Annotated[schemas.PersonListQuery, Query()]
    ) -> Response:
        """The best items for a person, by all that they said, and nothing that they rated."""
        require_user(request, person)
        return _json(await visitors.recommend(models.current(), person, asked, work))


def _add_token(
    api: APIRouter, models: ModelRegistry, tokens: Authenticator, refusals: Refusals
) -> None:
    @api.post(
        "/people/{person}/token",
        response_model=schemas.TokenOut,
        responses=refusals(422, 503, *_BODY),
    )
    async def token(request: Request, person: Person, wish: schemas.TokenIn) -> Response:
        """A token with which a person may ask for themselves, for a while; for the service key."""
        require_service(request)
        models.current()
        signed = tokens.signed(person, wish.seconds)
        return _json({"token": signed, "seconds": wish.seconds})


def _json(said: Any) -> Response:
    return Response(to_json(said), media_type="application/json")
