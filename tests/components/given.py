"""Ratings of which every answer can be written down, and members with weights of order one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tests.components.factor_network import FactorNetwork
from tests.components.neighborhood_network import NeighborhoodNetwork
from tests.components.toy import Toy

from cfnade.components import Member, RatingComponent
from cfnade.components.factor_analysis import FactorComponent
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.components.optimizers import member_network
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale

OWN_COMPONENTS = (Toy,)
"""Importing them registers them."""

N_USERS, N_ITEMS, STARS = 9, 8, (0.5, 1.0, 3.0, 4.0)

LISTS: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "item": ("item",),
    "both": ("user", "item"),
    "user-ridge": ("user-ridge",),
    "item-ridge+item": ("item-ridge", "item"),
    "user-factors+user": ("user-factors", "user"),
    "item-factors+item": ("item-factors", "item"),
    "item+item-neighborhood": ("item", "item-neighborhood"),
    "neighborhood": ("user", "item", "user-neighborhood", "item-neighborhood"),
    "factors-neighborhood+item": ("user-factors", "item", "user-neighborhood", "item-neighborhood"),
    "user+time": ("user", "time"),
    "both+time": ("user", "item", "time"),
    "toy": ("toy",),
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
    member = cast(new_member(names, ratings, fields, settings or TrainingConfig()), np.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in member_network(member).parameters():
            parameter.normal_(0.0, size, generator=generator)
    for side in member.components.values():
        if isinstance(side, NeighborhoodComponent):
            make_up_pairs(side)
    return member


def cast(member: Member, kind: type[Any]) -> Member:
    """With all weights in another precision."""
    return Member({name: cast_component(one, kind) for name, one in member.components.items()})


def cast_component(component: RatingComponent, kind: type[Any]) -> Any:
    specs = component.spec(component.config).items()
    floats = [name for name, spec in specs if spec.dtype == "float32"]
    return component.with_arrays({n: component.arrays[n].astype(kind) for n in floats})


def network_of(component: RatingComponent) -> Any:
    """Plain torch in the memory of the arrays, for closed forms the references here."""
    if isinstance(component, FactorComponent):
        network: torch.nn.Module = FactorNetwork(component.config)
    elif isinstance(component, NeighborhoodComponent):
        network = NeighborhoodNetwork(component.config)
    else:
        return component.network
    tensors = {name: torch.from_numpy(array) for name, array in component.arrays.items()}
    network.load_state_dict(tensors, assign=True)
    return network


def make_up_pairs(side: NeighborhoodComponent, seed: int = 5) -> None:
    """Covariances of half of all pairs, where so few ratings would show none; with a gain."""
    M, random = side.config.columns, np.random.default_rng(seed)
    table = np.triu(random.normal(size=(M, M)) * (random.random((M, M)) < 0.5), 1)
    table = 0.4 * (table + table.T) / M
    i, j = np.nonzero(table)
    side.config = replace(side.config, pairs=len(i))
    side.arrays |= {
        "starts": np.cumsum([0, *np.bincount(i, minlength=M)]).astype(np.int32),
        "others": j.astype(np.int32),
        "covariances": table[i, j],
        "variances": random.uniform(0.8, 1.2, M),
    }
    side.set_gain(0.8, -0.1)


def weights(member: Member) -> torch.Tensor:
    """All trained weights in one vector."""
    parameters = member_network(member).parameters()
    return torch.cat([p.detach().flatten() for p in parameters])
