"""A rank's part of the data: the ratings in its own columns, and the sizes of whole rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.components.base import Axis, other_axis
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.shards import ColumnRatings, ShardedRatings, owner_of
from cfnade.kernels.sampling import PartialRows

if TYPE_CHECKING:
    from cfnade.distributed.validation import DistributedValidation


class RankRatings(Dataset):
    """Training ratings in a rank's columns, which are numbered within its train.

    By users these are the ratings of its own items, by items those of its own users. Rows have the
    numbers of the whole data, and row counts are those of all ranks.
    """

    def __init__(
        self,
        *columns: Any,
        grouped: dict[Axis, CsrRows],
        row_counts: dict[Axis, IndexArray],
    ) -> None:
        super().__init__(*columns)
        self.__dict__.update(grouped=grouped, row_counts=row_counts)

    grouped: dict[Axis, CsrRows]
    row_counts: dict[Axis, IndexArray]
    """Number of ratings of each whole row."""

    def rows(self, axis: Axis = "user") -> CsrRows:
        return self.grouped[axis] if axis in self.grouped else super().rows(axis)

    def level_counts(self, axis: Axis) -> IntArray:
        """Return the counts of each own user or item at each level, (C, K)."""
        rows, K = self.rows(other_axis(axis)), len(self.scale)
        cells = rows.columns.astype(np.int64) * K + rows.levels
        return np.bincount(cells, minlength=rows.n_columns * K).reshape(-1, K)

    def row_totals(self, axis: Axis) -> tuple[int, int]:
        counts = self.row_counts[axis]
        return int(counts.sum(dtype=np.int64)), int(np.count_nonzero(counts))


@dataclass(frozen=True, eq=False)
class RankData:
    """A rank's training and validation ratings; columns are numbered within its train."""

    axis: Axis
    """What the rows are."""
    ratings: RankRatings
    part: ColumnPartition
    valid: ColumnRatings
    valid_counts: IndexArray
    """(N,) validation ratings of each whole row."""

    @property
    def rows(self) -> CsrRows:
        return self.ratings.rows(self.axis)


def load_rank_data(
    group: ProcessGroup, shards: ShardedRatings, axis: Axis, *, refit: bool = False
) -> RankData:
    """Load a rank's columns of the shards whose rows are `axis`.

    Args:
        group: The ranks, which call it together.
        shards: The folder.
        axis: What the rows are.
        refit: Whether validation ratings are trained on, too.
    """
    train = shards.load(axis, "train", group.rank, group.size)
    valid = shards.load(axis, "valid", group.rank, group.size)
    row_counts, valid_counts = (_row_counts(group, part.rows) for part in (train, valid))
    if refit:
        train, row_counts = _merge(train, valid, row_counts), row_counts + valid_counts
    rows, K = train.rows, len(shards.scale)
    rows = replace(rows, n_columns=max(1, rows.n_columns))
    indices = {axis: train.row_indices, other_axis(axis): rows.columns}
    ids = placeholder_ids(shards.n_users), placeholder_ids(shards.n_items)
    columns = indices["user"], indices["item"], rows.levels
    grouped, counts = {axis: rows}, {axis: row_counts}
    ratings = RankRatings(*columns, shards.scale, *ids, grouped=grouped, row_counts=counts)
    totals = group.all_reduce(np.bincount(rows.levels, minlength=K).astype(np.int64))
    partial_rows = PartialRows(train.position_in_row, row_counts)
    n_columns = shards.count(other_axis(axis))
    part = ColumnPartition(
        group, train.columns, n_columns, totals, partial_rows, partial(owner_of, group.size)
    )
    return RankData(axis, ratings, part, valid, valid_counts)


def _merge(train: ColumnRatings, valid: ColumnRatings, train_counts: IndexArray) -> ColumnRatings:
    """Return the ratings of both; in each row those of validation come last, as in one process."""
    parts = train, valid
    after = valid.position_in_row + train_counts[valid.row_indices]
    position = np.concatenate([train.position_in_row, after.astype(np.int32)])
    order = np.lexsort((position, np.concatenate([part.row_indices for part in parts])))
    rows = replace(
        train.rows,
        offsets=train.rows.offsets + valid.rows.offsets,
        columns=np.concatenate([part.rows.columns for part in parts])[order],
        levels=np.concatenate([part.rows.levels for part in parts])[order],
    )
    return ColumnRatings(rows, train.columns, position[order])


def _row_counts(group: ProcessGroup, rows: CsrRows) -> IndexArray:
    """Return the number of ratings of each whole row, (N,)."""
    return group.all_reduce(rows.counts().astype(np.int32))


@dataclass(frozen=True)
class RankSplit:
    """What one rank has of the shards' training and validation part."""

    shards: ShardedRatings
    sets: tuple[RankData, ...]
    """The ratings once for each axis that a model has as rows, users first."""

    @classmethod
    def load(
        cls,
        group: ProcessGroup,
        shards: ShardedRatings,
        axes: Iterable[Axis],
        *,
        refit: bool = False,
    ) -> Self:
        """Load the ratings of a rank's columns; all ranks call it together."""
        loaded = (load_rank_data(group, shards, axis, refit=refit) for axis in axes)
        return cls(shards, tuple(loaded))

    name = "shards"

    @property
    def fingerprint(self) -> str:
        return self.shards.fingerprint

    @property
    def data(self) -> str:
        """Where the ratings are."""
        return str(self.shards.folder)

    @property
    def group(self) -> ProcessGroup:
        return self.sets[0].part.group

    @property
    def parts(self) -> dict[Axis, ColumnPartition]:
        """The rank's columns by what the rows are."""
        return {data.axis: data.part for data in self.sets}

    @cached_property
    def train(self) -> RankRatings:
        """The training ratings by all axes."""
        first = self.sets[0].ratings
        grouped: dict[Axis, CsrRows] = {}
        counts: dict[Axis, IndexArray] = {}
        for data in self.sets:
            grouped |= data.ratings.grouped
            counts |= data.ratings.row_counts
        columns = first.users, first.items, first.levels, first.scale
        ids = first.user_ids, first.item_ids
        return RankRatings(*columns, *ids, grouped=grouped, row_counts=counts)

    @property
    def valid(self) -> CsrRows:
        return self.sets[0].valid.rows

    @cached_property
    def validation(self) -> DistributedValidation | None:
        """Scores by the validation ratings of all ranks; None if there are none."""
        from cfnade.distributed.validation import DistributedValidation

        return DistributedValidation(*self.sets) if self.shards.sizes["valid"] else None


def sizes_only(shards: ShardedRatings, count: int) -> Dataset:
    """Return a data set that has the sizes and the scale of the shards, and takes no memory."""
    index, levels = np.broadcast_to(np.int32(0), (count,)), np.broadcast_to(np.uint8(0), (count,))
    ids = placeholder_ids(shards.n_users), placeholder_ids(shards.n_items)
    return Dataset(index, index, levels, shards.scale, *ids)


def placeholder_ids(count: int) -> npt.NDArray[Any]:
    """Return ids that take no memory: training only uses indices."""
    return np.broadcast_to(np.int64(0), (count,))
