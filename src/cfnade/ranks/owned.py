"""A rank's part of the data: ratings in its own columns, and what it knows of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import IndexArray, IntArray, Ratings, Rows
from cfnade.group import Group
from cfnade.kernels.marking import WholeRows
from cfnade.shards import HeldCells, Shards
from cfnade.shards.layout import part_of
from cfnade.sides.column_part import ColumnPart
from cfnade.sides.side import Axis, other_axis


class RankRatings(Ratings):
    """Training ratings in a rank's columns, which count within its own.

    By users they are other ones than by items: those of the own items, and of the own users. All
    users and items are counted, and rows are whole ones.
    """

    def level_counts(self, side: Axis) -> IntArray:
        """Of the own users or items at each level, (C, K)."""
        rows, K = self.rows(other_axis(side)), len(self.scale)
        cells = rows.columns.astype(np.int64) * K + rows.levels
        return np.bincount(cells, minlength=rows.n_columns * K).reshape(-1, K)

    def row_totals(self, side: Axis) -> tuple[int, int]:
        counts = self.whole[side]
        return int(counts.sum(dtype=np.int64)), int(np.count_nonzero(counts))

    @property
    def whole(self) -> dict[Axis, IndexArray]:
        """Ratings of each whole row."""
        rows: dict[Axis, IndexArray] = self.__dict__["whole_rows"]
        return rows


@dataclass(frozen=True, eq=False)
class Owned:
    """Training ratings in a rank's columns, which count within its own, and cells to choose by."""

    axis: Axis
    ratings: RankRatings
    part: ColumnPart
    valid: HeldCells
    asked: IndexArray
    """(N,) validation ratings of each whole row."""
    weights: npt.NDArray[np.float32] | None = None
    """(n,) of interactions that count differently."""

    @property
    def rows(self) -> Rows:
        return self.ratings.rows(self.axis)


def owned_by(group: Group, shards: Shards, axis: Axis) -> Owned:
    """What this rank has of the shards whose rows are these."""
    own = shards.own(axis, group.rank, group.size)
    rows, K = own.rows, len(shards.scale)
    rows = replace(rows, n_columns=max(1, rows.n_columns))
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts())
    sides = {axis: numbers, other_axis(axis): rows.columns}
    ids = nameless(shards.n_users), nameless(shards.n_items)
    ratings = RankRatings(sides["user"], sides["item"], rows.levels, shards.scale, *ids)
    ratings._rows[axis] = rows
    ratings.__dict__["whole_rows"] = {axis: own.counts}
    totals = group.sum_(np.bincount(rows.levels, minlength=K).astype(np.int64))
    whole = WholeRows(own.places, own.counts)
    columns = shards.count(other_axis(axis))
    part = ColumnPart(group, own.columns, columns, totals, whole, partial(owner_of, group.size))
    valid = shards.cells(axis, "valid", group.rank, group.size)
    return Owned(axis, ratings, part, valid, shards.row_counts(axis, "valid"), own.weights)


def owner_of(size: int, columns: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The rank of so many that has each column."""
    return part_of(columns) % np.uint8(size)


def both_ways(user: Owned, item: Owned) -> RankRatings:
    """The ratings of both, for a member that reads users and items."""
    both = replace(user.ratings)
    both._rows.update(user.ratings._rows | item.ratings._rows)
    both.__dict__["whole_rows"] = user.ratings.whole | item.ratings.whole
    return both


def sizes_alone(shards: Shards, count: int) -> Ratings:
    """So many ratings with the sizes and the scale of the shards, and nothing else: no memory."""
    index, levels = np.broadcast_to(np.int32(0), (count,)), np.broadcast_to(np.uint8(0), (count,))
    ids = nameless(shards.n_users), nameless(shards.n_items)
    return Ratings(index, index, levels, shards.scale, *ids)


def nameless(count: int) -> npt.NDArray[Any]:
    """Ids that nobody asks for, and that take no memory: indices are all that training knows."""
    return np.broadcast_to(np.int64(0), (count,))
