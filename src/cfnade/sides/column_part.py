"""Which of all columns the tables of a side hold, where ranks share them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from cfnade._typing import IndexArray, IntArray
from cfnade.group import Group
from cfnade.kernels.row_splits import WholeRows
from cfnade.kernels.sampling import BlockPart
from cfnade.models.initialization import OwnedColumns
from cfnade.sides.meeting import Owner


class ColumnPart(NamedTuple):
    """A rank's own columns, and what it knows of all the others.

    A rank without columns holds one that is nobody's: tables have no empty side.
    """

    group: Group
    columns: IndexArray  # (C,) in the whole, rising
    whole: int  # M
    totals: IntArray  # (K,) training ratings of all columns at each level
    rows: WholeRows
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

    def __deepcopy__(self, memo: object) -> ColumnPart:
        """Copies of a side have the same part."""
        return self
