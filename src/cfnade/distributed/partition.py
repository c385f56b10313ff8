"""The columns that one rank holds, and the exchange of scores with the ranks that hold the others.

Of a block's target one rank has the item and one the user. The rank that has the item (the user
side's columns) makes the cost. The item side's scores of a target are made by the rank that has its
user; they are sent there, and their slopes come back. Both ranks have the rating, so both know
which cells travel between them: by item, then by user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from cfnade._typing import IndexArray, IntArray
from cfnade.distributed.process_group import Array, ProcessGroup
from cfnade.kernels.block_sampling import BlockPart
from cfnade.kernels.sampling import PartialRows
from cfnade.models.initialization import OwnedColumns

Owner = Callable[[Array], Array]
"""The rank that has each user, or item."""


class ColumnPartition(NamedTuple):
    """A rank's own columns, and what it knows of all the others.

    A rank without columns holds one that is nobody's: tables have no empty side.
    """

    group: ProcessGroup
    columns: IndexArray  # (C,) in the whole, rising
    whole: int  # M
    totals: IntArray  # (K,) training ratings of all columns at each level
    rows: PartialRows
    owner: Owner
    """The rank that has each user, or item."""

    @property
    def block(self) -> BlockPart:
        """The same, as blocks are drawn from it."""
        return BlockPart(self.columns, self.rows)

    @property
    def kept(self) -> OwnedColumns:
        """The same, as start values are drawn for it."""
        return OwnedColumns(torch.from_numpy(self.columns.astype(np.int64)), self.whole)

    def __deepcopy__(self, memo: object) -> ColumnPartition:
        """Copies of a side have the same part."""
        return self


class PairExchange(NamedTuple):
    """Which cells of the two sides go together."""

    group: ProcessGroup
    here: IntArray  # (T,) the own items' cells in the order in which others send them
    there: IntArray  # (S,) the own users' cells in the order in which they are sent
    since: list[int]
    to: list[int]

    def add_scores(self, scores: Array, more: Array) -> None:
        """Add to the scores (T, K) what their other owners say; more (S, K) are own ones."""
        scores[self.here] += self.group.all_to_all_rows(more[self.there], self.to, self.since)

    def return_slopes(self, slopes: Array) -> Array:
        """The slopes of the own users' cells, from those of the scores. Returns (S, K)."""
        back = np.empty((len(self.there), slopes.shape[1]), slopes.dtype)
        back[self.there] = self.group.all_to_all_rows(slopes[self.here], self.since, self.to)
        return back


def pair_exchange(
    group: ProcessGroup,
    owner: Owner,
    here: tuple[Array, Array],
    there: tuple[Array, Array],
) -> PairExchange:
    """Of cells by user and item: those of the own items, and those of the own users."""
    of_users, of_items = owner(here[0]), owner(there[1])
    return PairExchange(
        group,
        np.lexsort((*here, of_users)),
        np.lexsort((*there, of_items)),
        np.bincount(of_users, minlength=group.size).tolist(),
        np.bincount(of_items, minlength=group.size).tolist(),
    )
