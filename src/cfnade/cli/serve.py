"""`cfnade serve`: a saved model over HTTP, with a page."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Literal

from cfnade.cli.options import ItemName, Model, option
from cfnade.cli.process import compile_kernels, gc_frozen
from cfnade.cli.store import STORES
from cfnade.exceptions import CfnadeError

_ORIGIN = re.compile(r"https?://[^/\s*]+")
_WATCH_INTERVAL = 2.0  # seconds
_network = partial(option, panel="Network")


def serve(
    model: Model,
    *,
    host: Annotated[str, _network("ADDRESS", "Address; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, _network("N", "Port; 0 takes a free one.", min=0, max=65_535)] = 8000,
    allow_host: Annotated[
        list[str] | None, _network("NAME", "Another name of the service (repeatable).")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, _network("ORIGIN", "Web origin that may send requests (repeatable).")
    ] = None,
    store: Annotated[str | None, option("STORE", STORES)] = None,
    item_name: ItemName = None,
    workers: Annotated[int, option("N", "Processes, each with the model.", min=1, max=256)] = 1,
    watch: Annotated[bool, option("--watch", "Load a new model as soon as it is saved.")] = False,
    access_log: Annotated[
        Literal["plain", "json"] | None, option("FORMAT", "Log requests: plain or json.")
    ] = None,
) -> None:
    """Serve a model and its page over HTTP.

    Clients must send the API key in the environment variable CFNADE_API_KEY, if it is set. A
    missing SQLite store is created. SIGHUP reloads the model.

    \b
      cfnade serve model
      cfnade serve model --port 9000 --watch
      cfnade serve model --store ratings.db
    """
    if any(find_spec(name) is None for name in ("fastapi", "prometheus_client", "uvicorn")):
        raise CfnadeError("serving needs further packages: pip install 'cfnade[serve]'")
    with gc_frozen():
        from cfnade.server.auth import key_from_environment
        from cfnade.server.middleware import validate_host
        from cfnade.server.run import run_server
        from cfnade.server.settings import ServerSettings, validate_item_name

    if model.is_dir():
        if store is not None:  # errors of the store come before the service listens
            from cfnade.online.engine import is_missing_file
            from cfnade.online.event_store import EventStore

            EventStore.open(store, create=is_missing_file(store)).close()
        compile_kernels("inference")
    run_server(
        ServerSettings(
            model_dir=model,
            host=host,
            port=port,
            workers=workers,
            api_key=key_from_environment(),
            allow_origins=tuple(_checked_origin(text) for text in allow_origin or []),
            allow_hosts=tuple(validate_host(text) for text in allow_host or []),
            watch=_WATCH_INTERVAL if watch else None,
            access_log=access_log,
            store_url=store,
            item_name=validate_item_name(item_name),
        )
    )


def _checked_origin(text: str) -> str:
    if text == "*" or _ORIGIN.fullmatch(text):
        return text
    raise CfnadeError(
        f"--allow-origin {text}: is not an origin; give it as browsers do, such as "
        "https://example.org:8443, or * for any"
    )
