"""The service as an ASGI application: addresses, and what stands before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from starlette.middleware.cors import CORSMiddleware

from cfnade import __version__
from cfnade.serve import assets
from cfnade.serve.addresses import router
from cfnade.serve.docs import complete, docs_page
from cfnade.serve.guards import Door, Shell
from cfnade.serve.limits import Limits, Work
from cfnade.serve.loading import Models, keep_fresh
from cfnade.serve.problems import add_handlers


def create_app(
    models: Models,
    *,
    limits: Limits | None = None,
    key: str | None = None,
    cors: Sequence[str] = (),
    watch: float | None = None,
) -> FastAPI:
    """The service of a folder's model, which is loaded when the service starts if it is not yet.

    With a key, clients must send it. cors names other origins whose pages may ask. watch is the
    number of seconds after which the folder is looked at again for another model.
    """
    limits = limits or Limits()
    work = Work(limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with keep_fresh(models, watch):
            yield
        work.close()

    app = FastAPI(
        title="cfnade",
        version=__version__,
        description="What rating a person would give an item, as a whole distribution.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(router(models, work, limits))
    complete(app, keyed=key is not None)
    _add_pages(app)
    add_handlers(app)
    # The last one added is the first that a request meets.
    app.add_middleware(Door, limits=limits, key=key)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key"],
        )
    app.add_middleware(Shell)
    return app


def _add_pages(app: FastAPI) -> None:
    files = assets.read_assets() | docs_page(app.openapi())

    def add(path: str, name: str | None = None) -> None:
        async def page(request: Request) -> Response:
            return assets.respond(files, name or request.path_params["name"], request)

        app.add_api_route(path, page, include_in_schema=False)

    add("/", "index.html")
    add("/docs", "docs.html")
    add("/docs/style.css", "docs.css")
    add("/page/{name:path}")
