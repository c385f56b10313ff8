"""People who come back: the addresses of what the store keeps of them.

Reading and writing wait for the database in threads of their own, so that answers go on being
computed. A write is acknowledged when it is on disk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

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
from cfnade.server.arrivals import Arrivals
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.person_schemas import PersonListQuery
from cfnade.server.queries import (
    ResolvedUser,
    check_different,
    index_of,
    name_of,
    names_in,
    resolve_stored_user,
    stored_item_of,
    user_of,
)
from cfnade.server.routers import inference as answers
from cfnade.server.schemas import Rated
from cfnade.server.settings import Limits, WorkerPool

T = TypeVar("T")
Answer = dict[str, Any]
_READERS = 8
_RETRY = {"Retry-After": "1"}


class UserRatings:
    """The people of one store, for one process."""

    def __init__(self, address: str, limits: Limits) -> None:
        self.store = EventStore.open(address)
        self._limits = limits
        self._reads = WorkerPool(replace(limits, threads=_READERS))
        self._writer, self._foresight = EventWriter(self.store), PrequentialLog(self.store)
        self._arrivals = Arrivals(self.store)
        self._asked: Counter[bool] = Counter()  # from people whom the model knew, or did not

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Close the store at the end."""
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """What was taken is written first."""
        self._writer.close()
        self._foresight.close()
        self._reads.close()
        self.store.close()

    # -- questions ----------------------------------------------------------------------------

    async def say(self, loaded: LoadedModel, said: Event, *, may_name: bool) -> Answer:
        """Keep a rating, a pick or a withdrawal; the item may be given by its title."""
        with _told():
            validate_id(said.user_id, "person")
            validate_id(said.item_id, "item")
        item = await self._read(self._stored_item, loaded, said.item_id)
        if item is None:
            await self._check_item(said, may_name=may_name)
        else:
            said = said._replace(item_id=item)
        return await self._keep(loaded, said)

    async def say_all(self, loaded: LoadedModel, person: str, ratings: Sequence[Rated]) -> Answer:
        """Keep several ratings; what is not known is named, and not kept."""
        names = [str(name) for name in names_in(ratings)]
        with _told():
            validate_id(person, "person")
            for name in names:
                validate_id(name, "item")
        items = await self._read(self._stored_items, loaded, names)
        given = list(zip(ratings, items, strict=True))
        check_different([item for item in items if item is not None])
        said = [
            Event(person, item, "rating", rated["rating"])
            for rated, item in given
            if item is not None
        ]
        kept = await asyncio.gather(*(self._keep(loaded, one) for one in said))
        return {"ratings": kept, "unknown": [rated for rated, item in given if item is None]}

    async def forget(self, person: str) -> Answer:
        """Remove all that is kept of a person."""
        with _told():
            validate_id(person, "person")
        forgot = await self._read(self.store.erase_user, person)
        return {"person": person, "events": forgot.n_events, "wiped": forgot.purged}

    async def _keep(self, loaded: LoadedModel, said: Event) -> Answer:
        """Write what is said of an item that may be rated."""
        with _told():
            kept = await self._written(self._writer.submit(said))
        index = index_of(loaded.predictor.items, said.item_id)
        user = user_of(loaded.predictor, said.user_id)
        self._asked[user >= 0] += 1
        if kept.event_id is not None and index >= 0 and said.rating is not None:
            predict = partial(_predict, loaded, said.user_id, index)
            if user >= 0 or loaded.predictor.fitted.takes_histories:
                self._foresight.submit(said.user_id, kept.event_id, predict)
        stored = StoredRating(said.item_id, said.rating, kept.timestamp, 0)
        (line,) = _lines(loaded.predictor, [stored])
        return line | {"new": kept.event_id is not None, "known": index >= 0}

    async def about(self, loaded: LoadedModel, person: str) -> Answer:
        """All that is kept of a person and counts."""
        stands = await self._standing(person)
        known = bool(stands) and user_of(loaded.predictor, person) >= 0
        return {"person": person, "known": known, "ratings": _lines(loaded.predictor, stands)}

    async def recommend(
        self, loaded: LoadedModel, person: str, asked: PersonListQuery, work: WorkerPool
    ) -> Answer:
        """The best items for a person, from all that counts of them now."""
        stands = await self._standing(person)
        arrivals = [] if asked.genres else await self._read(self._arrivals.now, loaded)
        self._asked[bool(stands) and user_of(loaded.predictor, person) >= 0] += 1
        seen = {one.item_id for one in stands}
        fresh = [one for one in arrivals if one.item not in seen]
        question = _Question(loaded, person, stands, asked, fresh)
        return await work.run(question.answer)

    # -- figures, for /metrics ----------------------------------------------------------------

    def events(self) -> float:
        return float(self.store.n_events())

    def online_rmse(self) -> float | None:
        """Of all that share the store."""
        recent = online_error(self.store)
        return None if recent is None else recent.rmse

    def asked(self) -> dict[str, float]:
        return {"yes": float(self._asked[True]), "no": float(self._asked[False])}

    def unseen_share(self) -> float | None:
        total = sum(self._asked.values())
        return self._asked[False] / total if total else None

    # -- parts --------------------------------------------------------------------------------

    async def _standing(self, person: str) -> list[StoredRating]:
        with _told():
            validate_id(person, "person")
        return await self._read(self.store.ratings, person)

    def _stored_item(self, loaded: LoadedModel, item: str) -> str | None:
        """The id of an item as the store has it, given by id or title; None of an unknown one."""
        predictor = loaded.predictor
        if index_of(predictor.items, item) >= 0 or self.store.has_item(item):
            return item
        return stored_item_of(predictor, item)

    def _stored_items(self, loaded: LoadedModel, items: Sequence[str]) -> list[str | None]:
        return [self._stored_item(loaded, item) for item in items]

    async def _check_item(self, said: Event, *, may_name: bool) -> None:
        """A new item comes in by the service key alone."""
        if said.type == "withdrawal":
            return
        if may_name:
            await self._read(self.store.register_item, said.item_id)
            self._arrivals.expire()
        else:
            raise ApiError(404, f"item {said.item_id[:40]!r} is unknown; GET /items?q= finds items")

    async def _read(self, question: Callable[..., T], *asked: object) -> T:
        with _told():
            return await self._reads.run(question, *asked)

    async def _written(self, future: Future[AppendResult]) -> AppendResult:
        try:
            async with asyncio.timeout(self._limits.work_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ApiError(
                504,
                f"not kept within {self._limits.work_seconds:g} s, and it is not known whether it "
                "will be; send it again",
            ) from None


class _Question(NamedTuple):
    """A list for somebody, to be made in a thread that computes."""

    loaded: LoadedModel
    person: str
    stands: list[StoredRating]
    asked: PersonListQuery
    fresh: Sequence[Any]

    def answer(self) -> Answer:
        predictor, asked = self.loaded.predictor, self.asked
        who = resolve_stored_user(predictor, self.person, self.stands)
        seen = [one.item_id for one in self.stands]
        best = predictor.ranked(
            who.user,
            history=who.history,
            n=asked.n,
            rank_by=asked.rank,
            balance=asked.taste,
            min_ratings=asked.min_ratings,
            genres=asked.genres or None,
            diversity=asked.diversity,
            exclude_items=[
                predictor.items.typed(i) for i in seen if index_of(predictor.items, i) >= 0
            ],
        )
        lines, hidden = answers.listed(self.loaded, best), best.n_hidden_items
        if (asked.rank or answers.ranks(predictor)[0]) == "prediction":
            enough = [one for one in self.fresh if one.ratings >= best.min_ratings]
            hidden += len(self.fresh) - len(enough)
            lines = _merged(lines, [_line(predictor, who, one) for one in enough], asked.n)
        used = len(who.history) if who.history is not None else len(self.stands)
        return {"items": lines, "hidden": hidden, "min_ratings": best.min_ratings, "used": used}


def _predict(
    loaded: LoadedModel, person: str, item: int, before: list[StoredRating]
) -> LoggedPrediction | None:
    """Return the prediction of a rating from the earlier ones; None for an unknown user."""
    predictor = loaded.predictor
    if not predictor.fitted.takes_histories and not before:
        return None
    who = resolve_stored_user(predictor, person, before)
    predicted = predictor.predicted(np.array([item]), who.user, history=who.history)
    is_known = user_of(predictor, person) >= 0
    return LoggedPrediction(float(predicted.predictions[0]), is_known, loaded.fingerprint)


def _line(predictor: Predictor, who: ResolvedUser, one: Any) -> Answer:
    """A new item as a line of a list."""
    line = answers.of_new(predictor, who, one.item, one.what)
    return line | {"title": one.title or None, "score": line["expected"], "pick": None}


def _merged(lines: list[Answer], new: list[Answer], n: int) -> list[Answer]:
    both = sorted([*lines, *new], key=lambda line: -line["score"])[:n]
    return [line | {"rank": rank} for rank, line in enumerate(both, 1)]


def _lines(predictor: Predictor, stands: Sequence[StoredRating]) -> list[Answer]:
    """Items by the id that the model has, where it knows them."""
    named = [name_of(predictor, one.item_id) for one in stands]
    return [
        {"item": raw, "title": title, "rating": one.rating, "at": one.timestamp}
        for (raw, title), one in zip(named, stands, strict=True)
    ]


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the store as problems."""
    try:
        yield
    except StoreUnavailableError as error:
        raise ApiError(503, str(error), headers=_RETRY) from None
    except StoreError as error:
        raise ApiError(422, str(error)) from None
