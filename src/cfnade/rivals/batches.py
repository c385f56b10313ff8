"""Batches of rows for models that read whole rows, in the form that the kernels want."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Rows
from cfnade.kernels.grouping import NO_WEIGHTS, Grouped, group
from cfnade.rivals.interface import IntArray


def n_batches(rows: Rows, batch_rows: int) -> int:
    """How many batches an epoch has: of nearly equal size, near the one asked for."""
    return max(1, round(len(rows) / batch_rows))


def shuffled(rows: Rows, batch_rows: int, random: np.random.Generator) -> Iterator[IntArray]:
    """The rows of each batch of an epoch."""
    yield from np.array_split(random.permutation(len(rows)), n_batches(rows, batch_rows))


def grouped(rows: Rows, which: IntArray, values: npt.NDArray[np.float32] | None = None) -> Grouped:
    """The ratings of these rows by column; `values`, one a rating of all rows, as weights."""
    counts = rows.counts()[which]
    ends = np.cumsum(counts)
    at = np.repeat(rows.offsets[which] - ends + counts, counts) + np.arange(ends[-1])
    return group(
        np.repeat(np.arange(len(which), dtype=np.int32), counts),
        rows.columns[at],
        rows.levels[at],
        NO_WEIGHTS if values is None else values[at],
        size=len(which),
        n_columns=rows.n_columns,
        n_levels=rows.n_levels,
    )
