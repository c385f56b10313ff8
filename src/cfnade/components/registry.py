"""All components by name, and members made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from cfnade.components.base import (
    Arrays,
    ArraySpec,
    Axis,
    Component,
    FitData,
    Member,
    RatingComponent,
)
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError, TrainingError

if TYPE_CHECKING:
    from cfnade.distributed.partition import ColumnPartition


class Kind(NamedTuple):
    """A class of components, and what its rows are."""

    component: type[Any]
    axis: Axis | None


COMPONENTS: dict[str, Kind] = {}
"""All components by name: of interactions in the order in which model selection fits them."""

T = TypeVar("T", bound=type[Component])


def register(*names: str, axis: Axis | None = "user") -> Callable[[T], T]:
    """Make a component known under a name, or under several for the same axis."""

    def add(component: T) -> T:
        for name in names:
            component.name = name
            COMPONENTS[name] = Kind(component, axis)
        return component

    return add


def component_kind(name: str, head: Literal["rating", "interaction"]) -> Kind:
    """Return the component of that name, and its axis."""
    kind = COMPONENTS.get(name)
    if kind is None or kind.component.head != head:
        names = ", ".join(
            sorted(n for n, kind in COMPONENTS.items() if kind.component.head == head)
        )
        noun = {"rating": "component", "interaction": "implicit component"}[head]
        raise ModelError(f"unknown {noun} {name!r}; this version knows {names}")
    return kind


def component_class(name: str) -> type[RatingComponent]:
    """Return the rating component of that name."""
    component: type[RatingComponent] = component_kind(name, "rating").component
    return component


def component_axis(name: str) -> Axis | None:
    """Return what the rows of that rating component are."""
    return component_kind(name, "rating").axis


def rating_components() -> list[str]:
    """Return the names of all components that score ratings."""
    return [name for name, kind in COMPONENTS.items() if kind.component.head == "rating"]


# -- values of `side` -----------------------------------------------------------------------------

PRESETS: dict[str, tuple[str, ...]] = {
    "both": ("user", "item"),
    "neighborhood": ("user", "item", "user-neighborhood", "item-neighborhood"),
    "factors-neighborhood": ("user-factors", "user-neighborhood", "item-neighborhood"),
}
"""Short names of several components."""

WITH_RIDGE = {("user",): ("user-ridge", "user"), ("item",): ("item-ridge", "item")}
"""What a single CF-NADE becomes with a ridge component."""


def component_names(side: object, *, ridge: int = 0, time: bool = False) -> tuple[str, ...]:
    """Return the components of a member: those that `side` names, with ridge and time if asked.

    A ridge component stands before the one CF-NADE of side "user" or "item"; beside both of them
    it only overfits. A list of components is taken as it is.
    """
    registered = rating_components()
    names = PRESETS.get(side, tuple(side.split("+"))) if isinstance(side, str) else ()
    if not names or not set(names) <= set(registered) or len(set(names)) < len(names):
        reason = (
            'must be "user", "item" or "both", or several components joined by +; further '
            f"components: {', '.join(sorted(set(registered) - {'user', 'item'}))}"
        )
        message = f"side (={side!r}) {reason}"
        raise TrainingError(message, field="side", value=side, reason=reason)
    if ridge and names in WITH_RIDGE:
        names = WITH_RIDGE[names]
    return (*names, "time") if time and "time" not in names else names


def is_closed_form(names: tuple[str, ...]) -> bool:
    """Return whether such a member is fitted at once, and nothing of it is trained."""
    return all(component_class(name).closed_form for name in names)


def kernel_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups of kernels that training such a member needs (kernels/warmup.py)."""
    return tuple(dict.fromkeys(["nade", *(component_class(name).kernels for name in names)]))


# -- members --------------------------------------------------------------------------------------


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


SavedConfigs = Mapping[str, Mapping[str, Any]]
"""The config of each component, as `Member.to_dict` returns them."""


def member_spec(configs: SavedConfigs) -> dict[str, ArraySpec]:
    """Return the arrays of a member with these configs, as component/array."""
    if not configs:
        raise ModelError("a member has no components; it needs at least one")
    return {
        f"{name}/{key}": spec
        for name, fields in configs.items()
        for component in [component_class(name)]
        for key, spec in component.spec(component.config_of(fields)).items()
    }


def saved_member(configs: SavedConfigs, arrays: Arrays) -> Member:
    """Return a member with these configs and arrays, named component/array."""
    components = {}
    for name, fields in configs.items():
        component, prefix = component_class(name), f"{name}/"
        parts = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
        components[name] = component(component.config_of(fields), parts, component_axis(name))
    return Member(components)
