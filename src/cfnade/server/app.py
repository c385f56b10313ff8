"""The service as an ASGI application: lifespan, middleware, routers and the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from cfnade import __version__
from cfnade.server.auth import SECURITY_SCHEMES, Authenticator, current_principal
from cfnade.server.errors import add_exception_handlers, problem_responses
from cfnade.server.metrics import ModelCollector, RequestMetrics, StoreCollector
from cfnade.server.middleware import (
    DOCS_POLICY,
    RequestLimitsMiddleware,
    RequestLogMiddleware,
    SecurityHeadersMiddleware,
    TrustedHostMiddleware,
    host_names,
)
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.routers import inference, items, system
from cfnade.server.settings import ServerSettings
from cfnade.server.worker_pool import WorkerPool

PAGE = Path(__file__).parent / "page"
_REVALIDATED = {"cache-control": "no-cache"}
"""Browsers ask at each visit whether a file has changed."""
_MIN_COMPRESSED = 500
"""Bytes from which compression pays: lists shrink to a fifth."""


def create_app(registry: ModelRegistry, settings: ServerSettings) -> FastAPI:
    """Return the application; app.state has registry, pool, authenticator and user_ratings."""
    app = FastAPI(
        title="cfnade",
        version=__version__,
        description="Predicts what rating a user would give an item, as a whole distribution, and "
        "which items they would choose next.",
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    state = app.state
    state.registry, state.settings = registry, settings
    state.pool = WorkerPool(settings.limits)
    state.authenticator = Authenticator(settings.api_key) if settings.api_key else None
    state.metrics = RequestMetrics()
    state.metrics.registry.register(ModelCollector(registry))
    state.user_ratings = None
    routers = [inference.router, items.router, system.router]
    if settings.store_url is not None:
        # The database driver is imported only where there is a store.
        from cfnade.server.routers import users
        from cfnade.server.user_ratings import UserRatings

        state.user_ratings = UserRatings(settings.store_url, settings.limits)
        state.metrics.registry.register(StoreCollector(state.user_ratings))
        routers += [items.store_router, users.router]
        routers += [users.token_router] if settings.api_key else []
    _include_routers(app, routers, keyed=settings.api_key is not None)
    _add_page(app)
    add_exception_handlers(app)
    _add_middleware(app, settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    async with AsyncExitStack() as stack:
        stack.callback(state.pool.close)
        if state.user_ratings is not None:
            stack.push_async_callback(asyncio.to_thread, state.user_ratings.close)
        await stack.enter_async_context(state.registry.watch(state.settings.watch))
        yield


def _include_routers(app: FastAPI, routers: list[APIRouter], *, keyed: bool) -> None:
    """Add the routes; where a key is set, all but /health require it."""
    required: dict[str, Any] = {"dependencies": [Depends(current_principal)]}
    if keyed:
        required["dependencies"] += SECURITY_SCHEMES
        required["responses"] = problem_responses(401, 403)
    for router in routers:
        app.include_router(router, **required)
    app.include_router(system.open_router)


def _add_page(app: FastAPI) -> None:
    """Add the page and the documentation."""

    async def index(_: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers=_REVALIDATED)

    async def docs(_: Request) -> Response:
        page = get_swagger_ui_html(
            openapi_url="openapi.json",
            title="cfnade",
            swagger_js_url="docs/swagger-ui-bundle.js",
            swagger_css_url="docs/swagger-ui.css",
            swagger_favicon_url="page/icon.svg",
        )
        page.headers["content-security-policy"] = DOCS_POLICY
        return page

    app.add_route("/", index, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)
    app.mount("/docs", StaticFiles(packages=[("fastapi_offline", "static")]))
    app.mount("/page", PageFiles(directory=PAGE))


class PageFiles(StaticFiles):
    """The files of the page."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(_REVALIDATED)
        return response


def _add_middleware(app: FastAPI, settings: ServerSettings) -> None:
    """Add middleware; the last one added is the first that a request meets."""
    app.add_middleware(GZipMiddleware, minimum_size=_MIN_COMPRESSED, compresslevel=1)
    app.add_middleware(RequestLimitsMiddleware, limits=settings.limits)
    if settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allow_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["authorization", "content-type", "x-api-key"],
        )
    names = host_names(settings.host, settings.allow_hosts)
    if names is not None:
        app.add_middleware(TrustedHostMiddleware, names=names)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(
        RequestLogMiddleware, metrics=app.state.metrics, log_format=settings.access_log
    )
