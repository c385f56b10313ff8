"""Group ratings by column, and look up cells among the ratings of some rows."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.jit import inlined, kernel
from cfnade.kernels.simd import data_pointer

NO_WEIGHTS: Array = np.empty(0, np.float32)
NO_ORDER: Array = np.empty(0, np.int64)


class Cells(NamedTuple):
    """Cells one by one, not grouped by column."""

    rows: Array  # (n,) int64: number of the row in the batch
    columns: Array  # (n,) int64
    levels: Array  # (n,) int64
    weights: Array  # (n,), or nothing


class CellPointers(NamedTuple):
    """What every kernel reads of grouped ratings."""

    starts: Array
    rows: Array
    levels: Array


@inlined
def cell_pointers(cells):
    """Return the arrays as pointers."""
    return CellPointers(
        data_pointer(cells.starts), data_pointer(cells.rows), data_pointer(cells.levels)
    )


class ColumnGroups(NamedTuple):
    """Ratings of `n_rows` rows, by column: column c has those from starts[c] to starts[c+1]."""

    n_rows: int
    starts: Array  # (M+1,) int64
    rows: Array  # (n,) int32: number of the row in the batch
    levels: Array  # (n,) uint8
    present: Array  # (m,) int32: the columns that have any, rising
    weights: Array = NO_WEIGHTS  # (n,) of targets
    order: Array = NO_ORDER  # (n,) int64: place of the rating as it was given

    @property
    def n_columns(self) -> int:
        return len(self.starts) - 1

    @property
    def arrays(self) -> CellPointers:
        """What every kernel reads of them."""
        return CellPointers(self.starts, self.rows, self.levels)

    def columns(self) -> Array:
        """Return the column of each rating, (n,) int64."""
        return np.repeat(np.arange(self.n_columns), np.diff(self.starts))

    def cells(self) -> Cells:
        """Return the ratings in the order in which they were given, by column if there is none."""
        parts = self.rows.astype(np.int64), self.columns(), self.levels.astype(np.int64)
        by_column = Cells(*parts, self.weights)
        if not len(self.order):
            return by_column
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        return Cells(*(part[places] if len(part) else part for part in by_column))


@kernel
def _counting_sort(columns, starts, order):
    """Counting sort; inside a column ratings keep their order.

    Traffic: columns twice, order once; starts must stay in cache.
    """
    n, m = len(columns), len(starts) - 1
    columns, starts, order = data_pointer(columns), data_pointer(starts), data_pointer(order)
    for i in range(n):
        starts[columns[i] + 1] += 1
    for c in range(m):
        starts[c + 1] += starts[c]
    for i in range(n):
        order[starts[columns[i]]] = i
        starts[columns[i]] += 1
    for c in range(m, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0


def counting_sort(columns: Array, n_columns: int) -> tuple[Array, Array]:
    """Return where each column starts (M+1,), and the rating at each place by column (n,)."""
    starts, order = np.zeros(n_columns + 1, np.int64), np.empty(len(columns), np.int64)
    _counting_sort(columns.astype(np.int32), starts, order)
    return starts, order


def partition_columns(
    columns: Array, starts: Array, fixed: float, parts: int
) -> list[tuple[int, int]]:
    """Return `parts` ranges of columns of about equal work: ratings + `fixed` per column.

    `columns` are rising, among them all that have ratings.
    """

    def work(place: int) -> float:  # of the columns before that place
        return float(starts[columns[place]]) + fixed * place

    n = len(columns)
    total = float(starts[-1]) + fixed * n
    # Bisection evaluates `work` at a few places only: a step calls this four times.
    cuts = [bisect_left(range(n), total * part / parts, key=work) for part in range(1, parts)]
    return list(pairwise([0, *cuts, n]))


def require_inside(name: str, values: Array, limit: int, limit_name: str) -> None:
    """Refuse indices that would leave the memory of a table."""
    if len(values) and (values.min() < 0 or values.max() >= limit):
        place = int(np.flatnonzero((values < 0) | (values >= limit))[0])
        raise ModelError(
            f"{name}[{place}] (={values[place]}) must lie in 0..{limit - 1} "
            f"({limit_name} = {limit})"
        )


def group_by_column(
    rows: Array,
    columns: Array,
    levels: Array,
    weights: Array = NO_WEIGHTS,
    *,
    n_rows: int,
    n_columns: int,
    n_levels: int,
) -> ColumnGroups:
    """Group cells given in any order, once every index has been checked."""
    for name, array in {"rows": rows, "columns": columns, "levels": levels}.items():
        _require_integers(name, array, len(columns))
    require_inside("rows", rows, n_rows, "rows")
    require_inside("columns", columns, n_columns, "columns")
    require_inside("levels", levels, n_levels, "levels")
    starts, order = counting_sort(columns, n_columns)
    present = np.flatnonzero(np.diff(starts)).astype(np.int32)
    grouped = rows[order].astype(np.int32), levels[order].astype(np.uint8)
    ordered_weights = weights[order] if len(weights) else weights
    return ColumnGroups(n_rows, starts, *grouped, present, ordered_weights, order)


def _require_integers(name: str, array: Array, count: int) -> None:
    if array.dtype.kind not in "iu":
        raise ModelError(f"{name} has dtype {array.dtype}; it must be an integer type")
    if array.shape != (count,):
        raise ModelError(f"{name} has shape {array.shape}; it must be ({count},), one per cell")


# -- some rows of many: one pass, nothing is sorted -----------------------------------------------


class RowRatings(NamedTuple):
    """The ratings of some rows, each with the number of its row among them."""

    offsets: Array  # (B+1,) int64
    rows: Array  # (C,) int32
    columns: Array  # (C,) int32
    levels: Array  # (C,) uint8


def take_rows(offsets: Array, columns: Array, levels: Array, rows: Array) -> RowRatings:
    """Return the ratings of these rows; an unknown row (-1) has none."""
    if len(rows) == 1:  # of most requests
        first, end = offsets[rows[0]], max(offsets[rows[0]], offsets[rows[0] + 1])
        numbers, part = np.zeros(end - first, np.int32), slice(first, end)
        ends = np.array([0, end - first], np.int64)
        return RowRatings(ends, numbers, np.array(columns[part]), np.array(levels[part]))
    counts = np.where(rows < 0, 0, offsets[rows + 1] - offsets[rows])
    ends = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(offsets[rows] - ends[:-1], counts) + np.arange(ends[-1])
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    return RowRatings(ends, numbers, columns[places], levels[places])


@kernel
def _lookup_levels(offsets, rated, levels, order, rows, columns, marks, out):
    """marks (M,) is -1 everywhere before and after; inside it holds the levels of one row."""
    n = len(order)
    offsets = data_pointer(offsets)
    rated = data_pointer(rated)
    levels = data_pointer(levels)
    order = data_pointer(order)
    rows = data_pointer(rows)
    columns = data_pointer(columns)
    marks = data_pointer(marks)
    out = data_pointer(out)
    i = 0
    while i < n:
        row = rows[order[i]]
        first, end = offsets[row], offsets[row + 1]
        for p in range(first, end):
            marks[rated[p]] = levels[p]
        while i < n and rows[order[i]] == row:
            column = columns[order[i]]
            out[order[i]] = marks[column] if column >= 0 else -1
            i += 1
        for p in range(first, end):
            marks[rated[p]] = -1


def lookup_levels(ratings: RowRatings, rows: Array, columns: Array, n_columns: int) -> Array:
    """Return the level of each cell's rating, -1 where there is none. (n,).

    Rows are numbers among those of `ratings`. An unknown column (-1) has no rating. Indices are not
    checked.
    """
    out, marks = np.empty(len(rows), np.int64), np.full(n_columns, -1, np.int64)
    order = np.argsort(rows, kind="stable")
    cells = np.array(rows, np.int64), np.array(columns, np.int64)
    _lookup_levels(ratings.offsets, ratings.columns, ratings.levels, order, *cells, marks, out)
    return out


def append_entries(
    rows: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    levels: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    out: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
) -> None:
    """Append entries to their rows, in their order.

    Args:
        rows: Row of each entry, (n,).
        columns: Column of each entry, (n,).
        levels: Level of each entry, (n,).
        ends: Position in `out` of the next entry of each row; advanced.
        out: Columns and levels of all rows, written.
    """
    # Arrays of other types would compile a second kernel.
    arrays = [readonly(np.ascontiguousarray(array)) for array in (rows, columns, levels)]
    _append_entries(*arrays, ends, *out)


@kernel
def _append_entries(rows, columns, levels, ends, out_columns, out_levels):
    for i in range(len(rows)):
        place = ends[rows[i]]
        out_columns[place] = columns[i]
        out_levels[place] = levels[i]
        ends[rows[i]] = place + 1
