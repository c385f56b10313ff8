"""Ratings as plain Python has them, files of them, and shards made of those."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfnade.distributed.build_shards import ShardOptions, build_shards
from cfnade.distributed.shards import ShardedRatings

Line = tuple[Any, Any, float]


def lines(count: int, seed: int, users: Sequence[Any], items: Sequence[Any]) -> list[Line]:
    """Distinct cells with ratings of 1 to 5, in no order; 1 and 5 come."""
    draw = random.Random(seed)
    cells = draw.sample([(user, item) for user in users for item in items], count)
    stars = [1.0, 5.0, *(float(draw.randint(1, 5)) for _ in cells)]
    return [(user, item, star) for (user, item), star in zip(cells, stars, strict=False)]


def csv_file(path: Path, some: Sequence[Line], header: bool = True) -> Path:
    text = "".join(f"{user},{item},{star:g}\n" for user, item, star in some)
    text = ("user,item,rating\n" if header else "") + text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def parquet_file(path: Path, some: Sequence[Line]) -> Path:
    users, items, stars = ([line[i] for line in some] for i in range(3))
    pl.DataFrame({"user": users, "item": items, "rating": stars}).write_parquet(path)
    return path


def sharded(out: Path, *files: Path, **options: Any) -> ShardedRatings:
    """By users unless both are asked for, which takes twice as long."""
    pytest.importorskip("duckdb", reason="needs cfnade[shard]")
    return build_shards(files, out, ShardOptions(**{"side": "user"} | options), n_workers=1)


def cells_of(shards: ShardedRatings, *divisions: str) -> dict[tuple[Any, Any], float]:
    """What the shards hold, by raw ids."""
    ratings = shards.ratings(*divisions)
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return dict(
        zip(zip(users.tolist(), items.tolist(), strict=True), ratings.values.tolist(), strict=True)
    )
