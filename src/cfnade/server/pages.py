"""Pages: the files of the page, read once, and the addresses written out for people.

What is not in the table of files does not exist, whatever the path says. The page of addresses is
made from the schema, with no script and nothing from another host.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response

from cfnade.server.errors import ApiError

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


class Asset(NamedTuple):
    """A file, and a tag that changes with it."""

    body: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, body: bytes, suffix: str) -> Asset:
        return cls(body, _TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:24]}"')

    def response(self, request: Request) -> Response:
        """The file, or word that the client's copy is the same."""
        headers = {"etag": self.tag, "cache-control": "no-cache"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type=self.kind, headers=headers)


def read_assets() -> dict[str, Asset]:
    """All files of the page by their path below its folder."""
    return {
        path.relative_to(FOLDER).as_posix(): Asset.of(path.read_bytes(), path.suffix)
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }


def add_pages(app: FastAPI) -> None:
    """The page and the documentation, at addresses that the schema leaves out."""
    files = read_assets()
    files["docs.css"] = Asset.of((FOLDER.parent / "docs.css").read_bytes(), ".css")

    def add(path: str, name: str | None = None) -> None:
        async def page(request: Request) -> Response:
            asset = files.get(name or request.path_params["name"])
            if asset is None:
                raise ApiError(404, "the page has no such file; it begins at /")
            return asset.response(request)

        app.add_api_route(path, page, include_in_schema=False)

    @cache  # made when first asked for: who starts a service need not wait for it
    def docs() -> Asset:
        return Asset.of(docs_page(app.openapi()).encode(), ".html")

    @app.get("/docs", include_in_schema=False)
    async def addresses(request: Request) -> Response:
        return docs().response(request)

    add("/", "index.html")
    add("/docs/style.css", "docs.css")
    add("/page/{name:path}")


# -- the addresses, for people -------------------------------------------------------------------


def docs_page(schema: dict[str, Any]) -> str:
    """All that the schema says of each address, as HTML."""
    parts = [
        _operation(schema, method.upper(), path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    info = schema["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>cfnade: addresses</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/docs/style.css"></head><body><main>'
        f"<h1>cfnade {escape(info['version'])}</h1><p>{escape(info['description'])} "
        'For programs: <a href="/openapi.json">openapi.json</a>. '
        'For people: <a href="/">the page</a>.</p>'
        f"{''.join(parts)}</main></body></html>"
    )


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
    described: dict[str, Any] = schema["components"]["schemas"][one["$ref"].rpartition("/")[2]]
    return described


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
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "maxItems": "at most {}",
    "maxLength": "at most {} characters",
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
