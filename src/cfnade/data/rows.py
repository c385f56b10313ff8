"""Ragged rows: the form in which models read ratings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
LevelArray = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Rows:
    """Row r rated columns[offsets[r]:offsets[r+1]] at the levels beside them.

    Rows are users and columns items, or the other way round: models do not know which.
    """

    offsets: IntArray  # (N+1,)
    columns: IndexArray  # (n,)
    levels: LevelArray  # (n,)
    n_columns: int
    n_levels: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_ratings(self) -> int:
        return len(self.columns)

    def counts(self) -> IntArray:
        """How many ratings each row has. Returns (N,)."""
        return np.diff(self.offsets)


def stable_order(index: IndexArray, count: int) -> IntArray | None:
    """The order that groups equal indices and keeps it inside a group; None if it is so already.

    Sorting (index, position) packed into one integer is several times faster than a stable
    argsort, and needs 8 bytes a rating.
    """
    if len(index) < 2 or bool(np.all(index[1:] >= index[:-1])):
        return None
    bits = int(len(index) - 1).bit_length()
    if bits + int(count).bit_length() > 63:
        return np.argsort(index, kind="stable")
    packed = index.astype(np.int64)
    packed <<= bits
    packed |= np.arange(len(index), dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def offsets_of(index: IndexArray, count: int) -> IntArray:
    """Where each group starts once ratings are grouped. Returns (count+1,)."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(index, minlength=count), out=offsets[1:])
    return offsets
