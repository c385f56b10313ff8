"""A small bundle of every kind, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from cfnade.bundle import Bundle
from cfnade.calibration import Calibration
from cfnade.data.build import Options, build
from cfnade.data.columns import Columns
from cfnade.data.ratings import Ratings, Side
from cfnade.models.cfnade import CFNADE

FloatArray = npt.NDArray[np.float64]
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"hidden": (6,)},
    "unshared": {"hidden": (6,), "shared": False},
    "factored": {"hidden": (6,), "factors": 3},
    "factored-unshared": {"hidden": (6,), "factors": 3, "shared": False},
    "deep": {"hidden": (6, 5), "activation": "sigmoid"},
    "deep-factored-sqrt": {
        "hidden": (6, 5, 4),
        "factors": 3,
        "context_scale": "sqrt",
        "mean_context": 3.5,
    },
    "sqrt": {"hidden": (6,), "context_scale": "sqrt", "mean_context": 5.0},
}
SIDES: list[Side] = ["user", "item"]
USERS, ITEMS = 9, 14
NEW_ITEM, NEW_USER = 13, 8
"""Ids in the tables which nobody in the context rated, and who rated nothing."""


def ratings(*, texts: bool = False) -> Ratings:
    """Half stars; the last user and the last item are in the id tables only."""
    rng = np.random.default_rng(3)
    users, items = np.divmod(rng.choice((USERS - 1) * (ITEMS - 1), 70, replace=False), ITEMS - 1)
    users, items = np.append(users, NEW_USER), np.append(items, NEW_ITEM)
    values = rng.integers(1, 11, 71) / 2
    names = {i: f"Film {i}" for i in range(ITEMS - 1)}
    whole = build(
        Columns(
            users=pl.Series([f"u{u}" for u in users]) if texts else users * 10,
            items=pl.Series([f"i{i:02d}" for i in items]) if texts else items + 100,
            values=values,
            times=np.arange(71),
            titles={(f"i{i:02d}" if texts else i + 100): t for i, t in names.items()},
        ),
        Options(scale="0.5-5/0.5"),
    )
    return whole.select(np.arange(70))


def make(side: Side, *, data: Ratings | None = None, seed: int = 0, **fields: Any) -> Bundle:
    context = ratings() if data is None else data
    rows = context.rows(side)
    model = CFNADE(columns=rows.n_columns, levels=rows.n_levels, **({"hidden": (6,)} | fields))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    counts = np.zeros((rows.n_columns, rows.n_levels), np.int64)
    np.add.at(counts, (rows.columns, rows.levels), 1)
    return Bundle(model.eval(), side, context, counts, calibration=Calibration(1.3))


def history_of(data: Ratings, user: int) -> dict[Any, float]:
    """All that a user rated, as raw ids and stars."""
    mine = data.users == user
    raw = data.item_ids[data.items[mine]].tolist()
    return dict(zip(raw, data.values[mine].tolist(), strict=True))
