"""Run the service with uvicorn: one process, or several that share a socket.

Connections that do not speak have a deadline for their next request, and there is a cap. uvicorn
closes a connection that is idle after an answer, but waits for ever for one that never sent a
request, sends it byte by byte, or goes on with a body nobody reads. Here time runs whenever no
request is being answered, and new data does not set it back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import h11
from fastapi import FastAPI
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from cfnade.exceptions import CfnadeError
from cfnade.serve.access import ACCESS_LOG, Style
from cfnade.serve.app import create_app
from cfnade.serve.figures import SHARED
from cfnade.serve.guards import HEADERS, own_names
from cfnade.serve.limits import Limits
from cfnade.serve.loading import Models
from cfnade.serve.problems import problem_body

_log = logging.getLogger("cfnade.serve")
_FINISH = 30
"""Seconds in which requests under way may finish after a signal to stop."""
_START = 120
"""Seconds that a new worker may take to load the model."""
_TURN = 0.001
"""Seconds for which a thread goes on while others wait. An answer passes through several threads,
and Python's own 0.005 add up."""
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "%(asctime)s %(message)s"},
        "bare": {"format": "%(message)s"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "plain"},
        "stdout": {
            "class": "logging.StreamHandler",
            "formatter": "bare",
            "stream": "ext://sys.stdout",
        },
    },
    "loggers": {
        ACCESS_LOG: {"handlers": ["stdout"], "level": "INFO", "propagate": False},
        "cfnade": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


@dataclass(frozen=True)
class ServeSettings:
    """How to serve; everything in it can be sent to another process."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    key: str | None = None
    cors: Sequence[str] = ()
    hosts: Sequence[str] = ()
    """Names by which it may be called besides its own."""
    watch: float | None = None
    access_log: Style | None = None
    store: str | None = None
    noun: str | None = None
    """What the page calls an item; None: what the data say."""
    limits: Limits = field(default_factory=Limits)


def serve(settings: ServeSettings) -> None:
    """Serve until a signal says stop, then finish what is under way."""
    with bind(settings.host, settings.port) as listener:
        models = Models(settings.folder)
        models.load()  # whatever is wrong with the model shows here, before anything listens
        alone = settings.workers == 1
        config = _config(settings, models if alone else None)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        _log.info("%s: on http://%s:%d (stop with Ctrl-C)", settings.folder, shown, port)
        if alone:
            # uvicorn raises the signal again once all is finished: that was the wish, no error.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: None)
            Server(config).run([listener])
            return
        del models
        workers = Multiprocess(config, [listener])
        with _counting_together():
            workers.run()
        if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
            raise CfnadeError("a worker could not start; its message is above")


@contextmanager
def _counting_together() -> Iterator[None]:
    """A folder for the counts of workers, so that whichever is asked tells those of all."""
    with TemporaryDirectory(prefix="cfnade-metrics-") as folder:
        os.environ[SHARED] = folder
        try:
            yield
        finally:
            del os.environ[SHARED]


def bind(host: str, port: int) -> socket.socket:
    """A socket on that address, or the reason why there is none."""
    listener = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.set_inheritable(True)
    except (OSError, OverflowError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise CfnadeError(
            f"cannot listen on {host} port {port}: {reason}; give another --port or --host, or "
            "stop what listens there"
        ) from error
    return listener


def _app(settings: ServeSettings, models: Models | None) -> FastAPI:
    sys.setswitchinterval(_TURN)
    return create_app(
        models or Models(settings.folder),
        limits=settings.limits,
        key=settings.key,
        cors=settings.cors,
        hosts=own_names(settings.host, settings.hosts),
        watch=settings.watch,
        access_log=settings.access_log,
        store=settings.store,
        noun=settings.noun,
    )


def _config(settings: ServeSettings, models: Models | None) -> LimitedConfig:
    return LimitedConfig(
        partial(_app, settings, models),
        limits=settings.limits,
        factory=True,
        workers=settings.workers,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=_LOGGING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=settings.limits.header_bytes,
        timeout_graceful_shutdown=_FINISH,
        timeout_worker_healthcheck=_START,
    )


# -- connections ---------------------------------------------------------------------------------


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
