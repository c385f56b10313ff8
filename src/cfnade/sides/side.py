"""What a side is: one part of a member, which adds to the scores of a rating's levels.

A fitted model is a list of members whose distributions are averaged; a member is a list of sides
whose scores are added before the softmax. A side whose rows are users reads what a person rated and
has weights for every item; one whose rows are items reads what an item was given and has weights
for every user. Nothing outside asks which kind a side is.

How to add one: a subclass of `Side` in a module here (plain.py is a start, tests/sides/toy.py an
example), an entry in sides/__init__.py, a case in tests/sides/test_contract.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cfnade.data.ratings import IndexArray, IntArray, Ratings, Rows
from cfnade.data.scale import LevelArray
from cfnade.group import ALONE, Group
from cfnade.kernels.adam import Rule
from cfnade.kernels.grouping import CellArrays, RowRatings
from cfnade.kernels.posterior import Evidence
from cfnade.settings import Settings
from cfnade.sides.column_part import ColumnPart
from cfnade.sides.draw import Draw

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


NOTHING = Row(np.empty(0, np.int32), np.empty(0, np.uint8))


def row_of(rows: Rows, number: int) -> Row:
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


class SideStepper(Protocol):
    """Moves the parameters of one side; all that it remembers is in `state`."""

    def add_scores(self, draw: Draw, scores: Array) -> None:
        """Add to the scores (T, K) of the draw's targets."""

    def fit(self, draw: Draw, slopes: Array, rate: float) -> None:
        """Move by the gradient (T, K) of the scores that were asked for last."""

    def step_at_once(self, draw: Draw, rate: float) -> float | None:
        """The whole step of a member without other sides, and its cost; None: it has no such."""

    def state(self) -> dict[str, Tensor]:
        """What an interrupted run needs to go on, beside the parameters; shares memory."""

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go on from a state after that many steps."""


class Side(nn.Module, ABC):
    """A network with its place in a member. Parameters are zero until `start` or a checkpoint."""

    axis: Axis | None
    """What its rows are; None: it reads no row."""
    needs_times: bool = False
    """Whether it says nothing of a cell without knowing when."""
    starts_well: bool = False
    """Whether its start is a model by itself, which validation may prefer to a trained one."""
    tunes: bool = False
    """Whether it has a `gain` and a `shift` (sides/near_side.py), which validation finds after
    training; it says nothing before."""
    trust: float = 1.0
    """What a member with it counts beside others, as far as validation cannot tell."""
    network: nn.Module
    part: ColumnPart | None = None
    """Which columns it has, if ranks share them; it is then made for ratings in these alone."""
    by_column: tuple[str, ...] = ()
    """Its tensors that have a row for each column; without any, ranks cannot share it."""

    @property
    def group(self) -> Group:
        """Who has the other columns."""
        return ALONE if self.part is None else self.part.group

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    @abstractmethod
    def sized(cls, axis: Axis | None, ratings: Ratings, fields: Mapping[str, Any]) -> Self:
        """For these ratings; fields are those of the model that do not follow from the data."""

    @abstractmethod
    def start(
        self, ratings: Ratings, generator: torch.Generator, settings: Settings, before: Before
    ) -> None:
        """Fill the parameters. A member's first side says how often each level comes at all."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain values, for JSON."""

    @classmethod
    @abstractmethod
    def from_saved(
        cls, axis: Axis | None, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        """From what `to_dict` and `arrays` gave."""

    def arrays(self) -> dict[str, Array]:
        """What it keeps of the training ratings beside its parameters: the same in all members."""
        return {}

    @abstractmethod
    def take_over(self, earlier: Side, ratings: Ratings, earlier_ratings: Ratings) -> None:
        """Take the weights of an earlier model's side, those of columns where ids are the same."""

    def go_on(self, ratings: Ratings, trained: IntArray, settings: Settings) -> None:
        """What is made and not trained is made again, from where it stands: ratings have come.

        trained (M, K): those that each column had at each level until now; a new one has none.
        """

    @abstractmethod
    def fault(self, ratings: Ratings) -> str | None:
        """Why it does not fit the id tables and the scale of these ratings; None if it does."""

    # -- trained ------------------------------------------------------------------------------

    def settle(self, ratings: Ratings, member: Member) -> None:
        """A last touch after training, if it has any, beside the other sides of its member."""

    @abstractmethod
    def rules(self, ratings: Ratings, settings: Settings, *, share: float) -> dict[str, Rule]:
        """Rate and L2 of each parameter by its name in the network.

        share is 0 for a cost that is a mean over rows; for a mean over the targets of a block it
        is the part of all columns that a block has.
        """

    @abstractmethod
    def plain_scores(self, draw: Draw) -> Tensor:
        """Scores of the draw's targets in plain torch, differentiable. Returns (T, K)."""

    @abstractmethod
    def stepper(
        self, ratings: Ratings, settings: Settings, *, share: float, threads: int
    ) -> SideStepper:
        """What trains it on a CPU."""

    def shared_scores(
        self, known: RowRatings, counts: IntArray, cells: CellArrays, trained: IntArray
    ) -> Array:
        """Scores of cells in the own columns, of rows of which each rank knows its own ratings.

        All ranks ask of the same rows at once, each for its own cells; counts (B,) are those of
        whole rows, trained (M,) the training ratings of the own columns. Returns (n, K).
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be shared")

    # -- asked --------------------------------------------------------------------------------

    @abstractmethod
    def reading(self, context: Ratings) -> Reading:
        """What it says, given these ratings."""

    def vectors(self, context: Ratings, axis: Axis) -> Tensor | None:
        """A vector for each user or item, if it has any. Returns (users or items, width)."""
        del context, axis
        return None

    def evidence(self) -> Evidence | None:
        """What a rating tells of its row, where what is known of a row is a Gaussian."""
        return None


class _Sized(Protocol):
    @property
    def columns(self) -> int: ...
    @property
    def levels(self) -> int: ...


def column_fault(config: _Sized, ratings: Ratings, axis: Axis) -> str | None:
    """Why weights of so many columns and levels do not fit these ratings; None if they do."""
    columns = len(ratings.ids(other_axis(axis)))
    if columns != config.columns:
        return f"the id table has {columns:,} columns, the model {config.columns:,}"
    if len(ratings.scale) != config.levels:
        return f"the scale {ratings.scale} has {len(ratings.scale)} levels, not {config.levels}"
    return None


class Member(nn.Module):
    """Sides by name, in order: their scores are added, and the first one holds the levels' prior.

    For user u and item i, with u's other ratings and i's other ratings known, level k of a member
    with a CF-NADE on each side scores

        s^k = Σ_{j≤k} [ V^U_{i,j}·h_u + b^U_{i,j} ]  +  Σ_{j≤k} [ V^I_{u,j}·h_i + b^I_{u,j} ]

    and p(r_ui = k) is the softmax of s. Trained on one cost, each side learns what the others leave
    over.
    """

    def __init__(self, sides: Mapping[str, Side]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(dict(sides))

    @property
    def sides(self) -> dict[str, Side]:
        """The sides by name, in their order."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Side)}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its sides are, in their order, each once."""
        return tuple(dict.fromkeys(side.axis for side in self.sides.values() if side.axis))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The fields of each side as plain values."""
        return {name: side.to_dict() for name, side in self.sides.items()}
