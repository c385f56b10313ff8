"""What an implicit component is: one part of the score of every item, given interactions.

An interaction model adds the standardized scores of its components, each with a weight. Nothing
outside asks which kind a component is. docs/project/architecture.md says how to add one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components.base import Component
from cfnade.components.registry import COMPONENTS, component_kind
from cfnade.implicit.rows import InteractionRows

ScoreArray = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
Options = Mapping[str, Any]
T = TypeVar("T")

FEW = 4
"""Up to so many rows are scored by serial kernels on the calling thread: an answer for one user
then has the same bits whatever else is asked at the same time."""


class DataShape(NamedTuple):
    """The sizes that decide which components are worth fitting, and what a fit costs."""

    users: int
    items: int
    interactions: int
    pairs: int
    """Σ n_u² over users: what it takes to count how often items occur together."""

    @classmethod
    def of(cls, rows: InteractionRows) -> DataShape:
        counts = rows.counts
        return cls(len(rows), rows.n_columns, len(rows.columns), int(np.square(counts).sum()))


class SearchSpace(NamedTuple):
    """Values of each option in order, where the search begins, and how many fits are worth it."""

    values: Mapping[str, Sequence[Any]]
    start: Options
    fits: int


@dataclass
class FitCache:
    """Results that several fits to the same rows share; it keeps the last one of each name."""

    held: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def get(self, name: str, key: Any, make: Callable[[], T]) -> T:
        """Return what was made for this key, or make it."""
        if name not in self.held or self.held[name][0] != key:
            self.held.pop(name, None)  # before the next one takes memory
            self.held[name] = key, make()
        value: T = self.held[name][1]
        return value


class Config(Protocol):
    """A frozen dataclass of plain values; it says at least how many items there are."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def columns(self) -> int: ...


class ImplicitComponent(Component):
    """Fitted arrays and a config; it never changes, so any number of threads may ask it."""

    head = "interaction"
    gives_item_vectors: ClassVar[bool] = False
    """Whether `item_vectors` always returns vectors."""

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        """Return what model selection tries; None: not for data of this shape."""

    @classmethod
    @abstractmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        """Estimate how long one fit takes on one core."""

    @classmethod
    @abstractmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        """Fit to these rows."""

    @classmethod
    def fit_validated(
        cls,
        rows: InteractionRows,
        options: Options,
        *,
        seed: int,
        cache: FitCache,
        value: Callable[[Self], float],
    ) -> tuple[Self, Options]:
        """Fit where `value` tells how good a state of training is, such as when to stop.

        Returns the options that a later fit without validation needs.
        """
        return cls.fit(rows, options, seed=seed, cache=cache), options

    def variants(self) -> Mapping[float, ScoreArray]:
        """Return factors (M,) by the value of a last option that costs no fit of its own."""
        return {}

    def with_variant(self, value: float) -> Self:
        """Return the component with one of `variants` applied."""
        raise NotImplementedError(value)

    # -- asked --------------------------------------------------------------------------------

    @abstractmethod
    def scores(self, rows: InteractionRows) -> ScoreArray:
        """Return scores of all items, (B, M); the caller may write to them."""

    def scores_without(self, row: InteractionRows, places: IntArray) -> ScoreArray:
        """Return scores of all items for one user, without each of these interactions. (n, M).

        `row` is that of the user alone. This asks again for each interaction; a component that adds
        up interactions takes one off.
        """
        keep = np.arange(len(row.columns)) != places[:, None]
        return self.scores(row.select(np.zeros(len(places), np.int64)).where(keep.ravel()))

    def item_vectors(self) -> ScoreArray | None:
        """Return a vector of each item, if there are any: similar items have similar ones."""
        return None

    # -- saved --------------------------------------------------------------------------------

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], arrays: Arrays) -> Self:
        """Rebuild a component from `to_dict` and `arrays`."""
        return cls(cls.config_of(fields), arrays)

    @property
    def n_items(self) -> int:
        return int(self.config.columns)


def interaction_components() -> dict[str, type[ImplicitComponent]]:
    """Return every kind by name, in the order in which model selection fits them."""
    kinds = {name: kind.component for name, kind in COMPONENTS.items()}
    return {name: kind for name, kind in kinds.items() if issubclass(kind, ImplicitComponent)}


def component_class(name: str) -> type[ImplicitComponent]:
    """Return the component of that name."""
    component: type[ImplicitComponent] = component_kind(name, "interaction").component
    return component
