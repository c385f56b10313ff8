"""Weights in half the bytes, where what the model says stays the same: measured, not hoped for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import CheckpointError
from cfnade.fitted import FittedModel
from cfnade.personal import Calibrator
from cfnade.scorer import Scorer
from cfnade.sides.side import Array

BOUND = 1e-3
"""No probability of a cell that was looked at may change by more."""

CELLS = 10_000
"""So many are looked at: of a smaller model all, else half known ratings and half any cells."""


class Halves(NamedTuple):
    """Tables that may be saved as float16, by their names in the file, and what that changes."""

    names: frozenset[str]
    change: float
    cells: int
    spared: int
    """Bytes."""


def weights_of(fitted: FittedModel) -> dict[str, Array]:
    """Weights as member.side.parameter, sharing memory with the model."""
    return {
        f"{number}.{name}": table
        for number, member in enumerate(fitted.answering)
        for name, table in member.tables().items()
    }


def halves_of(fitted: FittedModel) -> Halves:
    """All tables if together they change little; else as many as do, the largest first."""
    if not fitted.has_context:
        raise CheckpointError(
            "half=True measures what the model says about known ratings, and this one came without "
            "them; save it in halves from a copy with its context, or leave half out"
        )
    if not fitted.rates:
        raise CheckpointError(
            "half=True is for weights that predict ratings, and this model has none; leave it out"
        )
    asked = _cells(fitted)
    change_by = _measure(fitted, asked)
    tables = weights_of(fitted)
    floats = [name for name, table in tables.items() if table.dtype.kind == "f"]
    names = sorted(floats, key=lambda name: (-tables[name].size, name))
    chosen, change = set(names), change_by(names)
    if not change <= BOUND:
        chosen, change = set(), 0.0
        for name in names:
            changed = change_by({*chosen, name})
            if changed <= BOUND:
                chosen.add(name)
                change = changed
    spared = sum(2 * tables[name].size for name in chosen)
    return Halves(frozenset(chosen), change, len(asked[0]), spared)


def _measure(
    fitted: FittedModel, cells: tuple[Any, Any, Any]
) -> Callable[[Collection[str]], float]:
    """How much probabilities change at most if tables of these names are rounded."""
    users, items, _ = cells
    whole, honest = Scorer(fitted), Calibrator(fitted)
    before = honest.of_cells(whole.probabilities(*cells), users, items)
    tables, members = weights_of(fitted), deepcopy(fitted.answering)
    rounded = weights_of(replace(fitted, answering=members))

    def change_by(names: Collection[str]) -> float:
        with np.errstate(over="ignore"):
            for name, table in tables.items():
                rounded[name][...] = table.astype(np.float16) if name in names else table
        if not all(bool(np.isfinite(rounded[name]).all()) for name in names):
            return np.inf  # float16 ends at 65,504
        after = whole.with_members(*members).probabilities(*cells)
        changes = np.abs(honest.of_cells(after, users, items) - before)
        return float(changes.max()) if np.isfinite(changes).all() else np.inf

    return change_by


def _cells(fitted: FittedModel) -> tuple[Any, Any, Any]:
    """Users, items, and times where the model needs them."""
    context, random = fitted.context, np.random.default_rng(0)
    if context.n_users * context.n_items <= CELLS:
        users, items = np.divmod(np.arange(context.n_users * context.n_items), context.n_items)
    else:
        users, items = _sampled(context, random)
    if not fitted.needs_times:
        return users, items, None
    assert context.times is not None
    return users, items, random.choice(context.times, len(users))


def _sampled(context: Dataset, random: np.random.Generator) -> tuple[Any, Any]:
    places = random.integers(len(context), size=CELLS // 2)
    users = random.integers(context.n_users, size=CELLS - len(places))
    items = random.integers(context.n_items, size=CELLS - len(places))
    return (
        np.concatenate([context.users[places], users]).astype(np.int64),
        np.concatenate([context.items[places], items]).astype(np.int64),
    )
