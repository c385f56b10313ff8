"""What a component is: one additive term of a model's scores of rating levels.

A fitted model averages the distributions of its members; a member adds the scores of its
components before the softmax. A component whose rows are users reads what a user rated and has
weights of every item; one whose rows are items reads an item's ratings and has weights of every
user. Code outside this package does not distinguish kinds of components.

This module is free of torch; `trainable.py` has what trains a component. To add one: a subclass of
`TorchComponent` in a module here (`plain.py` is a start, `tests/components/toy.py` an example), an
entry in `registry.py`, a case in `tests/components/test_contract.py`. With `ComponentWeights` and
an entry in `saved.py` a loaded model predicts without torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray
from cfnade.kernels.posterior import Evidence

if TYPE_CHECKING:
    from cfnade.components.trainable import Member

Axis = Literal["user", "item"]
Before = tuple[Axis | None, ...]
"""What the rows of a member's earlier sides are."""

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]


class Row(NamedTuple):
    """What is known of one row."""

    columns: IndexArray  # (c,)
    levels: LevelArray  # (c,)

    def without(self, column: int) -> Row:
        """The row without what it says of that column."""
        keep = self.columns != column
        return Row(self.columns[keep], self.levels[keep])

    def excluding(self, columns: IndexArray) -> Row:
        """Return the row without several columns."""
        if columns is self.columns or np.array_equal(columns, self.columns):
            return NOTHING
        keep = ~np.isin(self.columns, columns)
        return Row(self.columns[keep], self.levels[keep])


NOTHING = Row(np.empty(0, np.int32), np.empty(0, np.uint8))


def row_of(rows: CsrRows, number: int) -> Row:
    """One of many rows; of an unknown one (-1) nothing is known."""
    if number < 0:
        return NOTHING
    part = slice(rows.offsets[number], rows.offsets[number + 1])
    return Row(rows.columns[part], rows.levels[part])


def other_axis(axis: Axis) -> Axis:
    """What the columns are, if the rows are these; and the other way round."""
    return "item" if axis == "user" else "user"


class Who(NamedTuple):
    """Somebody: a user of the data by index, or -1 and what a new person rated."""

    user: int
    rated: Row


class What(NamedTuple):
    """Something: an item of the data by index, or -1 and what a new item was given."""

    item: int
    raters: Row


class Folding(Protocol):
    """What a side would say of a user or an item that it has no weights for, if these were known.

    They are sought as mean + Σ z_d · direction_d, in the few directions in which trained weights
    differ most. Answers are features (n, K, 1 + D): scores by the mean, and by each direction. The
    questions are those of a Reading, with the same care: a known rating is left out of its own.
    """

    variances: Array
    """Those of z among the trained, (D,)."""

    def person(self, who: Who, items: IntArray) -> Array:
        """Of some items, for one person."""

    def item(self, what: What, users: IntArray) -> Array:
        """Of some users, for one item."""

    def without_each(self, who: Who, item: int) -> Array:
        """Of the item without each of the person's ratings of others."""

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        """The same without each of the item's ratings by others, who are given."""

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        """The same without all of these ratings at each level."""


class Reading(Protocol):
    """What a side says, given the ratings that a model conditions on. Scores have a last axis K.

    Users and items are indices, -1 an unknown one. A known rating is scored from the others, never
    from itself; only lists may be asked to leave that care out.
    """

    learns: Axis | None
    """Users or items that have trained weights here; None: no weights belong to either."""

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        """Scores of cells (n, K)."""

    def person(self, who: Who, items: IntArray) -> Array:
        """Scores of some items for one person (n, K), on the calling thread."""

    def item(self, what: What, users: IntArray) -> Array:
        """Scores of one item for some users (n, K), on the calling thread."""

    def person_without(self, who: Who, left_out: IntArray, items: IntArray) -> Array:
        """Return what `person` returns without the rating of each left-out item, (b, n, K).

        The person rated all of these items. Where both are the same, the scores mean nothing.
        """

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Array:
        """Scores of cells of many people (n, K): whose each is, and the item."""

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Array:
        """Scores of every item for each person (B, items, K), which may be written to.

        In memory levels best come before items: that is what lists are made from (bounds.py).
        """

    def without_each(self, who: Who, item: int) -> Array:
        """Scores of the item without each of the person's ratings of others. Returns (c, K)."""

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        """The same without each of the item's ratings by others, who are given. Returns (c, K)."""

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        """The same without all of these ratings at each level. Returns (K, K)."""

    def folding(self, counts: IntArray, *, mean_only: bool = False) -> Folding | None:
        """What those without weights can be folded into; None: this side cannot do it.

        counts are the training ratings of each user or item that has weights here. mean_only finds
        no directions: it suffices for those of whom nothing is known, and is made at once.
        """


