"""Headers that keep browsers strict, and the optional key."""

from __future__ import annotations

import hashlib
import hmac
import os

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.errors import CfnadeError
from cfnade.serve.problems import Problem, problem_response

KEY_VARIABLE = "CFNADE_API_KEY"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_OPEN = {"/", "/health", "/docs", "/docs/style.css", "/openapi.json"}
_OPEN_FOLDER = "/page/"


class SecurityHeaders:
    """Puts the headers on every answer; what says nothing of caching is not kept."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers)


def key_from_environment() -> str | None:
    """The key that clients must send, if one is set. One that is set but empty is a mistake."""
    key = os.environ.get(KEY_VARIABLE)
    if key is not None and not key.strip():
        raise CfnadeError(
            f"{KEY_VARIABLE} is set but empty, so anybody could ask; give it a value, or unset it "
            "to serve without a key"
        )
    return key


class KeyCheck:
    """Lets requests pass that carry the key; the page and /health are open to all."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self._digest = _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]) or self._fits(scope):
            await self.app(scope, receive, send)
            return
        refusal = Problem(
            401,
            "this service asks for a key; send it as X-API-Key or as Authorization: Bearer",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await problem_response(refusal)(scope, receive, send)

    def _fits(self, scope: Scope) -> bool:
        # Digests of equal length, compared in constant time: neither the time nor the length
        # of a comparison tells anything of the key.
        given = [hmac.compare_digest(_digest(key), self._digest) for key in _keys(scope)]
        return any(given)


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def _keys(scope: Scope) -> list[bytes]:
    keys = []
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            keys.append(value)
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            keys.append(value[7:].strip())
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
