"""Items that the model has never met, folded in by their first ratings.

They are looked for in the store now and then; a refresh makes them items like all others.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import select

from cfnade.components.base import Row, What
from cfnade.inference.predictor import Predictor
from cfnade.online.event_store import EVENTS, ITEMS, EventStore
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import index_of, user_of

_SECONDS = 5.0
"""For which a look is good."""
MOST = 20
"""New items that are folded in: those with the most ratings."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """A new item, with what people whom the model knows said of it."""

    item: str
    title: str | None
    what: What

    @property
    def ratings(self) -> int:
        return len(self.what.raters.columns)


@dataclass(eq=False)
class Arrivals:
    """What was found when last looked, for the model that was served then."""

    store: EventStore
    _arrivals: list[Arrival] = field(default_factory=list)
    _of: str = ""
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expire(self) -> None:
        """Something new was named here: look again."""
        self._until = 0.0

    def now(self, loaded: LoadedModel) -> list[Arrival]:
        """The new items, those with the most ratings first."""
        fitted = loaded.predictor.fitted
        if not (fitted.rates and fitted.takes_histories and fitted.has_context):
            return []
        with self._lock:
            if time.monotonic() > self._until or self._of != loaded.fingerprint:
                self._arrivals = _look(self.store, loaded.predictor)
                self._of, self._until = loaded.fingerprint, time.monotonic() + _SECONDS
            return self._arrivals


def _look(store: EventStore, predictor: Predictor) -> list[Arrival]:
    with store.read() as connection:
        named = connection.execute(select(ITEMS.c.item_id, ITEMS.c.title))
        titles = {item: title for item, title in named if index_of(predictor.items, item) < 0}
        if not titles:
            return []
        of = EVENTS.c
        events = (
            select(of.item_id, of.user_id, of.type, of.rating)
            .where(of.item_id.in_(list(titles)))
            .order_by(of.timestamp, of.id)
        )
        latest: dict[str, dict[str, Any]] = {}
        for item, person, kind, rating in connection.execute(events):
            latest.setdefault(item, {})[person] = rating if kind == "rating" else None
    arrivals = [
        Arrival(item, titles[item], _folded(predictor, said)) for item, said in latest.items()
    ]
    return sorted((one for one in arrivals if one.ratings), key=lambda one: -one.ratings)[:MOST]


def _folded(predictor: Predictor, said: dict[str, float | None]) -> What:
    """Ratings on the scale by people whom the model knows."""
    rated = {user_of(predictor, person): rating for person, rating in said.items()}
    ratings = {user: rating for user, rating in rated.items() if user >= 0 and rating is not None}
    values = np.array(list(ratings.values()), np.float64)
    levels, fits = predictor.scale.levels_of(values)
    users = np.array(list(ratings), np.int32)
    return What(-1, Row(users[fits], levels[fits]))
