"""A rank's part of the data: ratings in its own columns, and what it knows of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.components.base import Axis, other_axis
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.shards import ShardedRatings, owner_of
from cfnade.kernels.sampling import PartialRows


class RankRatings(Dataset):
    """Training ratings in a rank's columns, which count within its own.

    By users they are other ones than by items: those of the own items, and of the own users. All
    users and items are counted, and rows are whole ones.
    """

    def __init__(
        self,
        *columns: Any,
        grouped: dict[Axis, CsrRows],
        whole: dict[Axis, IndexArray],
    ) -> None:
        super().__init__(*columns)
        self.__dict__.update(grouped=grouped, whole=whole)

    grouped: dict[Axis, CsrRows]
    whole: dict[Axis, IndexArray]
    """Ratings of each whole row."""

    def rows(self, axis: Axis = "user") -> CsrRows:
        return self.grouped[axis] if axis in self.grouped else super().rows(axis)

    def level_counts(self, axis: Axis) -> IntArray:
        """Of the own users or items at each level, (C, K)."""
        rows, K = self.rows(other_axis(axis)), len(self.scale)
        cells = rows.columns.astype(np.int64) * K + rows.levels
        return np.bincount(cells, minlength=rows.n_columns * K).reshape(-1, K)

    def row_totals(self, axis: Axis) -> tuple[int, int]:
        counts = self.whole[axis]
        return int(counts.sum(dtype=np.int64)), int(np.count_nonzero(counts))


class HeldOutRatings(NamedTuple):
    """Validation ratings in a rank's columns, sorted by row and column."""

    rows: IndexArray  # (n,)
    columns: IndexArray  # (n,) within the rank's own
    levels: LevelArray  # (n,)


@dataclass(frozen=True, eq=False)
class RankData:
    """Training ratings in a rank's columns, which count within its own, and cells to choose by."""

    axis: Axis
    ratings: RankRatings
    part: ColumnPartition
    valid: HeldOutRatings
    asked: IndexArray
    """(N,) validation ratings of each whole row."""
    weights: npt.NDArray[np.float32] | None = None
    """(n,) of interactions that count differently."""

    @property
    def rows(self) -> CsrRows:
        return self.ratings.rows(self.axis)


def load_rank_data(group: ProcessGroup, shards: ShardedRatings, axis: Axis) -> RankData:
    """What this rank has of the shards whose rows are these."""
    own = shards.load(axis, "train", group.rank, group.size)
    held = shards.load(axis, "valid", group.rank, group.size)
    row_counts, held_counts = (_row_counts(group, one.rows) for one in (own, held))
    rows, K = own.rows, len(shards.scale)
    rows = replace(rows, n_columns=max(1, rows.n_columns))
    sides = {axis: own.row_indices, other_axis(axis): rows.columns}
    ids = nameless(shards.n_users), nameless(shards.n_items)
    columns = sides["user"], sides["item"], rows.levels
    grouped, counts = {axis: rows}, {axis: row_counts}
    ratings = RankRatings(*columns, shards.scale, *ids, grouped=grouped, whole=counts)
    totals = group.all_reduce(np.bincount(rows.levels, minlength=K).astype(np.int64))
    whole = PartialRows(own.position_in_row, row_counts)
    n_columns = shards.count(other_axis(axis))
    part = ColumnPartition(
        group, own.columns, n_columns, totals, whole, partial(owner_of, group.size)
    )
    valid = HeldOutRatings(held.row_indices, held.rows.columns, held.rows.levels)
    return RankData(axis, ratings, part, valid, held_counts, own.weights)


def _row_counts(group: ProcessGroup, own: CsrRows) -> IndexArray:
    """Return how many ratings each whole row has. Shape (N,)."""
    return group.all_reduce(own.counts().astype(np.int32))


def both_ways(user: RankData, item: RankData) -> RankRatings:
    """The ratings of both, for a member that reads users and items."""
    one, other = user.ratings, item.ratings
    return RankRatings(
        *(one.users, one.items, one.levels, one.scale, one.user_ids, one.item_ids),
        grouped=one.grouped | other.grouped,
        whole=one.whole | other.whole,
    )


def sizes_alone(shards: ShardedRatings, count: int) -> Dataset:
    """So many ratings with the sizes and the scale of the shards, and nothing else: no memory."""
    index, levels = np.broadcast_to(np.int32(0), (count,)), np.broadcast_to(np.uint8(0), (count,))
    ids = nameless(shards.n_users), nameless(shards.n_items)
    return Dataset(index, index, levels, shards.scale, *ids)


def nameless(count: int) -> npt.NDArray[Any]:
    """Ids that nobody asks for, and that take no memory: indices are all that training knows."""
    return np.broadcast_to(np.int64(0), (count,))
