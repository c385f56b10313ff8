"""The kinds of sides, by name, and the lists of them that people ask for.

This is the one place that knows which kinds there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError, TrainingError
from cfnade.settings import Settings
from cfnade.sides.column_part import ColumnPart
from cfnade.sides.factor_side import FactorSide, SampledSide
from cfnade.sides.made_side import MadeSide
from cfnade.sides.nade import NadeSide
from cfnade.sides.near_side import NearSide
from cfnade.sides.ridge import RidgeSide
from cfnade.sides.side import Array, Axis, Member, Side
from cfnade.sides.time import TimeSide


class Kind(NamedTuple):
    """A class of sides, and what its rows are."""

    side: type[Side]
    axis: Axis | None


KINDS: dict[str, Kind] = {
    "user": Kind(NadeSide, "user"),
    "item": Kind(NadeSide, "item"),
    "user-ridge": Kind(RidgeSide, "user"),
    "item-ridge": Kind(RidgeSide, "item"),
    "user-factors": Kind(FactorSide, "user"),
    "item-factors": Kind(FactorSide, "item"),
    "user-near": Kind(NearSide, "user"),
    "item-near": Kind(NearSide, "item"),
    "user-samples": Kind(SampledSide, "user"),
    "time": Kind(TimeSide, None),
}
LISTS: dict[str, tuple[str, ...]] = {
    "both": ("user", "item"),
    "near": ("user", "item", "user-near", "item-near"),
    "factors-near": ("user-factors", "user-near", "item-near"),
}
"""Short names of lists."""

WITH_RIDGE = {("user",): ("user-ridge", "user"), ("item",): ("item-ridge", "item")}
"""What a single CF-NADE becomes with a ridge part."""
SIDES_IN_WORDS = '"user", "item" or "both"'


def side_names(side: object, *, ridge: int = 0, time: bool = False) -> tuple[str, ...]:
    """The sides of a member: those that `side` names, and what goes with them if asked.

    A ridge part stands before the one CF-NADE of side "user" or "item"; beside both of them it only
    learns by heart. A list of sides is taken as it is.
    """
    names = LISTS.get(side, tuple(side.split("+"))) if isinstance(side, str) else ()
    if not names or not set(names) <= set(KINDS) or len(set(names)) < len(names):
        more = sorted(set(KINDS) - {"user", "item"})
        raise TrainingError(
            f"side (={side!r}) must be {SIDES_IN_WORDS}, or several sides joined by +; further "
            f"sides: {', '.join(more)}"
        )
    if ridge and names in WITH_RIDGE:
        names = WITH_RIDGE[names]
    return (*names, "time") if time and "time" not in names else names


def are_made(names: tuple[str, ...]) -> bool:
    """Whether such a member is made from ratings, and nothing of it is trained."""
    return all(issubclass(KINDS[name].side, MadeSide) for name in names)


def kernel_task(names: tuple[str, ...]) -> str:
    """What training such a member needs compiled (kernels/tasks.py)."""
    if len({KINDS[name].axis for name in names} - {None}) == 2:
        return "blocks"
    posteriors = (RidgeSide, FactorSide, SampledSide)
    return "ridge" if any(KINDS[name].side in posteriors for name in names) else "rows"


def kernel_tasks(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same, and what its neighbourhoods need besides."""
    near = any(KINDS[name].side is NearSide for name in names)
    return (kernel_task(names), "near") if near else (kernel_task(names),)


def new_member(
    names: tuple[str, ...],
    ratings: Ratings,
    fields: Mapping[str, Any],
    settings: Settings,
    parts: Mapping[Axis, ColumnPart] | None = None,
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


def bytes_of_weights(names: tuple[str, ...], ratings: Ratings, fields: Mapping[str, Any]) -> int:
    """What a member's parameters would take; sides that read no rows have few, and count nothing.

    Nothing of that size is made.
    """
    kinds = [KINDS[name] for name in names if KINDS[name].axis is not None]
    with torch.device("meta"):
        sides = [kind.side.sized(kind.axis, ratings, fields) for kind in kinds]
    tensors = [tensor for side in sides for tensor in side.network.state_dict().values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


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


__all__ = [
    "KINDS",
    "WITH_RIDGE",
    "Axis",
    "Kind",
    "Member",
    "Side",
    "are_made",
    "bytes_of_weights",
    "kernel_task",
    "kernel_tasks",
    "new_member",
    "saved_member",
    "side_names",
]
