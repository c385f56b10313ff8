"""Models for the tests of saving and loading, and forged folders."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch
from tests.implicit.cases import CASES, some_model
from tests.support.raw_tables import raw_table

from cfnade.calibration.calibration import Calibration
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_names, new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit import InteractionModel
from cfnade.implicit.rows import InteractionRows

KINDS: dict[str, dict[str, Any]] = {
    "user": {},
    "user-factored-unshared": {"shared": False, "factors": 3},
    "user-seeds": {"seeds": 3},
    "item-deep": {"side": "item", "hidden": (6, 5, 4), "context_scale": "sqrt"},
    "both": {"side": "both"},
    "both-time-seeds": {"side": "both", "time": True, "seeds": 2},
    "user-choice": {"choice": True},
}


def ratings(*, texts: bool = False, titles: bool = True) -> Dataset:
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.choice(9 * 12, 60, replace=False), 12)
    values = rng.integers(1, 11, 60) / 2
    names = {i: f"Film {i} – é" for i in range(11)}
    return build(
        raw_table(
            users=pl.Series([f"u{u}" for u in users]) if texts else users * 7,
            items=pl.Series([f"i{i}" for i in items]) if texts else items,
            ratings=values,
            times=np.arange(60) + 10**9,
            titles=({f"i{i}": t for i, t in names.items()} if texts else names) if titles else {},
            genres={1: "Comedy|Drama"} if titles and not texts else {},
            source="made up",
        ),
        LoadOptions(scale="0.5-5/0.5"),
    )


def _interactions(rows: InteractionRows) -> InteractionModel:
    """Return a model with local ridge, which has item indices among its arrays."""
    model = some_model(rows)
    components = {**model.components, "local": CASES["local"](rows)}
    return InteractionModel(components, {**model.weights, "local": 0.1}, model.sharpness)


def make(
    side: str = "user",
    *,
    seed: int = 0,
    seeds: int = 1,
    time: bool = False,
    data: Dataset | None = None,
    choice: bool = False,
    **fields: Any,
) -> FittedModel:
    context = ratings() if data is None else data
    names, fields = component_names(side, time=time), {"hidden": (6,)} | fields
    members = tuple(new_member(names, context, fields, TrainingConfig()) for _ in range(seeds))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for member in members:
            for parameter in member_network(member).parameters():
                parameter.normal_(0.0, 0.5, generator=generator)
    counts = count_training_ratings(members[0].axes, context)
    facts = {"context": "train + valid", "seed": seed, "metrics": {"rmse": 0.8312345678901234}}
    rows = InteractionRows.from_ratings(context)
    picked = _interactions(rows) if choice else None
    return FittedModel(
        members, side, context, counts, Calibration(1.25), True, facts, interaction_model=picked
    )


def weights(fitted: FittedModel) -> list[dict[str, bytes]]:
    return [
        {name: array.tobytes() for name, array in member.arrays().items()}
        for member in fitted.members
    ]


def implicit_tables(fitted: FittedModel) -> Any:
    """What it knows of picks."""
    if fitted.interaction_model is None:
        return None
    tables = fitted.interaction_model.arrays().items()
    return fitted.interaction_model.to_dict(), {name: table.tobytes() for name, table in tables}


def same(one: FittedModel, other: FittedModel) -> bool:
    fields = [
        (f.side, f.calibration, f.has_context, f.metadata, [m.to_dict() for m in f.members])
        for f in (one, other)
    ]
    return (
        weights(one) == weights(other)
        and implicit_tables(one) == implicit_tables(other)
        and fields[0] == fields[1]
        and one.context == other.context
        and set(one.training_counts) == set(other.training_counts)
        and all(
            np.array_equal(one.training_counts[axis], other.training_counts[axis])
            for axis in one.training_counts
        )
    )
