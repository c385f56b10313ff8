"""How the application comes to its store: nothing of it is imported, or there, without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI

from cfnade.server.model_registry import ModelRegistry
from cfnade.server.settings import Limits, WorkerPool

if TYPE_CHECKING:
    from cfnade.server.auth import Authenticator
    from cfnade.server.metrics import Metrics
    from cfnade.server.user_ratings import UserRatings


class Stored:
    """The store of an application, if it has one."""

    visitors: UserRatings | None = None
    _tokens: Authenticator | None = None

    def __init__(self, address: str | None, limits: Limits, key: str | None) -> None:
        if address is None:
            return
        from cfnade.server.auth import Authenticator
        from cfnade.server.user_ratings import UserRatings

        self.visitors = UserRatings(address, limits)
        self._tokens = None if key is None else Authenticator(key)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        if self.visitors is None:
            yield
            return
        async with self.visitors.open():
            yield

    def routers(self, models: ModelRegistry, work: WorkerPool, **how: Any) -> list[APIRouter]:
        if self.visitors is None:
            return []
        from cfnade.server.routers.users import person_router

        return [person_router(self.visitors, models, work, self._tokens, **how)]

    def add_passport(self, app: FastAPI) -> None:
        """Before the door: who carries a token of theirs may pass it."""
        if self._tokens is not None:
            from cfnade.server.auth import TokenMiddleware

            app.add_middleware(TokenMiddleware, tokens=self._tokens)

    def add_figures(self, metrics: Metrics) -> None:
        """How much came, how well it was foreseen, and by whom: a model that goes stale shows."""
        if (visitors := self.visitors) is None:
            return
        metrics.add("cfnade_store_events", "Events in the store.", visitors.events)
        metrics.add(
            "cfnade_online_rmse",
            "Error of what was expected of the most recent ratings before they came.",
            visitors.online_rmse,
        )
        metrics.add(
            "cfnade_people_asked",
            "Requests of people, by whether this process's model was trained on them.",
            visitors.asked,
            label="known",
            kind="counter",
        )
        metrics.add(
            "cfnade_people_unseen_share",
            "Share of requests of people whom this process's model had not been trained on.",
            visitors.unseen_share,
        )
