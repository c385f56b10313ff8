"""New members of rating components: which a `side` names, and their start values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cfnade.components.base import (
    Arrays,
    ArraySpec,
    Axis,
    FitData,
    Member,
    RatingComponent,
)
from cfnade.components.factor_analysis import FactorComponent
from cfnade.components.nade import NadeComponent
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.components.registry import COMPONENTS, component_kind
from cfnade.components.ridge import RidgeComponent
from cfnade.components.time import TimeComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError, TrainingError

if TYPE_CHECKING:
    from cfnade.distributed.partition import ColumnPartition

IMPORTED = NadeComponent, RidgeComponent, FactorComponent, NeighborhoodComponent, TimeComponent
"""Importing their modules registers all rating components."""

LISTS: dict[str, tuple[str, ...]] = {
    "both": ("user", "item"),
    "neighborhood": ("user", "item", "user-neighborhood", "item-neighborhood"),
    "factors-neighborhood": ("user-factors", "user-neighborhood", "item-neighborhood"),
}
"""Short names of lists."""

WITH_RIDGE = {("user",): ("user-ridge", "user"), ("item",): ("item-ridge", "item")}
"""What a single CF-NADE becomes with a ridge component."""
SIDE_CHOICES = '"user", "item" or "both"'


def component_names(side: object, *, ridge: int = 0, time: bool = False) -> tuple[str, ...]:
    """Return the components of a member: those that `side` names, with ridge and time if asked.

    A ridge component stands before the one CF-NADE of side "user" or "item"; beside both of them
    it only overfits. A list of components is taken as it is.
    """
    known = rating_components()
    names = LISTS.get(side, tuple(side.split("+"))) if isinstance(side, str) else ()
    if not names or not set(names) <= set(known) or len(set(names)) < len(names):
        more = sorted(set(known) - {"user", "item"})
        reason = (
            f"must be {SIDE_CHOICES}, or several components joined by +; further components: "
            f"{', '.join(more)}"
        )
        message = f"side (={side!r}) {reason}"
        raise TrainingError(message, field="side", value=side, reason=reason)
    if ridge and names in WITH_RIDGE:
        names = WITH_RIDGE[names]
    return (*names, "time") if time and "time" not in names else names


def rating_components() -> list[str]:
    """Return the names of all components that score ratings."""
    return [name for name, kind in COMPONENTS.items() if kind.component.head == "rating"]


def component_class(name: str) -> type[RatingComponent]:
    """Return the rating component of that name."""
    component: type[RatingComponent] = component_kind(name, "rating").component
    return component


def component_axis(name: str) -> Axis | None:
    """Return what the rows of that rating component are."""
    return component_kind(name, "rating").axis


def is_closed_form(names: tuple[str, ...]) -> bool:
    """Return whether such a member is fitted at once, and nothing of it is trained."""
    return all(component_class(name).closed_form for name in names)


def kernel_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups of kernels that training such a member needs (kernels/warmup.py)."""
    gaussian = RidgeComponent, FactorComponent, NeighborhoodComponent
    return (
        ("nade", "posterior")
        if any(issubclass(component_class(n), gaussian) for n in names)
        else ("nade",)
    )


def new_member(
    names: tuple[str, ...],
    ratings: Dataset,
    options: Mapping[str, Any],
    training: TrainingConfig,
    partitions: Mapping[Axis, ColumnPartition] | None = None,
) -> Member:
    """Return a member for these ratings with its start values.

    Args:
        names: Its components, in order.
        ratings: The training ratings.
        options: Options of components that do not follow from the ratings.
        training: Options of training.
        partitions: The columns of this rank by what the rows are, where ranks share them.
    """
    import torch

    generator = torch.Generator().manual_seed(training.seed)
    components: dict[str, RatingComponent] = {}
    for name in names:
        axis = component_axis(name)
        partition = None if partitions is None or axis is None else partitions[axis]
        preceding = tuple(components.values())
        data = FitData(ratings, training, generator, preceding, partition)
        components[name] = component_class(name).fit(axis, data, options)
        components[name].partition = partition
    return Member(components)


# -- saved members --------------------------------------------------------------------------------

Described = Mapping[str, Mapping[str, Any]]
"""The fields of each component, as `Member.to_dict` returns them."""


def member_spec(described: Described) -> dict[str, ArraySpec]:
    """Return the arrays of a member with these fields, as component/array."""
    if not described:
        raise ModelError("a member has no components; it needs at least one")
    return {
        f"{name}/{key}": spec
        for name, fields in described.items()
        for component in [component_class(name)]
        for key, spec in component.spec(component.config_of(fields)).items()
    }


def saved_member(described: Described, arrays: Arrays) -> Member:
    """Return a member with these fields and arrays, named component/array."""
    components = {}
    for name, fields in described.items():
        component, prefix = component_class(name), f"{name}/"
        own = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
        components[name] = component(component.config_of(fields), own, component_axis(name))
    return Member(components)
