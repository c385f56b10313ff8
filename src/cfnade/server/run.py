"""Run the service with uvicorn: one process, or several that share a socket."""

from __future__ import annotations

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
from typing import Any

from fastapi import FastAPI
from uvicorn import Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from cfnade.exceptions import CfnadeError
from cfnade.server.app import create_app
from cfnade.server.connection import Connection, LimitedConfig
from cfnade.server.metrics import SHARED
from cfnade.server.middleware import ANY, KEY_VARIABLE, own_names
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.request_log import ACCESS_LOG, Style
from cfnade.server.settings import Limits

_log = logging.getLogger("cfnade.server")
_FINISH = 30
"""Seconds in which requests under way may finish after a signal to stop."""
_START = 120
"""Seconds that a new worker may take to load the model."""
_SEND_BUFFER = 1 << 17
"""Bytes of answers that the kernel keeps for a connection (Linux doubles it)."""
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
class ServerSettings:
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

    def __post_init__(self) -> None:
        if self.store is None or self.key is not None:
            return
        for option, values in (("--allow-origin", self.cors), ("--allow-host", self.hosts)):
            if ANY in values:
                raise CfnadeError(
                    f"{option} {ANY} with --store and without a key lets every web page that you "
                    f"open read and change the stored ratings; set {KEY_VARIABLE}, or name the "
                    f"{option.removeprefix('--allow-')}s"
                )


def run_server(settings: ServerSettings) -> None:
    """Serve until a signal says stop, then finish what is under way."""
    with bind(settings.host, settings.port) as listener:
        models = ModelRegistry(settings.folder)
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
        # Connections inherit it: the kernel would keep megabytes for each client that reads slowly.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
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


def _app(settings: ServerSettings, models: ModelRegistry | None) -> FastAPI:
    sys.setswitchinterval(_TURN)
    return create_app(
        models or ModelRegistry(settings.folder),
        limits=settings.limits,
        key=settings.key,
        cors=settings.cors,
        hosts=own_names(settings.host, settings.hosts),
        watch=settings.watch,
        access_log=settings.access_log,
        store=settings.store,
        noun=settings.noun,
    )


def _config(settings: ServerSettings, models: ModelRegistry | None) -> LimitedConfig:
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
