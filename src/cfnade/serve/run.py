"""Run the service with uvicorn: one process, or several that share a socket."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from uvicorn import Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from cfnade.errors import CfnadeError
from cfnade.serve.app import create_app
from cfnade.serve.connections import Connection, LimitedConfig
from cfnade.serve.limits import Limits
from cfnade.serve.loading import Models

_log = logging.getLogger("cfnade.serve")
_FINISH = 30
"""Seconds in which requests under way may finish after a signal to stop."""
_START = 120
"""Seconds that a new worker may take to load the model."""
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "cfnade": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


@dataclass(frozen=True)
class Settings:
    """How to serve; everything in it can be sent to another process."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    key: str | None = None
    cors: Sequence[str] = ()
    watch: float | None = None
    limits: Limits = field(default_factory=Limits)


def serve(settings: Settings) -> None:
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
            _serve_here(config, listener)
        else:
            del models
            _serve_in_workers(config, listener)


def bind(host: str, port: int) -> socket.socket:
    """A socket on that address, or the reason why there is none."""
    listener = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
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


def _app(settings: Settings, models: Models | None) -> FastAPI:
    return create_app(
        models or Models(settings.folder),
        limits=settings.limits,
        key=settings.key,
        cors=settings.cors,
        watch=settings.watch,
    )


def _config(settings: Settings, models: Models | None) -> LimitedConfig:
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


def _serve_here(config: LimitedConfig, listener: socket.socket) -> None:
    # uvicorn raises the signal again once all is finished: that was the wish, and no error.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Server(config).run([listener])


def _serve_in_workers(config: LimitedConfig, listener: socket.socket) -> None:
    workers = Multiprocess(config, [listener])
    workers.run()
    if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
        raise CfnadeError("a worker could not start; its message is above")
