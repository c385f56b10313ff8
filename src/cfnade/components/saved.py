"""Members as they are loaded: the numbers of their sides, which answer without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfnade.components.base import (
    AnsweringMember,
    Array,
    Axis,
    Component,
    ComponentWeights,
    SavedComponent,
)
from cfnade.components.factor_rows import FactorWeights
from cfnade.components.nade_rows import NadeWeights
from cfnade.components.neighborhood_rows import NeighborhoodWeights
from cfnade.components.ridge_rows import RidgeWeights
from cfnade.components.time_reading import TimeWeights
from cfnade.exceptions import ModelError
from cfnade.utils.caching import PicklableLock

if TYPE_CHECKING:
    from cfnade.components.trainable import Member

Described = Mapping[str, Mapping[str, Any]]
"""The fields of each side, as `to_dict` gave them."""
ByName = Mapping[str, Mapping[str, Array]]
"""Arrays of each side, by name."""


class SavedKind(NamedTuple):
    """What answers for a kind of sides, and what its rows are."""

    weights: type[ComponentWeights]
    axis: Axis | None


SAVED: dict[str, SavedKind] = {
    "user": SavedKind(NadeWeights, "user"),
    "item": SavedKind(NadeWeights, "item"),
    "user-ridge": SavedKind(RidgeWeights, "user"),
    "item-ridge": SavedKind(RidgeWeights, "item"),
    "user-factors": SavedKind(FactorWeights, "user"),
    "item-factors": SavedKind(FactorWeights, "item"),
    "user-near": SavedKind(NeighborhoodWeights, "user"),
    "item-near": SavedKind(NeighborhoodWeights, "item"),
    "user-samples": SavedKind(FactorWeights, "user"),
    "time": SavedKind(TimeWeights, None),
}
"""Any other kind of kinds.py answers by its network."""


class SavedMember(AnsweringMember):
    """Numbers of sides; their networks are made when somebody asks for them, and then answer."""

    def __init__(self, sides: Mapping[str, ComponentWeights]) -> None:
        self._weights, self._guard = dict(sides), PicklableLock()
        self._made: Member | None = None

    @property
    def components(self) -> Mapping[str, Component]:
        return self._weights if self._made is None else self._made.components

    def tables(self) -> dict[str, Array]:
        if self._made is not None:
            return self._made.tables()
        return {
            f"{name}.{key}": table
            for name, side in self._weights.items()
            for key, table in side.tables.items()
        }

    def trainable(self) -> Member:
        with self._guard:
            if self._made is None:
                from cfnade.components.registry import trainable_member

                self._made = trainable_member(self._weights)
                self._weights = {}  # a network may be moved elsewhere: these would say what it was
        return self._made


class Expected(NamedTuple):
    """What a table must be like."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def expected_tables(described: Described, arrays: ByName) -> dict[str, Expected]:
    """The tables of a member with these fields, as side.name; nothing of their size is made."""
    if not described:
        raise ModelError("a member has no sides; it needs at least one")
    if not set(described) <= set(SAVED):
        from cfnade.components.registry import network_shapes

        return {name: Expected(*kind) for name, kind in network_shapes(described, arrays).items()}
    kinds = [(name, SAVED[name].weights, fields) for name, fields in described.items()]
    return {
        f"{name}.{key}": Expected(
            np.dtype(np.int32 if key in weights.whole_numbers else np.float32), shape
        )
        for name, weights, fields in kinds
        for key, shape in weights.shapes(fields).items()
    }


def loaded_member(described: Described, tables: ByName, arrays: ByName) -> AnsweringMember:
    """A member of these numbers, which `expected_tables` describes, and of what its sides keep."""
    if not set(described) <= set(SAVED):
        from cfnade.components.registry import network_member

        return network_member(described, tables, arrays)
    return SavedMember(
        {
            name: kind.weights.from_saved(
                SavedComponent(kind.axis, fields, tables[name], arrays.get(name, {}))
            )
            for name, fields in described.items()
            for kind in [SAVED[name]]
        }
    )
