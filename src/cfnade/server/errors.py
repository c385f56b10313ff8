"""Errors as problem details (RFC 9457): what is wrong, where, and what to do."""

from __future__ import annotations

import http
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from cfnade.exceptions import CfnadeError

PROBLEM_TYPE = "application/problem+json"
_MAX_ERRORS = 3
_UNION_MEMBERS = {"int", "str", "float", "none"}
_ROUTER_DETAILS = {
    404: "there is nothing at this address; GET /docs lists what there is",
    405: "this address does not take that method; GET /docs lists which it takes",
}
_NO_OBJECT = "model_attributes_type"
"""Pydantic's type of the error for a body that is no object, or was not declared as JSON."""
_DESCRIPTIONS = {
    401: "The key is missing or wrong.",
    403: "A user's token may not do that.",
    404: "The model does not know the user or item.",
    408: "The body took too long to arrive.",
    413: "The body is too long.",
    422: "The input cannot be used; the detail says what to change.",
    503: "The model is being loaded, too many requests wait, or the store is not available.",
    504: "The answer took too long.",
}


class Problem(BaseModel):
    """Problem details of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


class ApiError(HTTPException):
    """A refusal; `field` is the place in the input, such as ratings[3].rating."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.field = field


def problem_response(error: ApiError) -> Response:
    """Return the response of a refusal."""
    status = error.status_code
    title = http.HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": error.detail}
    if error.field is not None:
        content["field"] = error.field
    return Response(to_json(content), status, error.headers, PROBLEM_TYPE)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that may refuse with these statuses."""
    content = {PROBLEM_TYPE: {"schema": Problem.model_json_schema()}}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": content} for status in statuses
    }


def add_exception_handlers(app: FastAPI) -> None:
    """Turn every error of an endpoint or of the router into a problem."""

    async def handle(_: Request, error: Exception) -> Response:
        return problem_response(_as_api_error(error))

    for kind in (StarletteHTTPException, RequestValidationError, CfnadeError):
        app.add_exception_handler(kind, handle)


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    if isinstance(error, StarletteHTTPException):
        detail = _ROUTER_DETAILS.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, detail, headers=error.headers)
    return ApiError(422, str(error), field=getattr(error, "field", None))


def _from_validation(error: RequestValidationError) -> ApiError:
    """Return the first few wrong places, each with all that would have been right."""
    messages: dict[str, dict[str, None]] = {}  # by place, in order and without repetition
    for line in error.errors():
        text = str(line["msg"]).removeprefix("Value error, ")
        place = format_location(line["loc"])
        if line["type"] == _NO_OBJECT and not place:
            text = "send a JSON object with the header Content-Type: application/json"
        messages.setdefault(place, {})[text[:1].lower() + text[1:]] = None
    lines = [
        f"{place or 'the request'}: {', or '.join(texts)}" for place, texts in messages.items()
    ]
    more = f"; and {len(lines) - _MAX_ERRORS} more" if len(lines) > _MAX_ERRORS else ""
    detail = "; ".join(lines[:_MAX_ERRORS]) + more
    return ApiError(422, detail, field=next(iter(messages)) or None)


def format_location(location: Iterable[str | int]) -> str:
    """Return a location such as ratings[3].item, without the names of a union's members."""
    text = ""
    for part in tuple(location)[1:]:  # the first says body or query
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in _UNION_MEMBERS and not re.search(r"[-\[]", part):
            text += "." * bool(text) + part[:40]
    return text
