"""Queries: which pairs of users and items to score, and the known ratings of both.

A pair is never predicted from its own rating. `Query.pairs` is the one place where users and items
become rows and columns of a component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Pairs
from cfnade.components.row_states import known_levels
from cfnade.data.csr import CsrRows, offsets_from_counts
from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.kernels.column_groups import take_rows
from cfnade.utils.caching import locked_cached_property

BoolArray = npt.NDArray[np.bool_]
KnownRatings = tuple[Array, Array]
"""Columns and levels of one row."""


@dataclass(frozen=True, eq=False)
class Entities:
    """Users, or items, with their known ratings."""

    index: IntArray  # (B,) in the model; -1: new
    rows: CsrRows
    """The ratings of each: those of the data set, or a history in their place."""

    def __len__(self) -> int:
        return len(self.index)

    @classmethod
    def of_dataset(cls, ratings: Dataset, axis: Axis) -> Entities:
        """Return all users or items of a data set, and at the end one without ratings."""

        def pad() -> Entities:
            rows = ratings.rows(axis)
            offsets = np.append(rows.offsets, rows.offsets[-1])
            padded = CsrRows(offsets, rows.columns, rows.levels, rows.n_columns, rows.n_levels)
            return cls(np.append(np.arange(len(rows)), -1), padded)

        return ratings.memo(("entities", axis), pad)

    @classmethod
    def of_histories(
        cls,
        indices: Sequence[int],
        histories: Sequence[KnownRatings],
        n_columns: int,
        n_levels: int,
    ) -> Entities:
        """Return entities with these ratings."""
        offsets = offsets_from_counts(np.array([len(c) for c, _ in histories], np.int64))
        columns = np.concatenate([np.empty(0, np.int32), *(c for c, _ in histories)])
        levels = np.concatenate([np.empty(0, np.uint8), *(k for _, k in histories)])
        rows = CsrRows(
            offsets, columns.astype(np.int32), levels.astype(np.uint8), n_columns, n_levels
        )
        return cls(np.array(indices, np.int64), rows)

    @classmethod
    def concat(cls, parts: Sequence[Entities]) -> Entities:
        """Return the entities of all parts."""
        histories = [part.ratings(n) for part in parts for n in range(len(part))]
        indices = [index for part in parts for index in part.index.tolist()]
        return cls.of_histories(indices, histories, parts[0].rows.n_columns, parts[0].rows.n_levels)

    def take(self, numbers: IntArray) -> Entities:
        """Return the entities with these numbers, in this order; -1 is the last one."""
        rows = self.rows
        numbers = np.where(numbers < 0, len(self) - 1, numbers)
        part = take_rows(rows.offsets, rows.columns, rows.levels, numbers)
        part_rows = CsrRows(part.offsets, part.columns, part.levels, rows.n_columns, rows.n_levels)
        return Entities(self.index[numbers], part_rows)

    def ratings(self, number: int) -> KnownRatings:
        """Return the known ratings of an entity."""
        part = slice(self.rows.offsets[number], self.rows.offsets[number + 1])
        return self.rows.columns[part], self.rows.levels[part]

    def counts(self) -> IntArray:
        """Return the number of known ratings of each entity, (B,)."""
        return self.rows.counts()

    def counts_of(self, numbers: IntArray) -> IntArray:
        """Return the number of known ratings of the entities with these numbers, (n,)."""
        offsets = self.rows.offsets
        return np.asarray(offsets[numbers + 1] - offsets[numbers])

    def without(self, column: int) -> Entities:
        """Return the entities without their ratings of a column."""
        rows = self.rows
        keep = rows.columns != column
        if keep.all():
            return self
        offsets = offsets_from_counts(keep)[rows.offsets]
        columns, levels = rows.columns[keep], rows.levels[keep]
        return Entities(self.index, replace(rows, offsets=offsets, columns=columns, levels=levels))


@dataclass(frozen=True, eq=False)
class Query:
    """Pairs (users[user[t]], items[item[t]])."""

    context: Dataset
    """The ratings that the model conditions on."""
    users: Entities
    items: Entities
    user: IntArray  # (n,)
    item: IntArray  # (n,)
    times: Any = None
    left_out: IntArray | None = None
    """(n,) A further rating of each pair's user that is left out: its place among the ratings of
    `users`; -1: none."""
    leave_one_out: bool = True
    """Whether each pair's own rating is left out."""
    serial: bool = False
    """Whether to compute on the calling thread, so that bits depend on the pair alone."""

    @classmethod
    def of_pairs(
        cls, context: Dataset, users: IntArray, items: IntArray, times: Any = None, **options: Any
    ) -> Query:
        """Return a query for pairs of the data set by index; -1 is unknown."""
        user = np.where(users < 0, context.n_users, users)
        stored = Entities.of_dataset(context, "user")
        return cls.of_users(context, stored, user, items, times, **options)

    @classmethod
    def of_users(
        cls,
        context: Dataset,
        users: Entities,
        user: IntArray,
        items: IntArray,
        times: Any = None,
        **options: Any,
    ) -> Query:
        """Return a query for pairs of these users and items of the data set."""
        stored = Entities.of_dataset(context, "item")
        item = np.where(items < 0, context.n_items, items).astype(np.int64)
        times = None if times is None else _check_times(times, len(item))
        return cls(context, users, stored, np.asarray(user, np.int64), item, times, **options)

    def __len__(self) -> int:
        return len(self.user)

    def take(self, places: IntArray) -> Query:
        """Return the query of the pairs at these places."""
        part = replace(
            self,
            user=self.user[places],
            item=self.item[places],
            times=None if self.times is None else self.times[places],
            left_out=None if self.left_out is None else self.left_out[places],
        )
        for name in ("user_levels", "item_levels"):
            if name in self.__dict__:
                part.__dict__[name] = self.__dict__[name][places]
        return part

    def entities(self, axis: Axis) -> tuple[Entities, IntArray]:
        """Return the users or items, and the number of each pair's one among them."""
        return (self.users, self.user) if axis == "user" else (self.items, self.item)

    @property
    def user_index(self) -> IntArray:
        """Index of each pair's user in the model, -1 for a new one, (n,)."""
        return self.users.index[self.user]

    @property
    def item_index(self) -> IntArray:
        """Index of each pair's item in the model, -1 for a new one, (n,)."""
        return self.items.index[self.item]

    @locked_cached_property
    def user_levels(self) -> IntArray:
        """Level of each pair's rating among the ratings of its user, -1 for none, (n,)."""
        return known_levels(self.users.rows, self.user, self.item_index)

    @locked_cached_property
    def item_levels(self) -> IntArray:
        """Level of each pair's rating among the ratings of its item, -1 for none, (n,).

        It differs from `user_levels` for a user of the data with another history.
        """
        stored = Entities.of_dataset(self.context, "user")
        if self.items.rows is not Entities.of_dataset(self.context, "item").rows:
            return known_levels(self.items.rows, self.item, self.user_index)
        if self.users.rows is stored.rows:
            return self.user_levels
        user = np.where(self.user_index < 0, len(stored) - 1, self.user_index)
        return known_levels(stored.rows, user, self.item_index)

    def levels(self, axis: Axis) -> IntArray:
        """Return the level of the rating that each pair leaves out of its row, or -1, (n,)."""
        if not self.leave_one_out:
            return np.full(len(self), -1)
        return self.user_levels if axis == "user" else self.item_levels

    def pairs(self, axis: Axis) -> Pairs:
        """Return the pairs with users, or items, as rows."""
        entities, row = self.entities(axis)
        index, column = self.user_index, self.item_index
        if axis == "item":
            index, column = column, index
        left_out = self.left_out if axis == "user" else None
        levels = self.levels(axis)
        return Pairs(entities.rows, row, column, index, levels, left_out, self.times, self.serial)

    def remaining(self) -> IntArray:
        """Return how many ratings of its user each pair is predicted from, (n,)."""
        counts = self.users.counts_of(self.user) - (self.levels("user") >= 0)
        if self.left_out is not None:
            further = self.left_out >= 0
            columns = self.users.rows.columns[np.maximum(self.left_out, 0)]
            counts = counts - (further & ((columns != self.item_index) | ~self.leave_one_out))
        return np.asarray(counts)


def _check_times(times: Any, n: int) -> Array:
    """Return the timestamp of each pair, (n,), from one for all or one for each."""
    array = np.asarray(times)
    if array.ndim == 0:
        return np.full(n, array)
    if array.shape != (n,):
        raise PredictionError(
            f"timestamp has shape {array.shape}; give one timestamp, or one for each of {n:,} pairs"
        )
    return array
