"""A small model of users, and crowds to ask it about; also for the tests of engines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl

from cfnade import CFNADE
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic

USERS, ITEMS = 260, 60


def saved_model(folder: Path) -> Path:
    """A model that reads what people rated, trained for two epochs."""
    parts = split(synthetic(USERS, ITEMS, 6_000, seed=3).ratings, "paper:1")
    model = CFNADE(side="user", ridge=0, hidden=(8,), epochs=2, seed=1, n_threads=1).fit(parts)
    model.save(folder)
    parquet = {
        "user": parts.test.user_ids[parts.test.users],
        "item": parts.test.item_ids[parts.test.items],
        "rating": parts.test.values,
    }
    pl.DataFrame(parquet).write_parquet(folder.parent / "test.parquet")
    return folder


def known() -> pl.DataFrame:
    """Users of the model and one whom it does not know."""
    return pl.DataFrame({"user": [*range(1, USERS + 1), 9_999]})


def newcomers(count: int = 90) -> pl.DataFrame:
    """People with names of their own, some of whom rated nothing, some things nobody knows."""
    draw = random.Random(7)
    rows = []
    for number in range(count):
        items = draw.sample(range(1, ITEMS + 5), draw.choice([0, 1, 5, 20]))
        rows.append((f"neu {number} Ω", items, [float(draw.randint(1, 5)) for _ in items]))
    kinds: dict[str, Any] = {
        "user": pl.String,
        "items": pl.List(pl.Int64),
        "ratings": pl.List(pl.Float64),
    }
    return pl.DataFrame(rows, kinds, orient="row")


def cells(count: int = 700) -> pl.DataFrame:
    draw = random.Random(5)
    users = [draw.randint(1, USERS) for _ in range(count)]
    return pl.DataFrame({"user": users, "item": [draw.randint(1, ITEMS) for _ in range(count)]})


def written(folder: Path, crowd: pl.DataFrame, cuts: list[int]) -> Path:
    """The crowd as Parquet parts that end at these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(crowd)], strict=True)):
        crowd[first:last].write_parquet(folder / f"part-{number:03d}.parquet")
    return folder


def read_parts(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))])
