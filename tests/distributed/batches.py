"""A small model of users, and tables of users and pairs."""

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
    """Save a model trained for two epochs, and its test part beside it."""
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
    """Return the users of the model and an unknown one."""
    return pl.DataFrame({"user": [*range(1, USERS + 1), 9_999]})


def newcomers(count: int = 90) -> pl.DataFrame:
    """Return new users with histories, some of them empty or with unknown items."""
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


def written(folder: Path, table: pl.DataFrame, cuts: list[int]) -> Path:
    """Write a table as Parquet files that end at these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
        table[first:last].write_parquet(folder / f"part-{number:03d}.parquet")
    return folder


def read_parts(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))])
