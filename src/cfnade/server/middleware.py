"""Security headers, host check, limits and the log of requests."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import time
from collections.abc import Collection
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.exceptions import CfnadeError
from cfnade.server.errors import ApiError, problem_response
from cfnade.server.metrics import RequestMetrics
from cfnade.server.settings import ANY, Limits, LogFormat

_log = logging.getLogger("cfnade.server")
ACCESS_LOG = "cfnade.access"
_access_log = logging.getLogger(ACCESS_LOG)
_CLIENT_LEFT = 499
"""Status of a request whose client left before there was an answer, as proxies write it."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DOCS_POLICY = POLICY.replace("-src 'self';", "-src 'self' 'unsafe-inline';", 2)
"""Swagger UI has a script and styles in its page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeadersMiddleware:
    """Adds security headers to every response, and answers unexpected errors with a bare 500.

    The reason of an unexpected error goes to the log and nowhere else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            _log.exception("%s %s failed", scope.get("method"), scope.get("path"))
            if started or scope["type"] != "http":
                raise
            error = ApiError(500, "the service failed on this request; its log says why")
            await problem_response(error)(scope, receive, send_with_headers)


class RequestLogMiddleware:
    """Counts every request, refused ones too, and logs it if asked.

    The log has the template of the route: no query, body, key, user or item.
    """

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, log_format: LogFormat | None) -> None:
        self.app, self.metrics, self.log_format = app, metrics, log_format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, size = time.perf_counter(), _CLIENT_LEFT, 0

        async def send_and_note(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            seconds, path = time.perf_counter() - start, route_template(scope)
            self.metrics.count(scope["method"], path, status, seconds)
            if self.log_format is not None:
                self._log(scope, path, status, size, seconds)

    def _log(self, scope: Scope, path: str, status: int, size: int, seconds: float) -> None:
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": (scope.get("client") or ("-",))[0],
            "method": scope["method"],
            "path": path,
            "status": status,
            "bytes": size,
            "ms": round(1000 * seconds, 1),
        }
        if self.log_format == "json":
            _access_log.info("%s", json.dumps(fields))
            return
        request = json.dumps(f"{fields['method']} {path}")  # escapes line ends
        line = f"{fields['time']} {fields['client']} {request} {status} {size} {fields['ms']} ms"
        _access_log.info("%s", line)


def route_template(scope: Scope) -> str:
    """Return the path of the route that a request met, such as /users/{user_id}/ratings."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return "/page" if scope["path"].startswith("/page/") else "other"
    return str(path).replace(":path}", "}")


class RequestLimitsMiddleware:
    """Refuses requests that are malformed, too long or too slow.

    A body that is too long or too slow, declared or not, is refused before it is all in memory.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if error := self._error(scope):
            await problem_response(error)(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
        size, complete = 0, False

        async def receive_limited() -> Message:
            nonlocal size, complete
            if complete:  # what follows is a disconnection, which may take any time
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                seconds = self.limits.body_seconds
                raise ApiError(
                    408, f"the body took longer than {seconds:g} s to arrive; send it again"
                ) from None
            size += len(message.get("body", b""))
            if size > self.limits.body_bytes:
                raise self._too_long()
            complete = not message.get("more_body", False)
            return message

        await self.app(scope, receive_limited, send)

    def _error(self, scope: Scope) -> ApiError | None:
        """Return what is wrong with the address and the headers."""
        headers = dict(scope["headers"])
        # A proxy before the service may see the end of the body elsewhere (request smuggling).
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return ApiError(
                400,
                "send Content-Length or Transfer-Encoding, and not both",
                headers={"Connection": "close"},
            )
        try:
            # The server replaces what is not UTF-8, so that ids of users would become the same.
            unquote_to_bytes(scope.get("raw_path") or b"").decode()
        except UnicodeDecodeError:
            return ApiError(400, "the path is not UTF-8; percent-encode the UTF-8 bytes of ids")
        # The parser bounds its buffer only; headers that arrive at once get past it.
        head_bytes = len(scope["path"]) + len(scope["query_string"])
        head_bytes += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head_bytes > self.limits.header_bytes:
            limit = self.limits.header_bytes
            return ApiError(431, f"address and headers are longer than {limit:,} bytes; send fewer")
        declared = headers.get(b"content-length", b"")
        is_too_long = declared.isdigit() and int(declared[:20]) > self.limits.body_bytes
        return self._too_long() if is_too_long else None

    def _too_long(self) -> ApiError:
        limit = self.limits.body_bytes
        return ApiError(
            413, f"the body is longer than {limit:,} bytes; send fewer ratings or items at a time"
        )


# -- names of the service ------------------------------------------------------------------------
# A page from anywhere may point a name of its own at 127.0.0.1 and then send requests as if it were
# ours (DNS rebinding). It cannot hide that name: browsers send it as Host. IP addresses cannot be
# borrowed in this way, so they are always accepted; Starlette's middleware would refuse them.

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def host_names(host: str, more: Collection[str]) -> frozenset[str] | None:
    """Return the names of a service that listens on a host, and those given; None for any."""
    if ANY in more:
        return None
    names = ["localhost", socket.gethostname(), host, *more]
    return frozenset(name.lower().removesuffix(".") for name in names)


def validate_host(text: str) -> str:
    """Return a name given on the command line."""
    if text == ANY or _NAME.fullmatch(text.lower()):
        return text.lower()
    raise CfnadeError(
        f"--allow-host {text!r} is no name of a host; give it without scheme and port, such as "
        "films.example.org, or * for any"
    )


class TrustedHostMiddleware:
    """Refuses requests that call the service by a name that is not its own."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Browsers always send one, and the parser requires it of HTTP/1.1.
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if all(self._is_trusted(host.decode("latin-1")) for host in hosts):
            await self.app(scope, receive, send)
            return
        error = ApiError(
            421,
            "this service does not go by the name in Host; if it should, start it with "
            "--allow-host NAME",
        )
        await problem_response(error)(scope, receive, send)

    def _is_trusted(self, host: str) -> bool:
        name = re.sub(r":\d*$", "", host).lower().removesuffix(".")
        return name in self.names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
