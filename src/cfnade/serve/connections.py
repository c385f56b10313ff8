"""Connections that do not speak: each has a deadline for its next request, and there is a cap.

uvicorn closes a connection that is idle after an answer, but waits for ever for one that never sent
a request, sends it byte by byte, or goes on with a body nobody reads. Here time runs whenever no
request is being answered, and new data does not set it back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from cfnade.serve.limits import Limits
from cfnade.serve.problems import problem_body
from cfnade.serve.security import HEADERS

_log = logging.getLogger("cfnade.serve")


class LimitedConfig(Config):
    """uvicorn's settings with our limits: what every connection gets to see."""

    def __init__(self, *given: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*given, **options)
        self.limits = limits


class Connection(H11Protocol):
    """One connection."""

    def __init__(self, config: LimitedConfig, *given: Any, **options: Any) -> None:
        super().__init__(config, *given, **options)
        self.limits = config.limits
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        """Start the clock unless a request is being answered or it runs already."""
        if self._busy():
            self._request_came()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            seconds = self.limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._close_silently)

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _request_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_silently(self) -> None:
        if not self._busy():
            self.transport.abort()

    def _make_room(self) -> None:
        """Close the connection that has waited for longest, this one if all others are busy."""
        others = [cast(Connection, other) for other in self.connections]
        waiting = [other for other in others if not other._busy()]
        min(waiting, key=Connection._closes_at).transport.abort()
        _log.warning("more than %d connections: closed a silent one", self.limits.connections)

    def _closes_at(self) -> float:
        timer = self._deadline or self.timeout_keep_alive_task
        return float("inf") if timer is None else timer.when()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the form of all other refusals."""
        del msg
        detail = (
            "this is not a request of HTTP/1.1, or its headers are longer than "
            f"{self.limits.header_bytes:,} bytes"
        )
        body = problem_body(400, detail)
        headers: list[Any] = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        headers += [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events = [h11.Response(status_code=400, headers=headers), h11.Data(data=body)]
        try:
            for event in [*events, h11.EndOfMessage()]:
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer to the same request was under way
            pass
        self.transport.close()
