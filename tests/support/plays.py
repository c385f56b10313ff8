"""Interactions for tests, and how to look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cfnade import load
from cfnade.data.dataset import Dataset

Line = tuple[int, int, int, int]  # user, item, count, time


def triples(ratings: Dataset) -> list[tuple[Any, Any, float]]:
    weights = np.ones(len(ratings)) if ratings.weights is None else ratings.weights
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return list(zip(users.tolist(), items.tolist(), weights.tolist(), strict=True))


def saved(tmp_path: Path, text: str, name: str = "plays.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def lines_of(count: int, seed: int = 0, users: int = 12, items: int = 9) -> list[Line]:
    draw = np.random.default_rng(seed)
    columns = (draw.integers(1, high, count).tolist() for high in (users, items, 6, 10**9))
    return list(zip(*columns, strict=True))


def played(count: int = 60, **options: Any) -> Dataset:
    frame = pl.DataFrame(lines_of(count), schema=["user", "item", "plays", "time"], orient="row")
    return load(frame, **options)
