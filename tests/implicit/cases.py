"""Small interactions and one fitted component of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade.implicit import InteractionModel
from cfnade.implicit.base import FitCache, ImplicitComponent, Options, component_class
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.sharpness import Sharpness
from cfnade.models.config import SetNADEConfig
from cfnade.models.set_nade import SetNADENetwork

M = 11


def some_rows(
    users: int = 30, *, seed: int = 0, columns: int = M, weighted: bool = False
) -> InteractionRows:
    """Return rows of different lengths in no order; user 2 has no interactions."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, columns - 2, users)
    counts[2:3] = 0
    indptr = np.concatenate([[0], np.cumsum(counts)])
    liking = rng.gumbel(size=(users, columns)) + np.linspace(1, 0, columns)
    order = np.argsort(-liking, axis=1)
    items = [order[row, :count] for row, count in enumerate(counts)]
    n = int(indptr[-1])
    weights = rng.integers(1, 9, n) if weighted else np.ones(n)
    return InteractionRows(
        indptr, np.concatenate(items).astype(np.int32), weights.astype(np.float32), columns
    )


def some_network(*, hidden: int = 5, columns: int = M, seed: int = 0) -> Any:
    """Return a set NADE with random weights."""
    generator = torch.Generator().manual_seed(seed)
    network = SetNADENetwork(
        SetNADEConfig(columns=columns, levels=1, hidden=hidden, mean_count=3.0)
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.6, generator=generator)
    return network


def fit(name: str, rows: InteractionRows, options: Options, variant: float | None = None) -> Any:
    """Return a fitted component."""
    component = component_class(name).fit(rows, options, seed=0, cache=FitCache())
    return component if variant is None else component.with_variant(variant)


RIDGE = {"penalty": 3.0, "item_power": 0.25, "user_power": 0.5}
CASES: dict[str, Callable[[InteractionRows], ImplicitComponent]] = {
    "ease": lambda rows: fit("ease", rows, RIDGE | {"weighting": "log"}, 0.5),
    "filter": lambda rows: fit("filter", rows, RIDGE | {"rank": 3}, 0.75),
    "local": lambda rows: fit("local", rows, RIDGE | {"neighbors": 4}, 0.1),
    "ials": lambda rows: fit("ials", rows, {"penalty": 3.0, "alpha": 0.3, "factors": 4}),
    "popularity": lambda rows: fit("popularity", rows, {}),
    "set-nade": lambda rows: fit("set-nade", rows, {"epochs": 2}),
}
"""One case of each kind."""


def some_model(rows: InteractionRows) -> InteractionModel:
    """Return a model of four components, one with a weight of 0."""
    weights = {"ease": 0.5, "ials": 0.3, "filter": 0.2, "popularity": 0.0}
    components = {name: CASES[name](rows) for name in weights}
    return InteractionModel(components, weights, Sharpness(0.8, 2.0))


def matrix(rows: InteractionRows) -> npt.NDArray[np.float64]:
    """Return interactions as numbers (B, M), 0 where there is none."""
    out = np.zeros((len(rows), rows.n_columns))
    out[rows.rows, rows.columns] = rows.weights
    return out


def summed_scores(model: InteractionModel, rows: InteractionRows) -> npt.NDArray[np.float64]:
    """Return the scores of a model in double precision, from those of its components. (B, M)."""
    total = np.zeros((len(rows), rows.n_columns))
    for name, component in model.components.items():
        if model.weights[name]:
            scores = component.scores(rows).astype(np.float64)
            spread = scores.std(1, keepdims=True)
            centered = scores - scores.mean(1, keepdims=True)
            total += model.weights[name] * centered / np.where(spread > 1e-9, spread, np.inf)
    counts = rows.counts[:, None]
    total *= model.sharpness.factor * counts / np.maximum(counts + model.sharpness.half_count, 1)
    empty = rows.counts == 0
    total[empty] = model.components["popularity"].scores(rows)[empty]
    return total
