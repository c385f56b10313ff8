"""Run the service with uvicorn: one process, or several that share a socket."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import FastAPI
from uvicorn import Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from cfnade.exceptions import CfnadeError
from cfnade.server.app import create_app
from cfnade.server.connection import LimitedConfig
from cfnade.server.metrics import SHARED_DIR
from cfnade.server.middleware import ACCESS_LOG
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.settings import ServerSettings

_log = logging.getLogger("cfnade.server")
_SHUTDOWN_SECONDS = 30
"""Seconds in which running requests may finish after a signal to stop."""
_STARTUP_SECONDS = 120
"""Seconds that a new worker may take to load the model."""
_SEND_BUFFER = 1 << 17
"""Bytes of answers that the kernel keeps for a connection (Linux doubles it)."""
_SWITCH_INTERVAL = 0.001
"""Seconds for which a thread runs while others wait. A response passes through several threads, and
Python's own 0.005 add up."""
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


def run_server(settings: ServerSettings) -> None:
    """Serve until a signal says stop, then finish the running requests."""
    settings.check_exposure()
    with bind(settings.host, settings.port) as listener:
        registry = ModelRegistry(settings.model_dir)
        registry.load()  # errors of the model come before anything listens
        one_process = settings.workers == 1
        config = _config(settings, registry if one_process else None)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _log.info("%s: on http://%s (stop with Ctrl-C)", settings.model_dir, address)
        if one_process:
            # uvicorn raises the signal again once all is finished; here it is no error.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: None)
            Server(config).run([listener])
            return
        del registry
        workers = Multiprocess(config, [listener])
        with _shared_metrics_dir():
            workers.run()
        if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
            raise CfnadeError("a worker could not start; its message is above")


@contextmanager
def _shared_metrics_dir() -> Iterator[None]:
    """Name a folder for the counts of all workers, before they are started."""
    with TemporaryDirectory(prefix="cfnade-metrics-") as folder:
        os.environ[SHARED_DIR] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_DIR]


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


def _app(settings: ServerSettings, registry: ModelRegistry | None) -> FastAPI:
    sys.setswitchinterval(_SWITCH_INTERVAL)
    return create_app(registry or ModelRegistry(settings.model_dir), settings)


def _config(settings: ServerSettings, registry: ModelRegistry | None) -> LimitedConfig:
    return LimitedConfig(
        partial(_app, settings, registry),
        settings.limits,
        factory=True,
        workers=settings.workers,
        lifespan="on",
        log_config=_LOGGING,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_worker_healthcheck=_STARTUP_SECONDS,
    )
