"""Asynchronous access to the event store.

Reads and writes wait for the database in threads of their own, so that computing goes on. A write
is acknowledged when it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from cfnade.exceptions import StoreError, StoreUnavailableError
from cfnade.inference.predictor import Predictor
from cfnade.online.batch_writer import EventWriter
from cfnade.online.engine import Store, open_store
from cfnade.online.erasure import forget
from cfnade.online.event_store import (
    AppendResult,
    Event,
    StoredRating,
    check_id,
    has_item,
    register_item,
    standing,
)
from cfnade.online.prequential import event_count, online
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.prequential_log import PendingPrediction, PrequentialLog
from cfnade.server.queries import id_index, user_index
from cfnade.server.settings import Limits
from cfnade.server.worker_pool import WorkerPool

T = TypeVar("T")
_log = logging.getLogger("cfnade.server")
_READERS = 8


class UserRatings:
    """The ratings in one event store, for one process."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.store: Store = open_store(url)
        self.requests: Counter[bool] = Counter({True: 0, False: 0})
        """Requests of users in the training data of the model (True), and of others."""
        self._limits = limits
        self._readers = WorkerPool(limits.model_copy(update={"threads": _READERS}))
        self._writer, self._prequential_log = EventWriter(self.store), PrequentialLog(self.store)

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close the store at the end."""
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Write what waits, then close the store."""
        self._writer.close()
        self._prequential_log.close()
        self._readers.close()
        self.store.close()

    async def ratings(self, model: LoadedModel, user_id: str) -> list[StoredRating]:
        """Return the current ratings of a user, the oldest first."""
        with _store_errors():
            check_id(user_id, "user_id")
        ratings = await self._read(standing, self.store, user_id)
        self.requests[bool(ratings) and user_index(model.predictor, user_id) >= 0] += 1
        return ratings

    async def append(self, model: LoadedModel, events: Sequence[Event]) -> list[AppendResult]:
        """Write events; log what the model would have predicted for new ratings."""
        with _store_errors():
            futures = [self._writer.keep(event) for event in events]
            results = [await self._written(future) for future in futures]
        for event, result in zip(events, results, strict=True):
            self._log_prediction(model, event, result)
        return results

    async def find_items(self, model: LoadedModel, items: Sequence[str]) -> list[str | None]:
        """Return the ids under which items, given by id or title, are stored; None if unknown."""
        with _store_errors():
            for item in items:
                check_id(item, "item")
        return await self._read(self._find_items, model.predictor, items)

    async def register_item(self, item_id: str, title: str | None, genres: list[str]) -> None:
        """Make an item known that users may rate."""
        with _store_errors():
            check_id(item_id, "item_id")
        await self._read(register_item, self.store, item_id, title, genres)

    async def erase_user(self, user_id: str) -> None:
        """Remove everything that is stored about a user."""
        with _store_errors():
            check_id(user_id, "user_id")
        erasure = await self._read(forget, self.store, user_id)
        if not erasure.wiped:
            _log.warning("erased a user; other readers keep the old pages in the files for now")

    # -- for /metrics -------------------------------------------------------------------------

    def event_count(self) -> float:
        return float(event_count(self.store))

    def online_rmse(self) -> float | None:
        """Return the error of logged predictions, of all processes that share the store."""
        recent = online(self.store)
        return None if recent is None else recent.rmse

    # -- parts --------------------------------------------------------------------------------

    def _find_items(self, predictor: Predictor, items: Sequence[str]) -> list[str | None]:
        return [self._find_item(predictor, item) for item in items]

    def _find_item(self, predictor: Predictor, item: str) -> str | None:
        if id_index(predictor.items, item) >= 0 or has_item(self.store, item):
            return item
        index = predictor.catalog.certain(item)
        return None if index is None else str(predictor.items.raw(index))

    def _log_prediction(self, model: LoadedModel, event: Event, result: AppendResult) -> None:
        predictor = model.predictor
        item, user = id_index(predictor.items, event.item), user_index(predictor, event.person)
        self.requests[user >= 0] += 1
        is_new = result.new and result.event is not None and event.rating is not None
        if is_new and item >= 0 and (user >= 0 or predictor.fitted.takes_histories):
            assert result.event is not None
            self._prequential_log.note(PendingPrediction(model, result.event, event.person, item))

    async def _read(self, function: Callable[..., T], *args: object) -> T:
        with _store_errors():
            return await self._readers.run(function, *args)

    async def _written(self, future: Future[AppendResult]) -> AppendResult:
        try:
            async with asyncio.timeout(self._limits.work_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ApiError(
                504,
                f"not written within {self._limits.work_seconds:g} s, and it is not known whether "
                "it will be; send it again",
            ) from None


@contextmanager
def _store_errors() -> Iterator[None]:
    """Turn errors of the store into problems."""
    try:
        yield
    except StoreUnavailableError as error:
        raise ApiError(503, str(error), headers={"Retry-After": "1"}) from None
    except StoreError as error:
        raise ApiError(422, str(error)) from None
