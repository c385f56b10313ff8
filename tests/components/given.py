"""Ratings of which every answer can be written down, and members with weights of order one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cfnade.components import Member, new_member
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.models.near_network import NearNetwork

N_USERS, N_ITEMS, STARS = 9, 8, (0.5, 1.0, 3.0, 4.0)

LISTS: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "item": ("item",),
    "both": ("user", "item"),
    "user-ridge": ("user-ridge",),
    "item-ridge+item": ("item-ridge", "item"),
    "user-factors+user": ("user-factors", "user"),
    "item-factors+item": ("item-factors", "item"),
    "item+item-near": ("item", "item-near"),
    "near": ("user", "item", "user-near", "item-near"),
    "factors-near+item": ("user-factors", "item", "user-near", "item-near"),
    "user-samples+user": ("user-samples", "user"),
    "user+time": ("user", "time"),
    "both+time": ("user", "item", "time"),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "shared": {"hidden": (5,)},
    "unshared-deep": {"hidden": (5, 4), "shared": False, "activation": "sigmoid"},
    "factored-sqrt": {"hidden": (6,), "factors": 3, "context_scale": "sqrt"},
    "deep-factored-unshared": {
        "hidden": (5, 4),
        "factors": 3,
        "shared": False,
        "context_scale": "sqrt",
        "activation": "relu",
        "ordinal_weight": 0.4,
        "target_weight": "unit",
    },
}


def some_ratings(seed: int = 0) -> Dataset:
    """More than half of all cells, in random order; user 0 and item 0 have none."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(1 + np.argwhere(rng.random((N_USERS - 1, N_ITEMS - 1)) < 0.6))
    return Ratings(
        users=cells[:, 0].astype(np.int32),
        items=cells[:, 1].astype(np.int32),
        levels=rng.permutation(np.arange(len(cells)) % len(STARS)).astype(np.uint8),
        scale=Scale(STARS),
        user_ids=np.arange(N_USERS) * 10,
        item_ids=np.arange(N_ITEMS) + 100,
        times=rng.integers(0, 10**6, len(cells)),
    )


def some_member(
    names: tuple[str, ...],
    fields: dict[str, Any],
    settings: TrainingConfig | None = None,
    *,
    ratings: Dataset | None = None,
    seed: int = 3,
    size: float = 0.7,
) -> Member:
    """In double precision, all parameters random, biases too."""
    ratings = some_ratings() if ratings is None else ratings
    member = new_member(names, ratings, fields, settings or TrainingConfig()).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in member.parameters():
            parameter.normal_(0.0, size, generator=generator)
    for side in member.components.values():
        if isinstance(side, NeighborhoodComponent):
            make_up_pairs(side)
    return member.eval()


@torch.no_grad()
def make_up_pairs(side: NeighborhoodComponent, seed: int = 5) -> None:
    """Covariances of half of all pairs, where so few ratings would show none; with a gain."""
    old, M = side.network, side.network.config.columns
    random = np.random.default_rng(seed)
    table = np.triu(random.normal(size=(M, M)) * (random.random((M, M)) < 0.5), 1)
    table = 0.4 * (table + table.T) / M
    i, j = np.nonzero(table)
    side.network = NearNetwork(replace(old.config, pairs=len(i))).double()
    side.network.factors = old.factors
    side.network.starts[1:] = torch.from_numpy(np.cumsum(np.bincount(i, minlength=M)))
    side.network.others.copy_(torch.from_numpy(j))
    side.network.covariances.copy_(torch.from_numpy(table[i, j]))
    side.network.variances.uniform_(0.8, 1.2, generator=torch.Generator().manual_seed(seed))
    side.network.gain.fill_(0.8)
    side.network.shift.fill_(-0.1)


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])
