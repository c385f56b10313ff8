"""Small picks and a small choice of every side, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade.choice import Choice
from cfnade.choice.choice_side import ChoiceSide
from cfnade.choice.factored import Posterior, PosteriorConfig
from cfnade.choice.linear import Linear
from cfnade.choice.picks import Picks
from cfnade.choice.set_nade import ChoiceNade
from cfnade.models.choice_network import ChoiceNetwork
from cfnade.models.config import ChoiceConfig

M = 11


def some_picks(
    people: int = 30, *, seed: int = 0, columns: int = M, levels: int = 1, weighed: bool = False
) -> Picks:
    """Of people, the third of whom picked nothing; no order among a person's."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, columns - 2, people)
    counts[2:3] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    liking = rng.gumbel(size=(people, columns)) + np.linspace(1, 0, columns)
    order = np.argsort(-liking, axis=1)
    named = [order[row, :count] for row, count in enumerate(counts)]
    n = int(offsets[-1])
    weights = rng.uniform(0.3, 2, n) if weighed else np.ones(n)
    return Picks(
        offsets,
        np.concatenate(named).astype(np.int32),
        rng.integers(0, levels, n).astype(np.uint8),
        weights.astype(np.float32),
        columns,
    )


def some_network(levels: int = 1, *, hidden: int = 5, columns: int = M, seed: int = 0) -> Any:
    """With random weights."""
    generator = torch.Generator().manual_seed(seed)
    config = ChoiceConfig(columns=columns, levels=levels, hidden=hidden, usual=3.0)
    network = ChoiceNetwork(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.6, generator=generator)
    return network


def nade_side(picks: Picks) -> ChoiceSide:
    columns = picks.n_columns
    return ChoiceNade.of([some_network(columns=columns, seed=seed) for seed in range(2)])


def linear_side(picks: Picks) -> ChoiceSide:
    return Linear.fit(picks, penalty=3.0)


def sparse_side(picks: Picks) -> ChoiceSide:
    return Linear.fit(picks, penalty=3.0, neighbours=4)


def posterior_side(picks: Picks) -> ChoiceSide:
    config = PosteriorConfig(columns=picks.n_columns, factors=4)
    return Posterior.fit(picks, config, sweeps=2, people=1000, seed=0)


SIDES = {
    "nade": nade_side,
    "linear": linear_side,
    "linear-sparse": sparse_side,
    "posterior": posterior_side,
}
"""Makers, by the kind and a variant of it."""


def some_choice(picks: Picks) -> Choice:
    """Of all kinds."""
    sides = {name: make(picks) for name, make in SIDES.items() if "-" not in name}
    return Choice(sides, {"nade": 1.0, "linear": 2.5, "posterior": 0.7})


def matrix(picks: Picks) -> npt.NDArray[np.float64]:
    """Picks as numbers (B, M), 0 where there is none."""
    out = np.zeros((len(picks), picks.n_columns))
    out[picks.rows, picks.columns] = picks.weights
    return out
