"""Errors as problem details (RFC 9457): what is wrong, where, and what to do."""

from __future__ import annotations

import http
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from cfnade.exceptions import CfnadeError

_SHOWN = 3
_UNION = {"int", "str", "float", "none"}
_OF_ROUTER = {
    404: "there is nothing at this address; GET /docs lists what there is",
    405: "this address does not take that method; GET /docs lists which it takes",
}


class ApiError(HTTPException):
    """A refusal. `where` is the place in the input, such as ratings[3].rating."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        where: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.where = where


def problem_body(status: int, detail: str, where: str | None = None) -> bytes:
    """The JSON of one problem."""
    phrase = http.HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": phrase, "status": status, "detail": detail}
    return to_json(content if where is None else content | {"where": where})


def problem_response(problem: ApiError) -> Response:
    body = problem_body(problem.status_code, problem.detail, problem.where)
    return Response(body, problem.status_code, problem.headers, "application/problem+json")


def add_handlers(app: FastAPI) -> None:
    """Answer every error that an endpoint or the router raises with a problem."""

    async def known(_: Request, error: Exception) -> Response:
        return problem_response(_as_problem(error))

    for kind in (StarletteHTTPException, RequestValidationError, CfnadeError):
        app.add_exception_handler(kind, known)


def _as_problem(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return _of_validation(error.errors())
    if isinstance(error, StarletteHTTPException):
        detail = _OF_ROUTER.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, detail, headers=error.headers)
    return ApiError(422, str(error))


# -- input that does not fit the schema ----------------------------------------------------------


def _of_validation(errors: Iterable[Mapping[str, Any]]) -> ApiError:
    """The first few places that are wrong, each with all that would have been right."""
    places: dict[str, list[str]] = {}
    for error in errors:
        place, message = place_of(error["loc"]), _message(error)
        messages = places.setdefault(place, [])
        if message not in messages:
            messages.append(message)
    said = [
        f"{place or 'the request'}: {', or '.join(messages)}" for place, messages in places.items()
    ]
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    first = next(iter(places), "")
    return ApiError(422, "; ".join(said[:_SHOWN]) + more, where=first or None)


def place_of(location: Iterable[str | int]) -> str:
    """A location as people write it. The names of a union's members are no part of it."""
    text = ""
    for part in tuple(location)[1:]:  # the first says body or query
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in _UNION and not re.search(r"[-\[]", part):
            text += "." * bool(text) + part[:40]
    return text


def _message(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:]
