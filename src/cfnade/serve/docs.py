"""The service's account of itself: the schema, completed with what FastAPI cannot know, and a plain
page made from it, with no script and nothing from another host."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from cfnade.serve.assets import Asset
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


# -- as a page -----------------------------------------------------------------------------------

_STYLE = Path(__file__).parent / "docs.css"


def docs_page(schema: dict[str, Any]) -> dict[str, Asset]:
    """The page and its style."""
    parts = [
        _operation(schema, method.upper(), path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    info = schema["info"]
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>cfnade: addresses</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/docs/style.css"></head><body><main>'
        f"<h1>cfnade {escape(info['version'])}</h1><p>{escape(info['description'])} "
        'For programs: <a href="/openapi.json">openapi.json</a>. '
        'For people: <a href="/">the page</a>.</p>'
        f"{''.join(parts)}</main></body></html>"
    )
    return {
        "docs.html": Asset.of(text.encode(), ".html"),
        "docs.css": Asset.of(_STYLE.read_bytes(), ".css"),
    }


def _operation(schema: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    text = f"<section><h2><code>{method} {escape(path)}</code></h2>"
    text += f"<p>{escape(operation.get('description', ''))}</p>"
    lines = [(p["name"], p["schema"], p.get("required")) for p in operation.get("parameters", [])]
    sent = _content_of(schema, operation.get("requestBody"))
    if sent:
        required = sent.get("required", [])
        lines = [(name, one, name in required) for name, one in sent["properties"].items()]
    text += _table("Input", [(name, _about(schema, one, need)) for name, one, need in lines])
    for example in sent.get("examples", []):
        shown = json.dumps(example, ensure_ascii=False, indent=1)
        text += f"<pre>{escape(shown)}</pre>"
    answer = _content_of(schema, operation["responses"]["200"])
    told = [(name, _about(schema, one, True)) for name, one in answer["properties"].items()]
    text += _table("Answer", told)
    refused = [
        (status, escape(response["description"]))
        for status, response in operation["responses"].items()
        if status != "200"
    ]
    return text + _table("Refusals", refused) + "</section>"


def _table(caption: str, lines: list[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{about}</td></tr>'
        for name, about in lines
    )
    return f"<table><caption>{caption}</caption>{rows}</table>" if lines else ""


def _content_of(schema: dict[str, Any], place: dict[str, Any] | None) -> dict[str, Any]:
    if place is None:
        return {}
    return _resolved(schema, place["content"]["application/json"]["schema"])


def _resolved(schema: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in one:
        return one
    found: dict[str, Any] = schema["components"]["schemas"][one["$ref"].rpartition("/")[2]]
    return found


def _about(schema: dict[str, Any], one: dict[str, Any], required: bool | None) -> str:
    """The type, bounds, default and description of one field."""
    said = [_type(schema, one)]
    if not required and one.get("default") is not None:
        said.append(f"default {json.dumps(one['default'])}")
    elif required is False:
        said.append("may be left out")
    if "description" in one:
        said.append(one["description"])
    return escape("; ".join(said))


_BOUNDS = {
    **{
        "minimum": "≥ {}",
        "exclusiveMinimum": "> {}",
        "maximum": "≤ {}",
        "exclusiveMaximum": "< {}",
    },
    **{"maxItems": "at most {}", "maxLength": "at most {} characters"},
}


def _type(schema: dict[str, Any], one: dict[str, Any]) -> str:
    if "$ref" in one:
        fields = _resolved(schema, one)["properties"]
        return "{" + ", ".join(fields) + "}"
    if "anyOf" in one:
        return " or ".join(_type(schema, part) for part in one["anyOf"])
    if "enum" in one or "const" in one:
        return " or ".join(json.dumps(value) for value in one.get("enum", [one.get("const")]))
    kind = str(one.get("type", "anything"))
    if kind == "array" and isinstance(one.get("items"), dict):
        kind = f"list of {_type(schema, one['items'])}"
    # Bounds of 64-bit numbers and of non-empty texts would tell nobody anything.
    bounds = [
        form.format(one[name])
        for name, form in _BOUNDS.items()
        if name in one and abs(one[name]) < 2**31
    ]
    return kind + (f" ({', '.join(bounds)})" if bounds else "")
