"""What tests of the service share: data, a tiny model, histories, and a process that serves."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import numpy as np
from starlette.exceptions import StarletteDeprecationWarning

from cfnade import checkpoint
from cfnade.data.build import Options, build
from cfnade.data.columns import Columns
from cfnade.data.ratings import Ratings, Side
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.settings import Settings
from cfnade.training.run import train

with warnings.catch_warnings():
    # It would rather have httpx2, which is not needed for anything else.
    warnings.simplefilter("ignore", StarletteDeprecationWarning)
    from fastapi.testclient import TestClient as TestClient

USERS, ITEMS = 60, 40
JSON = {"content-type": "application/json"}


def ratings() -> Ratings:
    """60 people and 40 films with titles, as MovieLens writes them; ids begin at 101."""
    made = synthetic(USERS, ITEMS, 1200, seed=5).ratings
    columns = Columns(
        users=made.users + 1,
        items=made.items + 101,
        values=made.values,
        titles={101 + i: f"Film {_word(i)}, The ({1950 + i})" for i in range(ITEMS)},
    )
    return build(columns, Options(scale="1-5"))


def _word(number: int) -> str:
    """Titles that no forgiven typing error turns into one another."""
    sounds = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]
    return (sounds[number // 10] + sounds[number % 10] * 2 + sounds[(7 * number) % 10]).title()


def trained(folder: Path, side: Side, *, seed: int = 0) -> Path:
    """A model that was trained for a moment, saved."""
    settings = Settings(epochs=3, batch_rows=16, learning_rate=5e-3, seed=seed)
    done = train(
        split(ratings(), "paper:0"), side=side, architecture={"hidden": (12,)}, settings=settings
    )
    checkpoint.save(done.bundle, folder)
    return folder


def history(count: int = 5, seed: int = 0) -> dict[int, float]:
    """Ratings of somebody new, by id."""
    rng = np.random.default_rng(seed)
    items = rng.choice(ITEMS, count, replace=False) + 101
    return dict(zip(items.tolist(), rng.integers(1, 6, count).astype(float).tolist(), strict=True))


def rated(given: dict[int, float]) -> list[dict[str, Any]]:
    """A history as the service takes it."""
    return [{"item": item, "rating": rating} for item, rating in given.items()]


@dataclass
class Service:
    """A process that serves."""

    process: Popen[str]
    host: str
    port: int
    said: list[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def healthy(self) -> bool:
        return httpx.get(f"{self.url}/health", timeout=30).text == '{"status":"ok"}'

    def wait_until_said(self, text: str) -> None:
        """Until the log has the text; the test's own time-out ends a wait in vain."""
        pause = threading.Event()
        while text not in "".join(self.said):
            assert self.process.poll() is None, "".join(self.said)
            pause.wait(0.02)


Asking = Callable[..., AbstractContextManager[TestClient]]
Running = Callable[..., AbstractContextManager[Service]]
