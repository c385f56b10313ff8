"""What stands between a request and its address: strict headers, name, optional key, bounds."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import socket
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.exceptions import CfnadeError
from cfnade.server.errors import ApiError, problem_response
from cfnade.server.settings import Limits

_log = logging.getLogger("cfnade.server")

KEY_VARIABLE = "CFNADE_API_KEY"
KEY_LENGTH = 16
"""Characters that a key must have; who has a token of a user can try keys without asking us."""
PERSON = "cfnade.person"
"""In the scope of a request: whose token it carries (rights.py)."""

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
OPEN = {"/", "/health", "/docs", "/docs/style.css", "/openapi.json"}
"""Paths that need no key."""
_OPEN_FOLDER = "/page/"


class SecurityHeadersMiddleware:
    """Puts the headers on every answer; what says nothing of caching is not kept.

    HEAD is answered as GET would be, without the body. What nobody expected becomes a bare 500; the
    reason goes to the log and nowhere else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, bare = False, scope.get("method") == "HEAD"

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            elif bare and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            asked = {**scope, "method": "GET"} if bare else scope
            await self.app(asked, receive, with_headers)
        except Exception:
            _log.exception("%s %s failed", scope.get("method"), scope.get("path"))
            if begun or scope["type"] != "http":
                raise
            sorry = ApiError(500, "the service failed on this request; its log says why")
            await problem_response(sorry)(scope, receive, with_headers)


class RequestLimitsMiddleware:
    """Lets requests pass that carry the key, if there is one, and are not too long.

    A body that is too long or too slow, declared or not, is stopped before it is all in memory. The
    page and /health need no key.
    """

    def __init__(self, app: ASGIApp, limits: Limits, key: str | None) -> None:
        self.app = app
        self.limits = limits
        self._digest = None if key is None else _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif refusal := self._refusal(scope):
            await problem_response(refusal)(scope, receive, send)
        else:
            await self.app(scope, self._limited(receive), send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        if has_two_lengths(scope):
            return ApiError(
                400,
                "send Content-Length or Transfer-Encoding, and not both",
                headers={"Connection": "close"},
            )
        if not is_utf8(scope.get("raw_path") or b""):
            return ApiError(400, "the path is not UTF-8; percent-encode the UTF-8 bytes of ids")
        if self._digest is not None and not self._may_pass(scope, self._digest):
            return ApiError(
                401,
                "this service asks for a key; send it as X-API-Key or as Authorization: Bearer",
                headers={"WWW-Authenticate": "Bearer"},
            )
        # The parser bounds what waits in its buffer only; headers that come at once get past it.
        head, body = len(scope["path"]) + len(scope["query_string"]), 0
        for name, value in scope["headers"]:
            head += len(name) + len(value) + 4
            if name == b"content-length" and value.isdigit():
                body = int(value[:20])
        if head > self.limits.header_bytes:
            most = self.limits.header_bytes
            return ApiError(431, f"address and headers are longer than {most:,} bytes; send fewer")
        return self._too_long() if body > self.limits.body_bytes else None

    def _may_pass(self, scope: Scope, right: bytes) -> bool:
        if scope["path"] in OPEN or scope["path"].startswith(_OPEN_FOLDER) or PERSON in scope:
            return True
        # Digests of equal length, compared in constant time: neither the time nor the length
        # of a comparison tells anything of the key.
        equal = [hmac.compare_digest(_digest(key), right) for key in _keys(scope)]
        return any(equal)

    def _limited(self, receive: Receive) -> Receive:
        deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:  # what follows is a disconnection, for which there is no hurry
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                most = self.limits.body_seconds
                raise ApiError(
                    408, f"the body took longer than {most:g} s to arrive; send it again"
                ) from None
            received += len(message.get("body", b""))
            if received > self.limits.body_bytes:
                raise self._too_long()
            complete = not message.get("more_body", False)
            return message

        return limited

    def _too_long(self) -> ApiError:
        most = self.limits.body_bytes
        return ApiError(
            413, f"the body is longer than {most:,} bytes; send fewer ratings or items at a time"
        )


def has_two_lengths(scope: Scope) -> bool:
    """Whether a proxy before the service may see the body's end elsewhere (request smuggling)."""
    names = {name for name, _ in scope["headers"]}
    return {b"content-length", b"transfer-encoding"} <= names


def is_utf8(raw_path: bytes) -> bool:
    """Whether a percent-encoded path is UTF-8.

    The server replaces what is not, so that different ids of users would become the same one.
    """
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return False
    return True


def key_from_environment() -> str | None:
    """The key that clients must send, if one is set. One that is set but empty is a mistake."""
    key = os.environ.get(KEY_VARIABLE)
    if key is not None and not key.strip():
        raise CfnadeError(
            f"{KEY_VARIABLE} is set but empty, so anybody could ask; give it a value, or unset it "
            "to serve without a key"
        )
    if key is not None and len(key) < KEY_LENGTH:
        raise CfnadeError(
            f"{KEY_VARIABLE} has {len(key)} characters, which can be guessed; give it at least "
            f"{KEY_LENGTH} random ones, such as those of: openssl rand -hex 16"
        )
    return key


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


# -- by which names the service may be called ----------------------------------------------------
# A page from anywhere may point a name of its own at 127.0.0.1 and then ask as if it were ours (DNS
# rebinding). It cannot hide that name: browsers send it as Host. Addresses in figures cannot be
# borrowed in this way, so they are always right.

ANY = "*"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def own_names(host: str, more: Collection[str]) -> frozenset[str] | None:
    """The names of a service that listens on a host, and those given; None for any."""
    if ANY in more:
        return None
    return frozenset(map(_plain, ["localhost", socket.gethostname(), host, *more]))


def validate_host(text: str) -> str:
    """A name given on the command line."""
    if text == ANY or _NAME.fullmatch(text.lower()):
        return text.lower()
    raise CfnadeError(
        f"--allow-host {text!r} is no name of a host; give it without scheme and port, such as "
        "films.example.org, or * for any"
    )


class TrustedHostMiddleware:
    """Refuses requests that call the service by another name."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            called = [value for name, value in scope["headers"] if name == b"host"]
            # Without one it is no browser: HTTP/1.1 asks for it, and the parser has seen to that.
            if not all(self._may(value.decode("latin-1")) for value in called):
                refusal = ApiError(
                    421,
                    "this service does not go by the name in Host; if it should, start it with "
                    "--allow-host NAME",
                )
                await problem_response(refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _may(self, called: str) -> bool:
        name = _plain(re.sub(r":\d*$", "", called))
        return name in self.names or _is_address(name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
