"""Components by name, and short names for lists of them.

`saved.py` has the same for those that predict without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from cfnade.components.base import Array, Axis, ComponentWeights
from cfnade.components.factor_analysis import FactorComponent, SampledFactorComponent
from cfnade.components.nade import NadeComponent
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.components.ridge import RidgeComponent
from cfnade.components.time import TimeComponent
from cfnade.components.trainable import ClosedFormComponent, Member, TorchComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import ColumnPartition
from cfnade.exceptions import ModelError, TrainingError


class Kind(NamedTuple):
    """A class of sides, and what its rows are."""

    side: type[TorchComponent]
    axis: Axis | None


KINDS: dict[str, Kind] = {
    "user": Kind(NadeComponent, "user"),
    "item": Kind(NadeComponent, "item"),
    "user-ridge": Kind(RidgeComponent, "user"),
    "item-ridge": Kind(RidgeComponent, "item"),
    "user-factors": Kind(FactorComponent, "user"),
    "item-factors": Kind(FactorComponent, "item"),
    "user-near": Kind(NeighborhoodComponent, "user"),
    "item-near": Kind(NeighborhoodComponent, "item"),
    "user-samples": Kind(SampledFactorComponent, "user"),
    "time": Kind(TimeComponent, None),
}
LISTS: dict[str, tuple[str, ...]] = {
    "both": ("user", "item"),
    "near": ("user", "item", "user-near", "item-near"),
    "factors-near": ("user-factors", "user-near", "item-near"),
}
"""Short names of lists."""

WITH_RIDGE = {("user",): ("user-ridge", "user"), ("item",): ("item-ridge", "item")}
"""What a single CF-NADE becomes with a ridge part."""
SIDE_CHOICES = '"user", "item" or "both"'


def component_names(side: object, *, ridge: int = 0, time: bool = False) -> tuple[str, ...]:
    """The sides of a member: those that `side` names, and what goes with them if asked.

    A ridge part stands before the one CF-NADE of side "user" or "item"; beside both of them it only
    learns by heart. A list of sides is taken as it is.
    """
    names = LISTS.get(side, tuple(side.split("+"))) if isinstance(side, str) else ()
    if not names or not set(names) <= set(KINDS) or len(set(names)) < len(names):
        more = sorted(set(KINDS) - {"user", "item"})
        reason = (
            f"must be {SIDE_CHOICES}, or several sides joined by +; further sides: "
            f"{', '.join(more)}"
        )
        message = f"side (={side!r}) {reason}"
        raise TrainingError(message, field="side", value=side, reason=reason)
    if ridge and names in WITH_RIDGE:
        names = WITH_RIDGE[names]
    return (*names, "time") if time and "time" not in names else names


def are_made(names: tuple[str, ...]) -> bool:
    """Whether such a member is made from ratings, and nothing of it is trained."""
    return all(issubclass(KINDS[name].side, ClosedFormComponent) for name in names)


def kernel_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups of kernels that training such a member needs (kernels/warmup.py)."""
    posteriors = (RidgeComponent, FactorComponent, SampledFactorComponent, NeighborhoodComponent)
    has_posteriors = any(KINDS[name].side in posteriors for name in names)
    return ("nade", "posterior") if has_posteriors else ("nade",)


def new_member(
    names: tuple[str, ...],
    ratings: Dataset,
    fields: Mapping[str, Any],
    settings: TrainingConfig,
    parts: Mapping[Axis, ColumnPartition] | None = None,
) -> Member:
    """A member for these ratings with its start values.

    parts say which columns they are of, by what the rows are.
    """
    sides = {name: KINDS[name].side.sized(KINDS[name].axis, ratings, fields) for name in names}
    for side in sides.values():
        side.part = None if parts is None or side.axis is None else parts[side.axis]
    generator = torch.Generator().manual_seed(settings.seed)
    axes = tuple(side.axis for side in sides.values())
    for number, side in enumerate(sides.values()):
        side.start(ratings, generator, settings, axes[:number])
    return Member(sides)


def saved_member(
    described: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, Mapping[str, Array]]
) -> Member:
    """A member from the fields of its sides and the arrays that they keep, parameters zero."""
    for name in described:
        if name not in KINDS:
            raise ModelError(f"unknown side {name!r}; this version of cfnade knows {[*KINDS]}")
    if not described:
        raise ModelError("a member has no sides; it needs at least one")
    return Member(
        {
            name: KINDS[name].side.from_saved(KINDS[name].axis, fields, arrays.get(name, {}))
            for name, fields in described.items()
        }
    )


def trainable_member(sides: Mapping[str, ComponentWeights]) -> Member:
    """Networks in the memory of these weights."""
    fields = {name: side.to_dict() for name, side in sides.items()}
    tables = {name: side.tables for name, side in sides.items()}
    return network_member(fields, tables, {name: side.arrays() for name, side in sides.items()})


def network_member(
    described: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Array]],
    arrays: Mapping[str, Mapping[str, Array]],
) -> Member:
    """A member with these tables of each side as its parameters; nothing is copied."""
    with torch.device("meta"):
        member = saved_member(described, arrays)
    for name, side in member.components.items():
        tensors = {key: torch.from_numpy(table) for key, table in tables[name].items()}
        side.network.load_state_dict(tensors, assign=True)
    return member.eval()


def network_shapes(
    described: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, Mapping[str, Array]]
) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Types and shapes of a member's tables by their names, as its networks have them."""
    with torch.device("meta"):
        sides = saved_member(described, arrays).components
    return {
        f"{name}.{key}": (torch.empty(0, dtype=tensor.dtype).numpy().dtype, tuple(tensor.shape))
        for name, side in sides.items()
        for key, tensor in side.network.state_dict().items()
    }
