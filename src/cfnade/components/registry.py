"""All components by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from cfnade.components.base import Axis, Component
from cfnade.exceptions import ModelError


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
        known = ", ".join(sorted(k for k, one in COMPONENTS.items() if one.component.head == head))
        what = {"rating": "component", "interaction": "implicit component"}[head]
        raise ModelError(f"unknown {what} {name!r}; this version knows {known}")
    return kind
