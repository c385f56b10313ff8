"""`cfnade serve`: a saved model over HTTP, with a page."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from cfnade.cli.arguments import Model
from cfnade.cli.at_work import compile_kernels, lasting, say
from cfnade.exceptions import CfnadeError

Style = Literal["plain", "json"]
_ORIGIN = re.compile(r"https?://[^/\s*]+")


Host = Annotated[
    str, typer.Option("--host", help="Where to listen; 0.0.0.0 for all of the network.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes one that is free.")]
Workers = Annotated[
    int, typer.Option("--workers", min=1, max=256, help="Processes, each with the model.")
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin", "--cors", help="Another origin whose pages may ask; may be repeated."
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="Another name that the service goes by; may be repeated."),
]
AccessLog = Annotated[
    Style | None, typer.Option("--access-log", help="Write every request to standard output.")
]
Noun = Annotated[
    str | None, typer.Option("--noun", help="What the page calls an item, such as book or song.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Load a new model as soon as it is saved.")]
KeptIn = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Keep what people say in this store; a missing SQLite file is created.",
        metavar="STORE",
    ),
]


def serve(
    model: Model,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 1,
    origins: Origins = None,
    hosts: Hosts = None,
    access_log: AccessLog = None,
    noun: Noun = None,
    watch: Watch = False,
    store: KeptIn = None,
) -> None:
    """Serve a model and its page over HTTP.

    The variable CFNADE_API_KEY sets a key that clients must send. SIGHUP loads the model again.

    \b
      cfnade serve model
      cfnade serve model --port 9000 --watch
      cfnade serve model --store ratings.db
    """
    if any(find_spec(name) is None for name in ("fastapi", "prometheus_client", "uvicorn")):
        raise CfnadeError('serving needs a few more packages: pip install "cfnade[serve]"')
    with lasting():
        from cfnade.server.item_metadata import validate_item_name
        from cfnade.server.middleware import key_from_environment, validate_host
        from cfnade.server.run import ServerSettings, run_server

    if model.is_dir():  # if not, the reason comes without delay
        if store is not None:  # whatever is wrong with it shows here, before anything listens
            from cfnade.online.engine import make_missing_file, open_store

            if made := make_missing_file(store):
                say(f"{made}: created a new store, which is empty")
            open_store(store).close()
        compile_kernels("inference")
    run_server(
        ServerSettings(
            folder=model,
            host=host,
            port=port,
            workers=workers,
            key=key_from_environment(),
            cors=tuple(_origin(text) for text in origins or []),
            hosts=tuple(validate_host(text) for text in hosts or []),
            watch=_SECONDS if watch else None,
            access_log=access_log,
            store=store,
            noun=validate_item_name(noun),
        )
    )


_SECONDS = 2.0
"""How often the folder is looked at."""


def _origin(text: str) -> str:
    if text == "*" or _ORIGIN.fullmatch(text):
        return text
    raise CfnadeError(
        f"--allow-origin {text!r} is no origin; give it as browsers do, such as "
        "https://example.org:8443, or * for any"
    )
