"""Every request is counted and, if asked, written down: when, who, what, how it ended, how long.

What people ask stays out of it: no query, no body, no key.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.server.metrics import Metrics

Style = Literal["plain", "json"]
ACCESS_LOG = "cfnade.access"
_log = logging.getLogger(ACCESS_LOG)
_GONE = 499
"""Status of a request whose client left before there was an answer, as proxies write it."""
_FOLDER = "/page/"


class RequestLogMiddleware:
    """Stands outside everything else, so that refusals count, too."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Collection[str], style: Style | None
    ) -> None:
        self.app, self.metrics, self.style = app, metrics, style
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size = time.perf_counter(), _GONE, 0

        async def noted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - began
            self.metrics.count(scope["method"], self._known(scope["path"]), status, seconds)
            if self.style is not None:
                _log.info("%s", line(scope, status, size, seconds, self.style))

    def _known(self, path: str) -> str:
        """The path as a label, of which there must be few whatever clients ask for."""
        if path.startswith(_FOLDER):
            return _FOLDER
        path = without_names(path)
        return path if path in self._paths else "other"


def without_names(path: str) -> str:
    """A path as it may be noted: whose it is, and of which item, stays out of logs and figures."""
    parts = path.split("/")
    if parts[1:2] != ["people"] or len(parts) < 3:
        return path
    own = "/".join(parts[3:4])
    return "/people/{person}" + (f"/{own}" if own else "") + ("/{item}" if parts[4:] else "")


def line(scope: Scope, status: int, size: int, seconds: float, style: Style) -> str:
    """One request as one line, whatever its path contains."""
    said = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": (scope.get("client") or ("-",))[0],
        "method": scope["method"],
        "path": without_names(scope["path"]),
        "status": status,
        "bytes": size,
        "ms": round(1000 * seconds, 1),
    }
    if style == "json":
        return json.dumps(said)
    asked = json.dumps(f"{said['method']} {said['path']}")  # no line end gets through
    return f"{said['time']} {said['client']} {asked} {status} {size} {said['ms']} ms"
