"""What an operator wants to see of a store: how much came when, and how well it was foreseen.

Of every rating that comes through the service, the model at hand says what it expects before it
hears it. The error of that (prequential, online) needs no test set, and grows as a model goes
stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import case, func, insert, select

from cfnade.online.engine import Store
from cfnade.online.schema import EVENTS, FORGOTTEN, PREDICTED, version_of

RECENT = 10_000
"""Ratings that the online error is of."""
_BINS = 40


@dataclass(frozen=True)
class Online:
    """How well ratings were foreseen, of the most recent ones."""

    n: int
    rmse: float
    unseen: float
    """Share of people whom the model had not been trained on."""


@dataclass(frozen=True)
class StoreSummary:
    """What is in a store."""

    store: str
    version: int
    events: int
    people: int
    items: int
    ratings: int
    picks: int
    withdrawals: int
    forgotten: int
    first: int | None
    last: int | None
    sources: dict[str, int]
    online: Online | None
    models: list[dict[str, Any]]
    """Of each model that predicted: its name, how many ratings, and the error."""
    over_time: list[dict[str, Any]]
    """Equal stretches of time: when each begins, its events, and the online error in it."""


def summary_of(store: Store) -> StoreSummary:
    """All of it, in one look at the store."""
    with store.reading() as connection:
        of = EVENTS.c
        kinds = select(of.kind, func.count()).group_by(of.kind)
        counts = {kind: int(n) for kind, n in connection.execute(kinds)}
        sources = select(of.source, func.count()).group_by(of.source).order_by(of.source)
        by_source = {str(source): int(n) for source, n in connection.execute(sources)}
        wide = select(
            func.count(of.person.distinct()),
            func.count(of.item.distinct()),
            func.min(of.at),
            func.max(of.at),
        )
        people, items, first, last = connection.execute(wide).one()
        version = version_of(connection)
        forgotten = connection.execute(select(func.count()).select_from(FORGOTTEN)).scalar_one()
        stretches = _stretches(connection, first, last)
    foreseen = foreseen_ratings(store, limit=None)
    return StoreSummary(
        store=store.shown,
        version=version,
        events=sum(counts.values()),
        people=people,
        items=items,
        ratings=counts.get("rate", 0),
        picks=counts.get("pick", 0),
        withdrawals=counts.get("withdraw", 0),
        forgotten=forgotten,
        first=first,
        last=last,
        sources=by_source,
        online=_online(foreseen.tail(RECENT)),
        models=_by_model(foreseen),
        over_time=_with_errors(stretches, foreseen),
    )


def online(store: Store) -> Online | None:
    """How well the most recent ratings were foreseen; None if none was."""
    return _online(foreseen_ratings(store, limit=RECENT))


def event_count(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(EVENTS)).scalar_one())


def note_predictions(store: Store, noted: Sequence[dict[str, Any]]) -> None:
    """Keep what a model expected: event, expected, known, model. Who was forgotten is left out."""
    if not noted:
        return
    with store.writing() as connection:
        numbers = [one["event"] for one in noted]
        query = select(EVENTS.c.id).where(EVENTS.c.id.in_(numbers))
        there = set(connection.execute(query).scalars())
        left = [one for one in noted if one["event"] in there]
        if left:
            connection.execute(insert(PREDICTED), left)


def foreseen_ratings(store: Store, *, limit: int | None) -> pl.DataFrame:
    """Ratings that a model had foreseen, in their order: event, at, rating, expected, known."""
    of = PREDICTED.c
    query = (
        select(of.event, EVENTS.c.at, EVENTS.c.rating, of.expected, of.known, of.model)
        .join(EVENTS, EVENTS.c.id == of.event)
        .where(EVENTS.c.kind == "rate")
        .order_by(of.event.desc())
        .limit(limit)
    )
    kinds = [pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.Int64, pl.String]
    names = ["event", "at", "rating", "expected", "known", "model"]
    with store.reading() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    return pl.DataFrame(rows, dict(zip(names, kinds, strict=True)), orient="row").reverse()


def rmse_of(foreseen: pl.DataFrame) -> float:
    errors = (foreseen["rating"] - foreseen["expected"]).to_numpy()
    return float(np.sqrt(np.square(errors).mean()))


def _online(foreseen: pl.DataFrame) -> Online | None:
    if not foreseen.height:
        return None
    unseen = 1 - float(foreseen["known"].to_numpy().mean())
    return Online(foreseen.height, rmse_of(foreseen), unseen)


def _by_model(foreseen: pl.DataFrame) -> list[dict[str, Any]]:
    parts = foreseen.partition_by("model", maintain_order=True)
    return [
        {"model": part["model"][0], "ratings": part.height, "rmse": rmse_of(part)} for part in parts
    ]


def _stretches(connection: Any, first: int | None, last: int | None) -> list[dict[str, Any]]:
    """How many events each of some stretches of time has, all equally long."""
    if first is None or last is None:
        return []
    width = max(1, -(-(last - first + 1) // _BINS))
    # Whole numbers divide differently in the two databases; sums of comparisons do not.
    begins = list(range(first, last + 1, width))
    inside = [
        func.sum(case(((EVENTS.c.at >= begin) & (EVENTS.c.at < begin + width), 1), else_=0))
        for begin in begins
    ]
    counts = connection.execute(select(*inside)).one()
    return [
        {"from": begin, "until": begin + width, "events": int(n)}
        for begin, n in zip(begins, counts, strict=True)
    ]


def _with_errors(stretches: list[dict[str, Any]], foreseen: pl.DataFrame) -> list[dict[str, Any]]:
    for one in stretches:
        inside = foreseen.filter((pl.col("at") >= one["from"]) & (pl.col("at") < one["until"]))
        one["rmse"] = rmse_of(inside) if inside.height else None
    return stretches
