"""What tests of refreshing share: a store with ratings that a tiny model was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.server.given import KINDS, Kind, ratings, trained

from cfnade.cli.store import events_frame
from cfnade.online.bulk import import_events
from cfnade.online.event_store import Event, EventStore

NEW_PEOPLE, NEW_RATERS = 5, 19


def store_of(path: Path, kind: Kind = KINDS["user"]) -> str:
    """The ratings of the tiny models; their newest are those of the file."""
    store, made = EventStore.open(str(path), create=True), ratings(kind)
    import_events(store, events_frame(made), source="test", scale=made.scale.values)
    store.close()
    return str(path)


def come(place: str) -> None:
    """Five new people rate twelve films, and nineteen known ones a new film, highly."""
    store = EventStore.open(place)
    rng = np.random.default_rng(2)
    new = [
        Event(f"n{p}", str(101 + item), "rating", float(rng.integers(1, 6)))
        for p in range(NEW_PEOPLE)
        for item in rng.choice(40, 12, replace=False).tolist()
    ]
    film = [Event(str(1 + user), "new", "rating", 5.0) for user in range(NEW_RATERS)]
    store.append([*new, *film])
    store.close()


def model_at(folder: Path, kind: str = "user") -> Path:
    return trained(folder, KINDS[kind])
