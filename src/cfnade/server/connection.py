"""Deadlines and a cap for connections.

uvicorn closes a connection that is idle after an answer, but waits forever for a client that never
sends a request, sends it byte by byte, or does not read the answer; its limit_concurrency counts
such connections and then refuses everybody. Here a connection that waits for its client has a
deadline, which new data does not extend, and beyond the cap the one that has waited longest is
closed. Only connections whose request the service is working on are safe from that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from cfnade.server.errors import ApiError, problem_response
from cfnade.server.middleware import HEADERS
from cfnade.server.settings import Limits

_log = logging.getLogger("cfnade.server")
_WARN_SECONDS = 60.0
"""Seconds between warnings that the service is full."""


class LimitedConfig(Config):
    """Settings of uvicorn for a service with limits."""

    def __init__(self, app: Any, limits: Limits, **options: Any) -> None:
        super().__init__(
            app,
            http=Connection,
            ws="none",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=limits.header_bytes,
            # Each turn of the event loop accepts as many connections as the backlog holds, before
            # any is counted: a small one keeps a burst from using up all file descriptors.
            backlog=min(128, limits.connections),
            **options,
        )
        self.limits = limits
        self.warned_at = float("-inf")


class Connection(H11Protocol):
    """One connection of a client."""

    def __init__(self, config: LimitedConfig, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self._config, self.limits = config, config.limits
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Writing pauses while the kernel has not taken everything, so that an unread answer shows.
        transport.set_write_buffer_limits(high=0)
        self._wait_anew()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_anew()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_anew()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_anew()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    # -- deadlines --------------------------------------------------------------------------------

    def _awaits_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _waits_for_client(self) -> bool:
        """Whether the client has to send the rest of a request or to read an answer."""
        return self.flow.write_paused or self._awaits_request() or self.cycle.more_body

    def _wait_anew(self) -> None:
        self._waiting_since = self.loop.time()
        self._update_deadline()

    def _update_deadline(self) -> None:
        """Set the deadline that the state of the connection asks for.

        For a body it is the middleware's, which answers with 408.
        """
        self._cancel_deadline()
        if self.flow.write_paused:  # also while the connection is closing
            seconds = self.limits.write_seconds
        elif self._awaits_request() and not self.transport.is_closing():
            seconds = self.limits.body_seconds
        else:
            return
        self._deadline = self.loop.call_at(self._waiting_since + seconds, self.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort(self) -> None:
        """Close the connection at once; what is not written yet is lost."""
        self._cancel_deadline()
        self.connections.discard(self)  # it counts no longer, though the transport closes later
        self.transport.abort()

    # -- cap --------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Close the connection that has waited for its client longest; this one if none waits."""
        connections = cast(set[Connection], self.connections)
        waiting = [peer for peer in connections if peer._waits_for_client()]
        min(waiting, key=lambda peer: peer._waiting_since).abort()
        now = self.loop.time()
        if now - self._config.warned_at > _WARN_SECONDS:
            self._config.warned_at = now
            limit = self.limits.connections
            _log.warning("more than %d connections: closing those that wait longest", limit)

    # -- what is not HTTP -------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the form of all other refusals."""
        del msg
        detail = (
            "this is not a request of HTTP/1.1, or its headers are longer than "
            f"{self.limits.header_bytes:,} bytes"
        )
        error = ApiError(400, detail, headers=HEADERS | {"connection": "close"})
        response = problem_response(error)
        events: list[h11.Event] = [
            h11.Response(status_code=400, headers=response.raw_headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ]
        try:
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer to the same request was under way
            pass
        self.transport.close()
