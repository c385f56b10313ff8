"""The schema of the service, completed with what FastAPI cannot know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from cfnade.serve.schemas import ProblemOut

UNKNOWN, INPUT, BODY, WORK = (404,), (422,), (408, 413, 415, 422), (503, 504)

_ABOUT = {
    401: "The key is missing or wrong.",
    404: "The model does not know the user or item.",
    408: "The body took too long to arrive.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    422: "The input cannot be used; the detail says what to change.",
    503: "The model is being loaded, or too many requests wait.",
    504: "The answer took too long.",
}
_KEYS = {
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What FastAPI needs to know of refusals with these statuses."""
    return {
        status: {"model": ProblemOut, "description": _ABOUT[status]} for status in sorted(statuses)
    }


def complete(app: FastAPI, *, keyed: bool) -> None:
    """Make the schema once: problems by their media type, headers, and the key if there is one."""
    schema = app.openapi()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            if keyed and path != "/health":
                responses["401"] = {
                    "description": _ABOUT[401],
                    "content": {
                        "application/json": responses["503"]["content"]["application/json"]
                    },
                }
                operation["security"] = [{name: []} for name in _KEYS]
            for status, response in responses.items():
                if int(status) >= 400:
                    _as_problem(response, status)
    if keyed:
        schema["components"]["securitySchemes"] = _KEYS
    app.openapi = lambda: schema  # type: ignore[method-assign]


def _as_problem(response: dict[str, Any], status: str) -> None:
    content = response["content"]
    content["application/problem+json"] = content.pop("application/json")
    header = {"401": "WWW-Authenticate", "503": "Retry-After"}.get(status)
    if header is not None:
        response["headers"] = {header: {"required": True, "schema": {"type": "string"}}}
