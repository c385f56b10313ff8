"""Prequential evaluation: a model predicts each rating before it learns it.

The online error needs no test set and grows as a model becomes outdated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from sqlalchemy import func, insert, select

from cfnade.exceptions import StoreUnavailableError
from cfnade.online.batch_writer import BatchWorker
from cfnade.online.event_store import ERASED_USERS, EVENTS, PREDICTIONS, EventStore, StoredRating

log = logging.getLogger("cfnade.online")

WINDOW = 10_000
"""Number of ratings for the online error."""
_MAX_WAITING = 5_000
_DELAY = 0.2
"""Seconds: logging many predictions takes hardly longer than logging one."""


class LoggedPrediction(NamedTuple):
    """What a model predicted for a rating before it arrived."""

    prediction: float
    user_in_model: bool
    model: str
    """Fingerprint of the model."""


Predict = Callable[[list[StoredRating]], LoggedPrediction | None]
"""Predicts a rating from the earlier ratings of its user; None if the model cannot."""


class PrequentialLog:
    """A thread that predicts ratings just after they were stored, and logs the predictions.

    Predictions that wait when the process is killed are missing in the online error only.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._worker: BatchWorker[tuple[str, int, Predict]] = BatchWorker(
            "prequential-log", self._process, max_waiting=_MAX_WAITING, delay=_DELAY
        )

    def submit(self, user_id: str, event_id: int, predict: Predict) -> None:
        """Predict a stored rating from what the user had rated before."""
        if not self._worker.submit((user_id, event_id, predict)):
            log.debug("a rating was not predicted: too many wait")

    def close(self) -> None:
        """Process the waiting ratings and end the thread."""
        self._worker.close()

    def _process(self, batch: list[tuple[str, int, Predict]]) -> None:
        try:
            earlier = self._store.ratings_before([(user, event) for user, event, _ in batch])
            predictions = {
                event: prediction
                for (_, event, predict), ratings in zip(batch, earlier, strict=True)
                if (prediction := predict(ratings)) is not None
            }
            log_predictions(self._store, predictions)
        except StoreUnavailableError as error:
            log.warning("predictions of %d ratings were not logged: %s", len(batch), error)
        except Exception:  # the thread continues with other ratings
            log.exception("predictions of %d ratings were not logged", len(batch))


def log_predictions(store: EventStore, predictions: dict[int, LoggedPrediction]) -> None:
    """Store predictions by the number of their event, except those of events erased since."""
    if not predictions:
        return
    with store.write() as connection:
        query = select(EVENTS.c.id).where(EVENTS.c.id.in_(list(predictions)))
        rows = [
            {"event_id": event_id, **predictions[event_id]._asdict()}
            for event_id in connection.execute(query).scalars()
        ]
        if rows:
            connection.execute(insert(PREDICTIONS), rows)


def predicted_ratings(store: EventStore, *, limit: int | None = None) -> pl.DataFrame:
    """Return the newest ratings with a logged prediction, in their order."""
    schema = {
        PREDICTIONS.c.event_id: pl.Int64,
        EVENTS.c.timestamp: pl.Int64,
        EVENTS.c.rating: pl.Float64,
        PREDICTIONS.c.prediction: pl.Float64,
        PREDICTIONS.c.user_in_model: pl.Boolean,
        PREDICTIONS.c.model: pl.String,
    }
    query = (
        select(*schema)
        .join(EVENTS, EVENTS.c.id == PREDICTIONS.c.event_id)
        .where(EVENTS.c.type == "rating")
        .order_by(PREDICTIONS.c.event_id.desc())
        .limit(limit)
    )
    with store.read() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    names = {column.name: dtype for column, dtype in schema.items()}
    return pl.DataFrame(rows, names, orient="row").reverse()


# -- summary --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnlineError:
    """Accuracy of predictions that were logged before their ratings arrived."""

    n: int
    rmse: float
    new_users: float
    """Share of ratings by users on whom the model had not been trained."""


@dataclass(frozen=True)
class StoreSummary:
    """The contents of a store."""

    store: str
    n_events: int
    n_users: int
    n_items: int
    n_ratings: int
    n_interactions: int
    n_withdrawals: int
    n_erased_users: int
    first: int | None
    last: int | None
    sources: dict[str, int]
    online_error: OnlineError | None
    models: list[dict[str, Any]]
    """Fingerprint, number of ratings and RMSE of each model that predicted."""


def online_error(store: EventStore) -> OnlineError | None:
    """Return the error of the newest predicted ratings; None if none was predicted."""
    return _online_error(predicted_ratings(store, limit=WINDOW))


def summarize(store: EventStore) -> StoreSummary:
    """Count the contents of a store."""
    columns, count = EVENTS.c, func.count()
    with store.read() as connection:

        def counts_by(column: Any) -> dict[str, int]:
            query = select(column, count).group_by(column).order_by(column)
            return {name: int(n) for name, n in connection.execute(query)}

        types, sources = counts_by(columns.type), counts_by(columns.source)
        totals: list[Any] = [
            func.count(columns.user_id.distinct()),
            func.count(columns.item_id.distinct()),
            func.min(columns.timestamp),
            func.max(columns.timestamp),
        ]
        n_users, n_items, first, last = connection.execute(select(*totals)).one()
        n_erased = connection.execute(select(count).select_from(ERASED_USERS)).scalar_one()
    predicted = predicted_ratings(store)
    return StoreSummary(
        store=store.name,
        n_events=sum(types.values()),
        n_users=n_users,
        n_items=n_items,
        n_ratings=types.get("rating", 0),
        n_interactions=types.get("interaction", 0),
        n_withdrawals=types.get("withdrawal", 0),
        n_erased_users=n_erased,
        first=first,
        last=last,
        sources=sources,
        online_error=_online_error(predicted.tail(WINDOW)),
        models=[
            {"model": rows["model"][0], "n_ratings": rows.height, "rmse": _rmse(rows)}
            for rows in predicted.partition_by("model", maintain_order=True)
        ],
    )


def _online_error(predicted: pl.DataFrame) -> OnlineError | None:
    if not predicted.height:
        return None
    new_users = 1 - float(predicted["user_in_model"].to_numpy().mean())
    return OnlineError(predicted.height, _rmse(predicted), new_users)


def _rmse(predicted: pl.DataFrame) -> float:
    errors = (predicted["rating"] - predicted["prediction"]).to_numpy()
    return float(np.sqrt(np.square(errors).mean()))
