"""Asynchronous access to the event store.

Reads and writes wait for the database in threads of their own, so that computing goes on. A write
is acknowledged when it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.inference.predictor import Predictor
from cfnade.online.batch_writer import EventWriter
from cfnade.online.event_store import (
    AppendResult,
    Event,
    EventStore,
    StoredRating,
    validate_id,
)
from cfnade.online.prequential import LoggedPrediction, PrequentialLog, online_error
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import id_index, resolve_stored_user, user_index
from cfnade.server.settings import Limits
from cfnade.server.worker_pool import WorkerPool

T = TypeVar("T")
_log = logging.getLogger("cfnade.server")
_READERS = 8


class KnownItem(NamedTuple):
    """An item of the model, or one that is registered in the store."""

    item_id: str
    """As the store writes it."""
    title: str | None


class UserRatings:
    """The ratings in one event store, for one process."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.store = EventStore.open(url)
        self.requests: Counter[bool] = Counter({True: 0, False: 0})
        """Requests of users in the training data of the model (True), and of others."""
        self._limits = limits
        self._readers = WorkerPool(limits.model_copy(update={"threads": _READERS}))
        self._writer, self._prequential_log = EventWriter(self.store), PrequentialLog(self.store)

    def close(self) -> None:
        """Write what waits, then close the store."""
        self._writer.close()
        self._prequential_log.close()
        self._readers.close()
        self.store.close()

    async def ratings(self, model: LoadedModel, user_id: str) -> list[StoredRating]:
        """Return the current ratings of a user, the oldest first."""
        ratings = await self._read(self.store.ratings, user_id)
        self.requests[bool(ratings) and user_index(model.predictor, user_id) >= 0] += 1
        return ratings

    async def append(self, model: LoadedModel, events: Sequence[Event]) -> list[AppendResult]:
        """Write events; log what the model would have predicted for new ratings."""
        with _store_errors():
            futures = [self._writer.submit(event) for event in events]
            results = [await self._result(future) for future in futures]
        for event, result in zip(events, results, strict=True):
            self._log_prediction(model, event, result)
        return results

    async def find_items(self, model: LoadedModel, names: Sequence[str]) -> list[KnownItem | None]:
        """Return the items that are meant by ids or titles; None for an unknown one."""
        return await self._read(self._find_items, model.predictor, names)

    async def titles(self, model: LoadedModel, items: Sequence[str]) -> dict[str, str | None]:
        """Return the titles of those items that the model or the store knows by these ids."""
        return await self._read(self._titles, model.predictor, items)

    async def register_item(self, item_id: str, title: str | None, genres: list[str]) -> None:
        """Make an item known that users may rate."""
        await self._read(self.store.register_item, item_id, title, genres)

    async def erase_user(self, user_id: str) -> None:
        """Remove everything that is stored about a user."""
        erasure = await self._read(self.store.erase_user, user_id)
        if not erasure.purged:
            _log.warning("erased a user; other readers keep the old pages in the files for now")

    # -- for /metrics -------------------------------------------------------------------------

    def event_count(self) -> float:
        return float(self.store.n_events())

    def online_rmse(self) -> float | None:
        """Return the error of logged predictions, of all processes that share the store."""
        recent = online_error(self.store)
        return None if recent is None else recent.rmse

    # -- in a thread --------------------------------------------------------------------------

    def _find_items(self, predictor: Predictor, names: Sequence[str]) -> list[KnownItem | None]:
        for name in names:
            validate_id(name, "item")
        titles = self._titles(predictor, names)
        found: list[KnownItem | None] = []
        for name in names:
            item_id = name
            if name not in titles and (index := predictor.catalog.certain(name)) is not None:
                item_id = str(predictor.items.raw(index))
                titles |= self._titles(predictor, [item_id])
            found.append(KnownItem(item_id, titles[item_id]) if item_id in titles else None)
        return found

    def _titles(self, predictor: Predictor, items: Sequence[str]) -> dict[str, str | None]:
        indices = {item: id_index(predictor.items, item) for item in items}
        titles = self.store.item_titles([item for item, index in indices.items() if index < 0])
        names = predictor.catalog.titles
        known = {item: index for item, index in indices.items() if index >= 0}
        return titles | {
            item: None if names is None else names[index] or None for item, index in known.items()
        }

    # -- parts --------------------------------------------------------------------------------

    def _log_prediction(self, model: LoadedModel, event: Event, result: AppendResult) -> None:
        predictor = model.predictor
        item = id_index(predictor.items, event.item_id)
        in_model = user_index(predictor, event.user_id) >= 0
        self.requests[in_model] += 1
        if result.event_id is None or event.rating is None or item < 0:
            return
        if in_model or predictor.fitted.takes_histories:
            predict = partial(_predict, model, event.user_id, item)
            self._prequential_log.submit(event.user_id, result.event_id, predict)

    async def _read(self, function: Callable[..., T], *args: object) -> T:
        with _store_errors():
            return await self._readers.run(function, *args)

    async def _result(self, future: Future[AppendResult]) -> AppendResult:
        try:
            async with asyncio.timeout(self._limits.work_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ApiError(
                504,
                f"not written within {self._limits.work_seconds:g} s, and it is not known whether "
                "it will be; send it again",
            ) from None


def _predict(
    model: LoadedModel, user_id: str, item: int, ratings: list[StoredRating]
) -> LoggedPrediction | None:
    """Return the prediction of a rating from the earlier ones; None for an unknown user."""
    predictor = model.predictor
    if not predictor.fitted.takes_histories and not ratings:
        return None
    user = resolve_stored_user(predictor, user_id, ratings)
    predicted = predictor.predict_items(user.entities(predictor), np.array([item]))
    in_model = user_index(predictor, user_id) >= 0
    return LoggedPrediction(float(predicted.predictions[0]), in_model, model.fingerprint)


@contextmanager
def _store_errors() -> Iterator[None]:
    """Turn errors of the store into problems."""
    try:
        yield
    except StoreUnavailableError as error:
        raise ApiError(503, str(error), headers={"Retry-After": "1"}) from None
    except StoreError as error:
        raise ApiError(422, str(error)) from None
