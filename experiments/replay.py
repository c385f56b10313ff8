"""MovieLens 1M once more, as it came: half is trained on, half sent to a running service.

    python -m experiments.replay --every-person 5 --out experiments/results/replay.jsonl

The second half goes event by event to a real `cfnade serve --store --watch`, in the order of time,
in ten parts; after each the model is refreshed. What the service expected of each rating before it
came is read from its store. Beside it, on the same ratings: (a) the first model, never refreshed;
(b) means of users and items, updated with every rating; (c) a model trained from scratch on the
same data after each part. `--every-person 5` takes every fifth person with all ratings. Ratings of
items that the first half does not have are sent and trained on, but not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from benchmarks.store_load import service
from cfnade import checkpoint, load
from cfnade.cli.keeping import table_of
from cfnade.data.ratings import Ratings
from cfnade.fitted import FittedModel
from cfnade.fresh.refreshing import by_newest, ratings_for, refresh
from cfnade.predictor import Predictor
from cfnade.predictor.histories import Person
from cfnade.recipes import recipe
from cfnade.store.bulk import bring_in, set_scale
from cfnade.store.opening import Store, open_store
from cfnade.store.prequential import foreseen_ratings
from cfnade.training.run import train

PARTS = 10
SENDERS = 24
DAMPING = 5.0
"""Imagined ratings at the mean of all, of each user and item, in (b)."""
Floats = npt.NDArray[np.float64]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--every-person", type=int, default=5)
    given.add_argument("--out", type=Path, required=True)
    asked = given.parse_args()
    data = _in_order(load("ml-1m"), asked.every_person)
    half = len(data) // 2
    head = {
        "every_person": asked.every_person,
        "people": len(np.unique(data.users)),
        "ratings": len(data),
        "parts": PARTS,
        "machine": f"{platform.processor() or platform.machine()}, one thread.",
    }
    asked.out.write_text(json.dumps(head) + "\n")
    with tempfile.TemporaryDirectory() as name:
        _Replay(data, half, Path(name), asked.out).run()


def _in_order(ratings: Ratings, every: int) -> Ratings:
    mine = np.flatnonzero(ratings.users % every == 0)
    assert ratings.times is not None
    return ratings.select(mine[np.argsort(ratings.times[mine], kind="stable")])


@dataclass
class _Replay:
    data: Ratings
    half: int
    folder: Path
    out: Path

    def run(self) -> None:
        place, model = str(self.folder / "ratings.db"), self.folder / "model"
        store = open_store(place, create=True)
        set_scale(store, self.data.scale.values)
        bring_in(store, table_of(self.data.select(np.arange(self.half))), source="first half")
        first, _ = _from_scratch(store, None)
        checkpoint.save(first, model)
        never, means = Predictor(first), _Means(self.data, self.half)
        known = np.zeros(self.data.n_items, bool)
        known[self.data.items[: self.half]] = True
        scratch = never
        with service(model, place, 1, watch=True) as url:
            for part, stretch in enumerate(_stretches(self.half, len(self.data))):
                counted = known[self.data.items[stretch]]
                rmse = {
                    "a": _rmse(self._foreseen(never, stretch), self.data, stretch, counted),
                    "b": _rmse(means.foreseen(stretch), self.data, stretch, counted),
                    "c": _rmse(self._foreseen(scratch, stretch), self.data, stretch, counted),
                    "ours": self._through_the_service(url, store, stretch, counted),
                }
                line = {"part": part + 1, "rmse": rmse, "ratings": int(counted.sum())}
                began = time.process_time()
                done = refresh(model, place, bar=0.002, threads=1)
                line["refresh"] = {
                    "cpu_seconds": time.process_time() - began,
                    "published": done.published,
                    "before": done.before,
                    "after": done.after,
                }
                fitted, line["scratch_cpu_seconds"] = _from_scratch(store, first)
                scratch = Predictor(fitted)
                _taken_over(url, model)
                with self.out.open("a") as file:
                    print(json.dumps(line), file=file)
        store.close()

    def _foreseen(self, predictor: Predictor, stretch: npt.NDArray[np.int64]) -> Floats:
        """What a model expects of each rating, from all that came before it."""
        data = self.data
        items = _places(predictor.items.table, data.item_ids)
        users = _places(predictor.users.table, data.user_ids)
        earlier: dict[int, list[int]] = {}
        for at in range(int(stretch[0])):
            earlier.setdefault(int(data.users[at]), []).append(at)
        out = np.full(len(stretch), np.nan)
        for n, at in enumerate(stretch.tolist()):
            user = int(data.users[at])
            mine = earlier.setdefault(user, [])
            if items[data.items[at]] >= 0:
                before = np.array(mine, np.int64)
                columns = items[data.items[before]]
                person = Person(
                    columns[columns >= 0].astype(np.int32),
                    data.levels[before][columns >= 0],
                    (),
                    int(users[user]),
                )
                asked = np.array([items[data.items[at]]])
                out[n] = predictor.predicted(asked, history=person).predictions[0]
            mine.append(at)
        return out

    def _through_the_service(self, url: str, store: Store, stretch: Any, counted: Any) -> float:
        """Send the ratings, each person's in their order, and read what was expected of each."""
        before = foreseen_ratings(store, limit=None).height
        threads = [
            threading.Thread(target=self._send, args=(url, stretch, n)) for n in range(SENDERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wanted = before + len(stretch)
        last, since = before, time.monotonic()
        while last < wanted and time.monotonic() - since < 120:  # some items are new
            now = foreseen_ratings(store, limit=None).height
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(1)
        names = [str(raw) for raw in self.data.item_ids[self.data.items[stretch][counted]]]
        people = [str(raw) for raw in self.data.user_ids[self.data.users[stretch][counted]]]
        expected = _expected(store)
        errors = [expected[cell] for cell in zip(people, names, strict=True) if cell in expected]
        print(
            f"{len(errors):,} of {int(counted.sum()):,} were foreseen", file=sys.stderr, flush=True
        )
        return float(np.sqrt(np.mean(np.square(errors))))

    def _send(self, url: str, stretch: Any, number: int) -> None:
        data = self.data
        with httpx.Client(base_url=url, timeout=60) as client:
            for at in stretch[data.users[stretch] % SENDERS == number].tolist():
                person, item = data.user_ids[data.users[at]], data.item_ids[data.items[at]]
                rating = float(data.values[at])
                path = f"/people/{person}/ratings/{item}"
                while client.put(path, json={"rating": rating}).status_code != 200:
                    time.sleep(0.2)


def _expected(store: Store) -> dict[tuple[str, str], float]:
    """The error of each cell that was foreseen."""
    from sqlalchemy import select

    from cfnade.store.schema import EVENTS, PREDICTED

    query = select(EVENTS.c.person, EVENTS.c.item, PREDICTED.c.expected - EVENTS.c.rating).join(
        EVENTS, EVENTS.c.id == PREDICTED.c.event
    )
    with store.reading() as connection:
        return {(person, item): error for person, item, error in connection.execute(query)}


def _from_scratch(store: Store, like: FittedModel | None) -> tuple[FittedModel, float]:
    """A model of the recipe, trained on all that counts; and its processor seconds."""
    began, base = time.process_time(), recipe("ml-1m-user")
    ratings = load(f"store:{store.shown}") if like is None else ratings_for(like, store)
    trained = train(
        by_newest(ratings),
        side=base.side,
        architecture=base.model,
        settings=base.training,
        threads=1,
    )
    return replace(trained.fitted), time.process_time() - began


def _stretches(first: int, last: int) -> Iterator[npt.NDArray[np.int64]]:
    cuts = np.linspace(first, last, PARTS + 1).astype(int)
    for begin, end in pairwise(cuts.tolist()):
        yield np.arange(begin, end)


def _rmse(expected: Floats, data: Ratings, stretch: Any, counted: Any) -> float:
    errors = (expected - data.values[stretch])[counted]
    return float(np.sqrt(np.nanmean(np.square(errors))))


def _places(table: Any, ids: Any) -> npt.NDArray[np.int64]:
    before = {str(raw): place for place, raw in enumerate(table.tolist())}
    return np.array([before.get(str(raw), -1) for raw in ids.tolist()], np.int64)


def _taken_over(url: str, model: Path) -> None:
    """Wait until the service answers with the model of the folder."""
    from cfnade.fresh.publishing import check_of

    for _ in range(600):
        if httpx.get(f"{url}/version").json()["model"]["fingerprint"] == check_of(model):
            return
        time.sleep(0.2)
    raise RuntimeError("the service did not take the new model over")


class _Means:
    """(b): the mean of all, what an item adds, and what a user adds to that."""

    def __init__(self, data: Ratings, half: int) -> None:
        self._data = data
        self._items, self._users = np.zeros((data.n_items, 2)), np.zeros((data.n_users, 2))
        self._total, self._count = float(data.values[:half].sum()), half
        for at in range(half):
            self._learn(at)

    def _expect(self, at: int) -> float:
        mean = self._total / self._count
        return mean + self._item(at, mean) + self._user(at)

    def _item(self, at: int, mean: float) -> float:
        total, count = self._items[self._data.items[at]]
        return float((total - count * mean) / (count + DAMPING))

    def _user(self, at: int) -> float:
        total, count = self._users[self._data.users[at]]
        return float(total / (count + DAMPING))

    def _learn(self, at: int) -> None:
        rating, mean = float(self._data.values[at]), self._total / self._count
        self._users[self._data.users[at]] += (rating - mean - self._item(at, mean), 1)
        self._items[self._data.items[at]] += (rating, 1)

    def foreseen(self, stretch: Any) -> Floats:
        out = np.empty(len(stretch))
        for n, at in enumerate(stretch.tolist()):
            out[n] = self._expect(at)
            self._total, self._count = self._total + float(self._data.values[at]), self._count + 1
            self._learn(at)
        return out


if __name__ == "__main__":
    main()
