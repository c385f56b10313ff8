"""Ratings grouped by user or item, in the layout of a compressed sparse row matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.scale import LevelArray
from cfnade.utils.caching import Memo

CHUNK = 1 << 22
"""Rows of a data set that are processed at a time: temporary arrays stay below 40 MB."""


@dataclass(frozen=True, eq=False)
class CsrRows(Memo):
    """Row r rated columns[offsets[r]:offsets[r+1]] at the levels in the same places.

    Rows are users and columns items, or the other way round: models do not know which.
    """

    offsets: IntArray  # (N+1,)
    columns: IndexArray  # (n,)
    levels: LevelArray  # (n,)
    n_columns: int
    n_levels: int

    @classmethod
    def from_chunks(
        cls,
        counts: IntArray,
        chunks: Iterable[tuple[npt.NDArray[Any], ...]],
        n_columns: int,
        n_levels: int,
    ) -> CsrRows:
        """Group chunks of (row, column, level) by row; each row keeps their order.

        Args:
            counts: Number of entries of each row, (N,).
            chunks: Arrays of rows, columns and levels, of any length.
            n_columns: Number of columns, of which some may be empty.
            n_levels: Number of levels of the scale.
        """
        from cfnade.kernels.column_groups import append_entries  # numba takes a second to import

        offsets = offsets_from_counts(counts)
        columns, levels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.uint8)
        ends = offsets[:-1].copy()
        for row, column, level in chunks:
            append_entries(row, column, level, ends, (columns, levels))
        for array in (offsets, columns, levels):
            array.flags.writeable = False
        return cls(offsets, columns, levels, n_columns, n_levels)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_ratings(self) -> int:
        """Number of entries of all rows."""
        return len(self.columns)

    def counts(self) -> IntArray:
        """Return the number of entries of each row, (N,)."""
        return np.diff(self.offsets)


def offsets_from_counts(counts: IntArray) -> IntArray:
    """Return where each row starts, and the end of the last, (N+1,)."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def row_offsets(index: IndexArray, count: int) -> IntArray:
    """Return where each row starts once entries are grouped by row index, (count+1,)."""
    return offsets_from_counts(index_counts(index, count))


def index_counts(index: IndexArray, count: int) -> IntArray:
    """Return how often each index in 0..count occurs, (count,)."""
    return index_sums(index, count, lambda _: None).astype(np.int64)


def index_sums(
    index: IndexArray, count: int, weights: Callable[[slice], npt.NDArray[Any] | None]
) -> npt.NDArray[np.float64]:
    """Sum weights by index, chunk by chunk; `np.bincount` of all would copy both to 8 bytes.

    Args:
        index: Index of each weight, (n,).
        count: Number of sums.
        weights: Returns the weights of a slice of `index`, or None where each is 1.
    """
    out = np.zeros(count)
    for start in range(0, len(index), CHUNK):
        rows = slice(start, start + CHUNK)
        out += np.bincount(index[rows], weights(rows), count)
    return out


def stable_order(index: IndexArray, count: int) -> IntArray | None:
    """Return the stable order that sorts an index below `count`; None if it is sorted.

    Sorting (index, position) packed into one integer is several times faster than a stable
    argsort, and needs 8 bytes an entry.
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
