"""Read JSON request bodies: strict JSON of a bounded shape, without fields the client may not send.

Everything here runs before validation. Validating a body costs at most a few milliseconds only
because its shape is bounded: pydantic reports every unknown field and every invalid entry of a
body, and holds the interpreter lock while it does so.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from cfnade.server.errors import ApiError
from cfnade.server.middleware import PERSON
from cfnade.server.settings import FIELDS, VALUES

SERVICE_ONLY = ("user", "new_items")
"""Fields that refer to users of the training data: a user's token may not send them."""


class JsonRequest(Request):
    """A request whose body is read by pydantic's parser and checked before validation."""

    async def json(self) -> Any:
        body = read_json(await self.body())
        if PERSON in self.scope:
            refuse_service_fields(body)
        return body


class JsonRoute(APIRoute):
    """A route that refuses other types of body before it reads them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0]
            if self.body_field is not None and kind.strip().lower() != "application/json":
                raise ApiError(415, "send the body as JSON, with Content-Type: application/json")
            return await handle(JsonRequest(request.scope, request.receive))

        return checked


def read_json(body: bytes) -> Any:
    """Parse a body and refuse one with more arrays, objects or fields than any valid one has."""
    # Parsing creates an object for each bracket, so they are counted first.
    if body.count(b"[") + body.count(b"{") > VALUES:
        raise ApiError(422, f"the body has more than {VALUES:,} arrays and objects; send fewer")
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise ApiError(422, f"the body is not JSON: {str(error)[:200]}") from None
    _check_fields(value)
    return value


def _check_fields(body: Any) -> None:
    """Refuse objects with too many fields, each of which would be a validation error."""
    pending = [body]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if len(value) > FIELDS:
                raise ApiError(422, f"the body has an object of more than {FIELDS} fields")
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(entry for entry in value if isinstance(entry, dict | list))


def refuse_service_fields(body: Any) -> None:
    """Refuse fields that refer to other users, whatever their value, before any lookup."""
    if not isinstance(body, dict):
        return
    for field in SERVICE_ONLY:
        if body.get(field) is not None:
            raise ApiError(
                403,
                f"{field}: a person's token asks of nobody else; give ratings, or ask at "
                "/people/{person}",
                where=field,
            )
