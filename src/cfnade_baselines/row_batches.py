"""Batches of rows with their ratings by column, and ranges of work for threads."""

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
    rows: npt.NDArray[np.int32]  # (n,) number of the row in the batch
    levels: npt.NDArray[np.uint8]  # (n,)
    values: Floats  # (n,) in stars


def n_batches(rows: CsrRows, batch_rows: int) -> int:
    """How many batches an epoch has: of nearly equal size, near the one asked for."""
    return max(1, round(len(rows) / batch_rows))


def shuffled(rows: CsrRows, batch_rows: int, random: np.random.Generator) -> Iterator[IntArray]:
    """The rows of each batch of an epoch."""
    yield from np.array_split(random.permutation(len(rows)), n_batches(rows, batch_rows))


def by_column(rows: CsrRows, which: IntArray, stars: npt.NDArray[Any]) -> RatedColumns:
    """The ratings of these rows; `stars` (K,) are the values of the levels."""
    counts = rows.counts()[which]
    ends = np.cumsum(counts)
    places = np.repeat(rows.offsets[which] - ends + counts, counts) + np.arange(ends[-1])
    columns = rows.columns[places]
    order = stable_order(columns, rows.n_columns)
    if order is None:
        order = np.arange(len(places))
    numbers = np.repeat(np.arange(len(which), dtype=np.int32), counts)
    levels = rows.levels[places[order]]
    values = stars.astype(np.float32)[levels]
    starts = row_offsets(columns, rows.n_columns)
    return RatedColumns(len(which), starts, numbers[order], levels, values)


def equal_work(offsets: IntArray, threads: int, each: float = 0.0) -> list[Range]:
    """Ranges of rows (or columns), one a thread, that cost about the same.

    A rating costs 1, and a row `each` however many it has.
    """
    work = offsets + each * np.arange(len(offsets))
    bounds = np.linspace(0, work[-1], threads + 1)[1:-1]
    return list(pairwise([0, *np.searchsorted(work, bounds).tolist(), len(work) - 1]))


def equal_ranges(size: int, threads: int) -> list[Range]:
    """Ranges of equally many things, one a thread."""
    return list(pairwise([size * t // threads for t in range(threads + 1)]))
