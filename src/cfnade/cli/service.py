"""`cfnade serve`: a saved model over HTTP, with a page."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated

import typer

from cfnade.cli.arguments import Model
from cfnade.cli.doctor import compile_kernels
from cfnade.errors import CfnadeError

_ORIGIN = re.compile(r"https?://[^/\s*]+")


def serve(
    model: Model,
    *,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; 0.0.0.0 for all of the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="0 takes one that is free.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Processes, each with the model.")
    ] = 1,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", help="Another origin whose pages may ask; may be repeated."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Load a new model as soon as it is saved.")
    ] = False,
) -> None:
    """Serve a model and its page over HTTP.

    The variable CFNADE_API_KEY sets a key that clients must send. SIGHUP loads the model again.

    \b
      cfnade serve model
      cfnade serve model --port 9000 --watch
    """
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise CfnadeError('serving needs two more packages: pip install "cfnade[serve]"')
    from cfnade.serve.guards import key_from_environment
    from cfnade.serve.server import ServeSettings
    from cfnade.serve.server import serve as run

    if model.is_dir():  # if not, the reason comes without delay
        compile_kernels("requests", "picks")
    run(
        ServeSettings(
            folder=model,
            host=host,
            port=port,
            workers=workers,
            key=key_from_environment(),
            cors=tuple(_origin(text) for text in cors or []),
            watch=_SECONDS if watch else None,
        )
    )


_SECONDS = 2.0
"""How often the folder is looked at."""


def _origin(text: str) -> str:
    if text == "*" or _ORIGIN.fullmatch(text):
        return text
    raise CfnadeError(
        f"--cors {text!r} is no origin; give it as browsers do, such as https://example.org:8443, "
        "or * for any"
    )
