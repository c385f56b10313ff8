"""Replay MovieLens 1M in the order of time: half trains a model, half arrives event by event.

    python -m experiments.replay --out experiments/results/replay.jsonl

The second half arrives in ten parts; after each the model is refreshed. The first ratings of a part
go over HTTP to a running `cfnade serve --store --watch`, the others by `EventStore.append` into its
store. Each rating is predicted before it arrives by the served model, with all earlier ratings of
its user; for those that went over HTTP the prediction is compared with the one that the service
logged. On the same ratings: (a) the first model, never refreshed; (b) means of users and items,
updated with every rating; (c) a model trained from scratch after each part, with the newest tenth
as validation part; and (d) the same trained once more for as many epochs on all ratings.
`--every-person 4` takes every fourth user. Ratings of items that the first half does not have are
learned, but not scored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from benchmarks.store_load import service
from cfnade import checkpoint, load
from cfnade.cli.store import events_frame
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, match_tables
from cfnade.data.split_protocols import TRAIN
from cfnade.data.splits import Split, apply_labels
from cfnade.fitted_model import FittedModel
from cfnade.inference.histories import UserHistory
from cfnade.inference.predictor import Predictor
from cfnade.online.bulk import import_events
from cfnade.online.event_store import EVENTS, PREDICTIONS, Event, EventStore
from cfnade.online.publish import fingerprint
from cfnade.online.refresh import current_ratings, newest_split, refresh
from cfnade.recipes import load_recipe
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.train import train

PARTS = 10
TOLERANCE = 0.002
BATCH = 2_000
DAMPING = 5.0
"""Pseudo-ratings at the mean of all, of each user and item, in `OnlineMeans`."""
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every-person", type=int, default=4)
    parser.add_argument("--http", type=int, default=300, help="ratings of a part sent over HTTP")
    parser.add_argument("--machine", default="", help="name of the machine for the report")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = _sort_by_time(load("ml-1m"), options.every_person)
    head = {
        "every_person": options.every_person,
        "people": len(np.unique(data.users)),
        "ratings": len(data),
        "parts": PARTS,
        "bar": TOLERANCE,
        "machine": options.machine,
    }
    options.out.write_text(json.dumps(head) + "\n")
    with tempfile.TemporaryDirectory() as name:
        for line in Replay(data, Path(name), options.http).lines():
            with options.out.open("a") as file:
                print(json.dumps(line), file=file)


def _sort_by_time(ratings: Dataset, every: int) -> Dataset:
    """Return the ratings of every so many users by time."""
    places = np.flatnonzero(ratings.users % every == 0)
    assert ratings.times is not None
    return ratings.select(places[np.argsort(ratings.times[places], kind="stable")])


@dataclass
class Replay:
    """Ratings by time, and the folder of the store and the model."""

    data: Dataset
    folder: Path
    over_http: int

    def __post_init__(self) -> None:
        self._half, self._values = len(self.data) // 2, self.data.values
        self._places_of_user = _places_by_user(self.data.users, self.data.n_users)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the record of each part."""
        url, model = str(self.folder / "ratings.db"), self.folder / "model"
        store = EventStore.open(url, create=True)
        half = events_frame(self.data.select(np.arange(self._half)))
        import_events(store, half, source="first half", scale=self.data.scale.values)
        first = _train_from_scratch(load(f"store:{url}"))
        checkpoint.save(first, model)
        unrefreshed, means = Predictor(first), OnlineMeans(self.data, self._half)
        scratch, on_all = first, first
        with service(model, url, 1, watch=True) as address:
            for number, part in enumerate(_parts(self._half, len(self.data))):
                _wait_for_model(address, model)
                predictions = {
                    "a": self._predict(unrefreshed, part),
                    "b": means.predict_and_add(part),
                    "c": self._predict(Predictor(scratch), part),
                    "d": self._predict(Predictor(on_all), part),
                    "ours": self._predict(Predictor.load(model), part),
                }
                scored = np.isin(self.data.items[part], self.data.items[: self._half])
                line: dict[str, Any] = {"part": number + 1, "ratings": int(scored.sum())}
                line["rmse"] = {
                    name: self._rmse(values, part, scored) for name, values in predictions.items()
                }
                line["http"] = self._send(address, store, part, predictions["ours"])
                line["refresh"] = _refresh(model, url)
                began = time.process_time()
                ratings = current_ratings(first, store)
                scratch = _train_from_scratch(ratings)
                line["scratch_cpu_seconds"] = time.process_time() - began
                on_all = _train_on_all(ratings, scratch.metadata["best_epoch"])
                line["on_all_cpu_seconds"] = time.process_time() - began
                yield line
        store.close()

    def _predict(self, predictor: Predictor, part: Indices) -> Floats:
        """Return the prediction of each rating from all earlier ratings of its user."""
        data = self.data
        items = match_tables(data.item_ids, predictor.items.table)
        users = match_tables(data.user_ids, predictor.users.table)
        out = np.full(len(part), np.nan)
        has_item = np.flatnonzero(items[data.items[part]] >= 0)
        for batch in np.array_split(has_item, max(1, len(has_item) // BATCH)):
            histories = {}
            for place in part[batch].tolist():
                user = data.users[place]
                places = self._places_of_user[user]
                earlier = places[: np.searchsorted(places, place)]
                rated = items[data.items[earlier]]
                history = rated[rated >= 0].astype(np.int32), data.levels[earlier[rated >= 0]]
                histories[place] = UserHistory(
                    *history, (), int(users[user]) if len(earlier) else -1
                )
            item_ids = predictor.items.table[items[data.items[part[batch]]]]
            out[batch] = predictor.predict(
                list(histories), item_ids, histories=histories, calibrated=False
            ).predictions
        return out

    def _rmse(self, predictions: Floats, part: Indices, scored: Any) -> float:
        errors = (predictions - self._values[part])[scored]
        return float(np.sqrt(np.mean(np.square(errors))))

    def _send(
        self, address: str, store: EventStore, part: Indices, predictions: Floats
    ) -> dict[str, Any]:
        """Send a part in order; return the largest difference to the logged predictions."""
        events = [self._event(place) for place in part.tolist()]
        sent = events[: self.over_http]
        with httpx.Client(base_url=address, timeout=60) as client:
            for event in sent:
                path = f"/users/{event.user_id}/ratings/{event.item_id}"
                client.put(path, json={"rating": event.rating}).raise_for_status()
        pairs = zip(sent, predictions[: self.over_http].tolist(), strict=True)
        expected = {(event.user_id, event.item_id): p for event, p in pairs if not np.isnan(p)}
        # Before the appends, which lock the file for longer than the service waits.
        logged = _logged_predictions(store, expected)
        for first in range(self.over_http, len(events), BATCH):
            store.append(events[first : first + BATCH])
        gap = max((abs(logged[pair] - p) for pair, p in expected.items()), default=0.0)
        return {"compared": len(expected), "largest_gap": gap}

    def _event(self, place: int) -> Event:
        data = self.data
        user, item = data.user_ids[data.users[place]], data.item_ids[data.items[place]]
        return Event(str(user), str(item), "rating", float(self._values[place]))


def _logged_predictions(
    store: EventStore, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return the predictions that the service logs in the background, when all are there."""
    columns = (EVENTS.c.user_id, EVENTS.c.item_id, PREDICTIONS.c.prediction)
    query = select(*columns).join(EVENTS, EVENTS.c.id == PREDICTIONS.c.event_id)
    for _ in range(600):
        with store.read() as connection:
            logged = {(user, item): value for user, item, value in connection.execute(query)}
        if all(pair in logged for pair in pairs):
            return logged
        time.sleep(0.2)
    raise RuntimeError("the service did not log its predictions")


def _wait_for_model(address: str, model: Path) -> None:
    """Wait until the service answers with the model of the folder."""
    for _ in range(600):
        if httpx.get(f"{address}/model").json()["fingerprint"] == fingerprint(model):
            return
        time.sleep(0.2)
    raise RuntimeError("the service did not load the new model")


# -- models ---------------------------------------------------------------------------------------


class OnlineMeans:
    """Global mean, item offsets and user offsets, updated with every rating."""

    def __init__(self, data: Dataset, n_ratings: int) -> None:
        """Learn from the first `n_ratings` ratings."""
        self._data, self._values = data, data.values
        self._items, self._users = np.zeros((data.n_items, 2)), np.zeros((data.n_users, 2))
        self._total, self._count = float(self._values[:n_ratings].sum()), n_ratings
        for place in range(n_ratings):
            self._learn(place)

    def predict_and_add(self, part: Indices) -> Floats:
        """Return the prediction of each rating, which is then added."""
        out = np.empty(len(part))
        for n, place in enumerate(part.tolist()):
            mean = self._total / self._count
            out[n] = mean + self._item(place, mean) + self._user(place)
            self._total, self._count = self._total + float(self._values[place]), self._count + 1
            self._learn(place)
        return out

    def _item(self, place: int, mean: float) -> float:
        total, count = self._items[self._data.items[place]]
        return float((total - count * mean) / (count + DAMPING))

    def _user(self, place: int) -> float:
        total, count = self._users[self._data.users[place]]
        return float(total / (count + DAMPING))

    def _learn(self, place: int) -> None:
        rating, mean = float(self._values[place]), self._total / self._count
        self._users[self._data.users[place]] += (rating - mean - self._item(place, mean), 1)
        self._items[self._data.items[place]] += (rating, 1)


def _refresh(model: Path, url: str) -> dict[str, Any]:
    began = time.process_time()
    result = refresh(model, url, tolerance=TOLERANCE, n_threads=1)
    seconds = time.process_time() - began
    rmse = {"before": result.rmse_before, "after": result.rmse_after}
    return {"cpu_seconds": seconds, "published": result.published, **rmse}


def _train_from_scratch(ratings: Dataset) -> FittedModel:
    """Train the recipe; the newest tenth chooses the epoch."""
    return _train(newest_split(ratings), load_recipe("ml-1m-user").training)


def _train_on_all(ratings: Dataset, epochs: int) -> FittedModel:
    split = apply_labels(ratings, np.full(len(ratings), TRAIN, np.uint8), "all")
    settings = load_recipe("ml-1m-user").training
    return _train(split, replace(settings, epochs=epochs, schedule="constant"))


def _train(split: Split, settings: TrainingConfig) -> FittedModel:
    base = load_recipe("ml-1m-user")
    trained = train(split, plan_side(base.side, base.model, settings), RunOptions(n_threads=1))
    return trained.model


def _parts(first: int, last: int) -> Iterator[Indices]:
    cuts = np.linspace(first, last, PARTS + 1).astype(int)
    for begin, end in pairwise(cuts.tolist()):
        yield np.arange(begin, end)


def _places_by_user(users: Any, count: int) -> list[Indices]:
    """Return the places of each user's ratings, in order."""
    order = np.argsort(users, kind="stable")
    return np.split(order, np.cumsum(np.bincount(users, minlength=count))[:-1])


if __name__ == "__main__":
    main()
