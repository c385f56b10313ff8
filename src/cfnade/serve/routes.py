"""Bodies read strictly: JSON and nothing else, no NaN, no depth that would exhaust a parser."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from cfnade.serve.problems import Problem


class StrictRequest(Request):
    """A request whose body is read by pydantic's parser."""

    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body, allow_inf_nan=False, cache_strings="keys")
        except ValueError as error:
            raise Problem(422, f"the body is not JSON: {str(error)[:200]}") from None


class StrictRoute(APIRoute):
    """A route that refuses other types of body before it reads them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is not None and not _is_json(request):
                raise Problem(415, "send the body as JSON, with Content-Type: application/json")
            return await handle(StrictRequest(request.scope, request.receive))

        return checked


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"