class Component(ABC):
    """The half of a side that answers."""

    axis: Axis | None
    """What its rows are; None: it reads no row."""
    needs_times: bool = False
    """Whether it says nothing of a cell without knowing when."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain values, for JSON."""

    def arrays(self) -> dict[str, Array]:
        """What it keeps of the training ratings beside its parameters: the same in all members."""
        return {}

    @abstractmethod
    def fault(self, ratings: Dataset) -> str | None:
        """Why it does not fit the id tables and the scale of these ratings; None if it does."""

    @abstractmethod
    def reading(self, context: Dataset) -> Reading:
        """What it says, given these ratings."""

    @abstractmethod
    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """A vector for each user or item, if it has any. Returns (users or items, width)."""

    @abstractmethod
    def evidence(self) -> Evidence | None:
        """What a rating tells of its row, where what is known of a row is a Gaussian."""


class SavedComponent(NamedTuple):
    """What a folder holds of a side."""

    axis: Axis | None
    fields: Mapping[str, Any]
    """What `to_dict` gave."""
    tables: Mapping[str, Array]
    arrays: Mapping[str, Array]
    """What it keeps of the training ratings."""


class ComponentWeights(Component):
    """A side as its numbers: tables by the names that its network has for them, and its fields.

    Of a side in training they are the network's own memory, of one that was loaded the file's.
    """

    tables: Mapping[str, Array]
    whole_numbers: ClassVar[tuple[str, ...]] = ()
    """The tables of int32; all others are of floats."""

    @classmethod
    @abstractmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """What the tables of a side with these fields are like."""

    @classmethod
    @abstractmethod
    def from_saved(cls, saved: SavedComponent) -> Self:
        """A side as it was saved."""

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        del context, axis
        return None

    def evidence(self) -> Evidence | None:
        return None


class RowWeights(ComponentWeights):
    """The numbers of a side that reads rows: its configuration has so many columns and levels.

    What CF-NADE, ridge, factor analysis and neighbourhoods have in common.
    """

    axis: Axis

    def __init__(self, axis: Axis, config: Any, tables: Mapping[str, Array]) -> None:
        self.axis, self.config, self.tables = axis, config, tables

    @staticmethod
    @abstractmethod
    def config_of(fields: Mapping[str, Any]) -> Any:
        """From what `to_dict` gave."""

    @classmethod
    def from_saved(cls, saved: SavedComponent) -> Self:
        assert saved.axis is not None
        return cls(saved.axis, cls.config_of(saved.fields), saved.tables)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.config.to_dict()
        return fields

    def fault(self, ratings: Dataset) -> str | None:
        return column_fault(self.config, ratings, self.axis)


class _Sized(Protocol):
    @property
    def columns(self) -> int: ...
    @property
    def levels(self) -> int: ...


def column_fault(config: _Sized, ratings: Dataset, axis: Axis) -> str | None:
    """Why weights of so many columns and levels do not fit these ratings; None if they do."""
    columns = len(ratings.ids(other_axis(axis)))
    if columns != config.columns:
        return f"the id table has {columns:,} columns, the model {config.columns:,}"
    if len(ratings.scale) != config.levels:
        return f"the scale {ratings.scale} has {len(ratings.scale)} levels, not {config.levels}"
    return None


class AnsweringMember(ABC):
    """Sides by name, in order: their scores are added, and the first one holds the levels' prior.

    For user u and item i, with u's other ratings and i's other ratings known, level k of a member
    with a CF-NADE on each side scores

        s^k = Σ_{j≤k} [ V^U_{i,j}·h_u + b^U_{i,j} ]  +  Σ_{j≤k} [ V^I_{u,j}·h_i + b^I_{u,j} ]

    and p(r_ui = k) is the softmax of s. Trained on one cost, each side learns what the others leave
    over.
    """

    @property
    @abstractmethod
    def components(self) -> Mapping[str, Component]:
        """The sides by name, in their order."""

    @abstractmethod
    def tables(self) -> dict[str, Array]:
        """All its numbers, as side.name."""

    @abstractmethod
    def trainable(self) -> Member:
        """The same as torch modules, in the same memory."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its sides are, in their order, each once."""
        return tuple(dict.fromkeys(side.axis for side in self.components.values() if side.axis))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The fields of each side as plain values."""
        return {name: side.to_dict() for name, side in self.components.items()}
