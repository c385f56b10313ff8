"""The columns that one rank holds, and the exchange of scores with the ranks that hold the others.

For each target of a joint model, one rank has the item and one the user. The rank with the item (a
column of the user component) computes the cost. The rank with the user computes the scores of the
item component, sends them there, and receives their slopes. Both ranks have the rating, so both
know which cells travel between them: by item, then by user.
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
"""Returns the rank of each user, or item."""


class ColumnPartition(NamedTuple):
    """A rank's own columns, and the sizes of the whole.

    A rank without columns has a dummy one: tables cannot be empty.
    """

    group: ProcessGroup
    columns: IndexArray  # (C,) in the whole, rising
    n_columns: int  # M, of all ranks
    totals: IntArray  # (K,) training ratings of all columns at each level
    rows: PartialRows
    owner: Owner

    @property
    def block(self) -> BlockPart:
        """The columns as blocks are sampled from them."""
        return BlockPart(self.columns, self.rows)

    @property
    def initialized_columns(self) -> OwnedColumns:
        """The columns as initial values are drawn for them."""
        return OwnedColumns(torch.from_numpy(self.columns.astype(np.int64)), self.n_columns)

    def __deepcopy__(self, memo: object) -> ColumnPartition:
        """Copies of a component have the same partition."""
        return self


class PairExchange(NamedTuple):
    """The cells of two components that belong together, and where they are."""

    group: ProcessGroup
    here: IntArray  # (T,) the own items' cells in the order in which others send them
    there: IntArray  # (S,) the own users' cells in the order in which they are sent
    since: list[int]
    to: list[int]

    def add_scores(self, scores: Array, sent: Array) -> None:
        """Add the scores of other ranks to scores (T, K); `sent` (S, K) are those to send."""
        scores[self.here] += self.group.all_to_all_rows(sent[self.there], self.to, self.since)

    def return_slopes(self, slopes: Array) -> Array:
        """Return the slopes of the own users' cells, (S, K), from those of the scores."""
        received = np.empty((len(self.there), slopes.shape[1]), slopes.dtype)
        received[self.there] = self.group.all_to_all_rows(slopes[self.here], self.since, self.to)
        return received


def pair_exchange(
    group: ProcessGroup,
    owner: Owner,
    here: tuple[Array, Array],
    there: tuple[Array, Array],
) -> PairExchange:
    """Return the exchange of cells (users, items) of the own items and of the own users."""
    user_ranks, item_ranks = owner(here[0]), owner(there[1])
    return PairExchange(
        group,
        np.lexsort((*here, user_ranks)),
        np.lexsort((*there, item_ranks)),
        np.bincount(user_ranks, minlength=group.size).tolist(),
        np.bincount(item_ranks, minlength=group.size).tolist(),
    )
