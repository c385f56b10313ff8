"""Batches of rows with their ratings grouped by column, and ranges of work for threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.data.csr import CsrRows, row_offsets, stable_order
from cfnade_baselines.base import IntArray

Range = tuple[int, int]
Floats = npt.NDArray[np.float32]


class RatedColumns(NamedTuple):
    """Ratings of `size` rows; column c has those from starts[c] to starts[c+1]."""

    size: int
    starts: npt.NDArray[np.int64]  # (M+1,)
    rows: npt.NDArray[np.int32]  # (n,) index of the row in the batch
    levels: npt.NDArray[np.uint8]  # (n,)
    values: Floats  # (n,) ratings


def n_batches(rows: CsrRows, batch_rows: int) -> int:
    """Return the number of batches per epoch, which have about `batch_rows` rows each."""
    return max(1, round(len(rows) / batch_rows))


def shuffled_batches(
    rows: CsrRows, batch_rows: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Yield the row indices of each batch of an epoch."""
    yield from np.array_split(rng.permutation(len(rows)), n_batches(rows, batch_rows))


def gather_ratings(rows: CsrRows, index: IntArray, level_values: npt.NDArray[Any]) -> RatedColumns:
    """Return the ratings of the rows of this index, grouped by column."""
    counts = rows.counts()[index]
    ends = np.cumsum(counts)
    positions = np.repeat(rows.offsets[index] - ends + counts, counts) + np.arange(ends[-1])
    columns = rows.columns[positions]
    order = stable_order(columns, rows.n_columns)
    if order is None:
        order = np.arange(len(positions))
    batch_index = np.repeat(np.arange(len(index), dtype=np.int32), counts)
    levels = rows.levels[positions[order]]
    values = level_values.astype(np.float32)[levels]
    starts = row_offsets(columns, rows.n_columns)
    return RatedColumns(len(index), starts, batch_index[order], levels, values)


def equal_work(offsets: IntArray, n_threads: int, row_cost: float = 0.0) -> list[Range]:
    """Return one range of rows (or columns) per thread; the ranges cost about the same.

    A rating costs 1, and a row costs `row_cost` in addition.
    """
    work = offsets + row_cost * np.arange(len(offsets))
    bounds = np.linspace(0, work[-1], n_threads + 1)[1:-1]
    return list(pairwise([0, *np.searchsorted(work, bounds).tolist(), len(work) - 1]))


def equal_ranges(size: int, n_threads: int) -> list[Range]:
    """Return one range per thread, of equal size."""
    return list(pairwise([size * t // n_threads for t in range(n_threads + 1)]))
