"""MovieLens 1M once more, as it came: half is trained on, half comes event by event.

    python -m experiments.replay --out experiments/results/replay.jsonl

The second half comes in the order of time and in ten parts; after each the model is refreshed. The
first ratings of a part go over HTTP to a running `cfnade serve --store --watch`, the others by
`EventStore.append` into its store. What is expected of each rating before it comes is asked of the
model that is served, by `Predictor.predict` with all that its person said before; of those that
went over HTTP it is compared with what the service noted. Beside it, on the same ratings: (a) the
first model, never refreshed; (b) means of users and items, updated with every rating; (c) a model
trained from scratch after each part, the newest tenth held back to choose the epoch by; and (d)
that one trained once more for as many epochs on all. `--every-person 4` takes every fourth person.
Ratings of items that the first half does not have come and are learnt, but not counted.
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
from experiments.replay_means import OnlineMeans

PARTS = 10
BAR = 0.002
AT_ONCE = 2_000
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--every-person", type=int, default=4)
    given.add_argument("--http", type=int, default=300, help="ratings of a part sent over HTTP")
    given.add_argument("--machine", default="", help="what it runs on, for the report")
    given.add_argument("--out", type=Path, required=True)
    asked = given.parse_args()
    data = _in_order(load("ml-1m"), asked.every_person)
    head = {
        "every_person": asked.every_person,
        "people": len(np.unique(data.users)),
        "ratings": len(data),
        "parts": PARTS,
        "bar": BAR,
        "machine": asked.machine,
    }
    asked.out.write_text(json.dumps(head) + "\n")
    with tempfile.TemporaryDirectory() as name:
        for line in Replay(data, Path(name), asked.http).lines():
            with asked.out.open("a") as file:
                print(json.dumps(line), file=file)


def _in_order(ratings: Dataset, every: int) -> Dataset:
    mine = np.flatnonzero(ratings.users % every == 0)
    assert ratings.times is not None
    return ratings.select(mine[np.argsort(ratings.times[mine], kind="stable")])


@dataclass
class Replay:
    """The ratings in their order, and where the store and the model are."""

    data: Dataset
    folder: Path
    over_http: int

    def __post_init__(self) -> None:
        self._half, self._values = len(self.data) // 2, self.data.values
        self._of_person = _places_by_person(self.data.users, self.data.n_users)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is to be said of each part."""
        place, model = str(self.folder / "ratings.db"), self.folder / "model"
        store = EventStore.open(place, create=True)
        half = events_frame(self.data.select(np.arange(self._half)))
        import_events(store, half, source="first half", scale=self.data.scale.values)
        first = _from_scratch(load(f"store:{place}"))
        checkpoint.save(first, model)
        never, means = Predictor(first), OnlineMeans(self.data, self._half)
        scratch, on_all = first, first
        with service(model, place, 1, watch=True) as url:
            for number, part in enumerate(_parts(self._half, len(self.data))):
                _taken_over(url, model)
                expected = {
                    "a": self._foreseen(never, part),
                    "b": means.foreseen(part),
                    "c": self._foreseen(Predictor(scratch), part),
                    "d": self._foreseen(Predictor(on_all), part),
                    "ours": self._foreseen(Predictor.load(model), part),
                }
                counted = np.isin(self.data.items[part], self.data.items[: self._half])
                line: dict[str, Any] = {"part": number + 1, "ratings": int(counted.sum())}
                line["rmse"] = {name: self._rmse(e, part, counted) for name, e in expected.items()}
                line["http"] = self._come(url, store, part, expected["ours"])
                line["refresh"] = _refreshed(model, place)
                began = time.process_time()
                ratings = current_ratings(first, store)
                scratch = _from_scratch(ratings)
                line["scratch_cpu_seconds"] = time.process_time() - began
                on_all = _trained_on_all(ratings, scratch.metadata["best_epoch"])
                line["on_all_cpu_seconds"] = time.process_time() - began
                yield line
        store.close()

    def _foreseen(self, predictor: Predictor, part: Indices) -> Floats:
        """What a model expects of each rating, from all that its person said before."""
        data = self.data
        items = match_tables(data.item_ids, predictor.items.table)
        users = match_tables(data.user_ids, predictor.users.table)
        out = np.full(len(part), np.nan)
        asked = np.flatnonzero(items[data.items[part]] >= 0)
        for some in np.array_split(asked, max(1, len(asked) // AT_ONCE)):
            people = {}
            for at in part[some].tolist():
                mine = self._of_person[data.users[at]]
                before = mine[: np.searchsorted(mine, at)]
                met = items[data.items[before]]
                rated = met[met >= 0].astype(np.int32), data.levels[before[met >= 0]]
                people[at] = UserHistory(
                    *rated, (), int(users[data.users[at]]) if len(before) else -1
                )
            raws = predictor.items.table[items[data.items[part[some]]]]
            out[some] = predictor.predict(
                list(people), raws, histories=people, calibrated=False
            ).predictions
        return out

    def _rmse(self, expected: Floats, part: Indices, counted: Any) -> float:
        errors = (expected - self._values[part])[counted]
        return float(np.sqrt(np.mean(np.square(errors))))

    # -- ratings come -------------------------------------------------------------------------

    def _come(self, url: str, store: EventStore, part: Indices, expected: Floats) -> dict[str, Any]:
        """All of a part, in order; and how far what the service expected is from what we did."""
        said = [self._said(at) for at in part.tolist()]
        with httpx.Client(base_url=url, timeout=60) as client:
            for one in said[: self.over_http]:
                path = f"/users/{one.user_id}/ratings/{one.item_id}"
                client.put(path, json={"rating": one.rating}).raise_for_status()
        sent = zip(said[: self.over_http], expected[: self.over_http].tolist(), strict=True)
        ours = {(one.user_id, one.item_id): e for one, e in sent if not np.isnan(e)}
        theirs = _noted(store, ours)  # before others hold the file: it does not wait for long
        for lo in range(self.over_http, len(said), AT_ONCE):
            store.append(said[lo : lo + AT_ONCE])
        gap = max((abs(theirs[cell] - e) for cell, e in ours.items()), default=0.0)
        return {"compared": len(ours), "largest_gap": gap}

    def _said(self, at: int) -> Event:
        data = self.data
        person, item = data.user_ids[data.users[at]], data.item_ids[data.items[at]]
        return Event(str(person), str(item), "rating", float(self._values[at]))


def _noted(store: EventStore, cells: Collection[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """What the service expected of these; it notes that in the background."""
    noted = (EVENTS.c.user_id, EVENTS.c.item_id, PREDICTIONS.c.prediction)
    query = select(*noted).join(EVENTS, EVENTS.c.id == PREDICTIONS.c.event_id)
    for _ in range(600):
        with store.read() as connection:
            found = {(person, item): e for person, item, e in connection.execute(query)}
        if all(cell in found for cell in cells):
            return found
        time.sleep(0.2)
    raise RuntimeError("the service did not note what it expected")


def _taken_over(url: str, model: Path) -> None:
    """Wait until the service answers with the model of the folder."""
    for _ in range(600):
        if httpx.get(f"{url}/model").json()["fingerprint"] == fingerprint(model):
            return
        time.sleep(0.2)
    raise RuntimeError("the service did not take the new model over")


# -- models --------------------------------------------------------------------------------------


def _refreshed(model: Path, place: str) -> dict[str, Any]:
    began = time.process_time()
    done = refresh(model, place, tolerance=BAR, n_threads=1)
    seconds = time.process_time() - began
    rmse = {"before": done.rmse_before, "after": done.rmse_after}
    return {"cpu_seconds": seconds, "published": done.published, **rmse}


def _from_scratch(ratings: Dataset) -> FittedModel:
    """A model of the recipe, chosen by the newest tenth."""
    return _trained(newest_split(ratings), load_recipe("ml-1m-user").training)


def _trained_on_all(ratings: Dataset, epochs: int) -> FittedModel:
    everything = apply_labels(ratings, np.full(len(ratings), TRAIN, np.uint8), "all")
    how = load_recipe("ml-1m-user").training
    return _trained(everything, replace(how, epochs=epochs, schedule="constant"))


def _trained(split: Split, settings: TrainingConfig) -> FittedModel:
    base = load_recipe("ml-1m-user")
    trained = train(split, plan_side(base.side, base.model, settings), RunOptions(n_threads=1))
    return trained.model


def _parts(first: int, last: int) -> Iterator[Indices]:
    cuts = np.linspace(first, last, PARTS + 1).astype(int)
    for begin, end in pairwise(cuts.tolist()):
        yield np.arange(begin, end)


def _places_by_person(users: Any, count: int) -> list[Indices]:
    """Where the ratings of each person are, in order."""
    order = np.argsort(users, kind="stable")
    return np.split(order, np.cumsum(np.bincount(users, minlength=count))[:-1])


if __name__ == "__main__":
    main()
