"""What tests of the service share: data, tiny models of every kind, histories, and servers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from starlette.exceptions import StarletteDeprecationWarning
from tests.support.raw_tables import raw_table
from uvicorn import Server

from cfnade import checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.data.validate import build
from cfnade.server.app import create_app
from cfnade.server.connection import LimitedConfig
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.run import bind
from cfnade.server.settings import ServerSettings
from cfnade.training.implicit import implicit_plan
from cfnade.training.plan import TrainingPlan, plan_side
from cfnade.training.train import train

with warnings.catch_warnings():
    # It would rather have httpx2, which is not needed for anything else.
    warnings.simplefilter("ignore", StarletteDeprecationWarning)
    from fastapi.testclient import TestClient as TestClient

USERS, ITEMS = 60, 40
JSON = {"content-type": "application/json"}
TITLES = {}  # by id, as MovieLens writes them; ids begin at 101


def _word(number: int) -> str:
    """Titles that no forgiven typing error turns into one another."""
    sounds = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]
    return (sounds[number // 10] + sounds[number % 10] * 2 + sounds[(7 * number) % 10]).title()


for _number in range(ITEMS):
    TITLES[101 + _number] = f"Film {_word(_number)}, The ({1950 + _number})"


@dataclass(frozen=True)
class Kind:
    """A kind of model, and what may be asked of it."""

    side: str
    new_people: bool = True
    known_users: bool = True
    lists: bool = True
    seeds: int = 1
    ids_are_titles: bool = False
    picks: bool = False
    starred: bool = True
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> list[str]:
        """What its lists may be ranked by, the usual one first."""
        rated = ["prediction", "threshold"] if self.starred else []
        return ["interaction"] * self.picks + rated

    def item(self, item: int) -> int | str:
        """The raw id of one of the 40 films."""
        return TITLES[item] if self.ids_are_titles else item


KINDS = {
    "user": Kind("user"),
    "item": Kind("item", new_people=False),
    "both": Kind("both"),
    "several": Kind("user", seeds=2),
    "timed": Kind("both", new_people=False, lists=False, fields={"time": True}),
    "ridge": Kind("user", fields={"ridge": 4}),
    "bare": Kind("user", known_users=False),  # saved without its context
    "titled": Kind("user", ids_are_titles=True),
    "lists": Kind("user", picks=True),
    "item lists": Kind("item", new_people=False, picks=True),
    "hearts": Kind("picks", picks=True, starred=False),
}
GENRES = ["Comedy", "Drama", "Horror"]
"""Of the films in turn; every fifth has two, the last none."""


def ratings(kind: Kind) -> Dataset:
    """60 people and 40 films with titles and genres."""
    made = synthetic(USERS, ITEMS, 1200, seed=5, times=True).ratings
    items = made.items + 101
    columns = raw_table(
        users=made.users + 1,
        items=pl.Series([TITLES[item] for item in items]) if kind.ids_are_titles else items,
        ratings=made.values,
        times=made.times,
        titles={} if kind.ids_are_titles else TITLES,
        genres={} if kind.ids_are_titles else {item: genres_of(item) for item in TITLES},
    )
    if not kind.starred:
        return build(columns, LoadOptions(implicit=True))
    return build(columns, LoadOptions(scale="1-5"))


def genres_of(item: int) -> str:
    """As MovieLens writes them."""
    if item == max(TITLES):
        return "(no genres listed)"
    own = [GENRES[item % 3]] + [GENRES[(item + 1) % 3]] * (item % 5 == 0)
    return "|".join(own)


def trained(folder: Path, kind: Kind, *, seed: int = 0) -> Path:
    """A model that was trained for a moment, saved."""
    data = split(ratings(kind), "paper:0")
    plan = implicit_plan(data.train, seed=seed, time_budget=0.02) if kind.picks else None
    if kind.starred:
        done = train(
            data,
            plan_side(
                kind.side,
                {"hidden": (12,), **kind.fields},
                TrainingConfig(epochs=3, batch_rows=16, learning_rate=5e-3, seed=seed),
                n_seeds=kind.seeds,
                implicit=plan,
            ),
        )
    else:
        assert plan is not None
        done = train(data, TrainingPlan(implicit=plan))
    checkpoint.save(done.model, folder, with_context=kind.known_users)
    return folder


def history(count: int = 5, seed: int = 0) -> dict[int, float]:
    """Ratings of somebody new, by id."""
    rng = np.random.default_rng(seed)
    items = rng.choice(ITEMS, count, replace=False) + 101
    return dict(zip(items.tolist(), rng.integers(1, 6, count).astype(float).tolist(), strict=True))


def who(history: dict[int, float], kind: Kind) -> dict[str, Any]:
    """Somebody new, as the service takes them."""
    if kind.starred:
        return {"ratings": rated(history, kind)}
    return {"interactions": [kind.item(item) for item in history]}


def rated(history: dict[int, float], kind: Kind = KINDS["user"]) -> list[dict[str, Any]]:
    """A history as the service takes it."""
    return [{"item": kind.item(item), "rating": rating} for item, rating in history.items()]


@contextmanager
def serving(
    folder: Path,
    **options: Any,
) -> Iterator[str]:
    """The service of a folder on a free port of loopback, in a thread. Gives its address."""
    registry, settings = ModelRegistry(folder), server_settings(folder, **options)
    registry.load()
    with bind("127.0.0.1", 0) as listener:
        listener.listen()  # who comes before the server is ready waits
        app = create_app(registry, settings)
        config = LimitedConfig(app, settings.limits, log_config=None)
        server = Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def server_settings(folder: Path, **options: Any) -> ServerSettings:
    """Settings under which a test client may use any host name."""
    return ServerSettings(model_dir=folder, **{"allow_hosts": ("*",), **options})


Asking = Callable[..., AbstractContextManager[TestClient]]
ModelOf = Callable[[str], Path]
ClientOf = Callable[[str], TestClient]
