"""Batches drawn and grouped by column: part of each row is context, the rest target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cfnade.errors import ModelError
from cfnade.group import ALONE, Group
from cfnade.kernels.compiled import kernel
from cfnade.kernels.grouping import NO_WEIGHTS, CellArrays, Grouped, require_inside
from cfnade.kernels.marking import (
    CONTEXT,
    DROPPED,
    TARGET,
    ChosenRows,
    MarkedRatings,
    WholeRows,
    bare_rows,
    mark,
    mark_part,
)
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.simd import address
from cfnade.kernels.threads import run, thread_count


@dataclass(frozen=True)
class DrawnBatch:
    """Some rows, each split into context and targets, grouped by column."""

    context: Grouped
    targets: Grouped
    counts: Array  # (B,) int64: ratings in each row's context, those of other ranks too

    @property
    def size(self) -> int:
        return len(self.counts)

    def context_cells(self) -> CellArrays:
        """The context row by row, columns rising: row b has counts[b] of them."""
        cells = self.context.cells()
        by_row = np.argsort(cells.rows, kind="stable")
        rows, columns, levels = (part[by_row] for part in cells[:3])
        return CellArrays(rows, columns, levels, NO_WEIGHTS)

    def target_cells(self) -> CellArrays:
        """The targets by column, rows as drawn; those of a block in the block's one order."""
        return self.targets.cells()


class Drawn(NamedTuple):
    """A batch being made, by column: contexts before targets."""

    rows: Array  # (n,) int32
    levels: Array  # (n,) uint8
    weights: Array  # (n,) float32


@kernel
def _cursors(tallies: Any, role: int, first: int, starts: Any, touched: Any) -> int:
    """Turn the threads' tallies of a role into where each writes, from `first` on.

    Returns how many columns have ratings. Traffic: 12 bytes a column and thread.
    """
    threads, roles, n_columns = tallies.shape
    sums, begins, which = address(tallies), address(starts), address(touched)
    place, n = 0, 0
    for c in range(n_columns):
        begins[c] = place
        for t in range(threads):
            p = (t * roles + role) * n_columns + c
            count = sums[p]
            sums[p] = first + place
            place += count
        which[n] = c
        n += place > begins[c]
    begins[n_columns] = place
    return n


@kernel
def _scatter(
    lo: int,
    hi: int,
    source: Any,
    levels: Any,
    marks: Any,
    row_weights: Any,
    drawn: Any,
    cursor: Any,
) -> None:
    """Write batch rows lo..hi to their columns. Traffic: 6 bytes read, 9 written a rating."""
    n_columns, next_place, source = cursor.shape[1], address(cursor), bare_rows(source)
    level_of, roles, weight_of = address(levels), address(marks.roles), address(row_weights)
    rows, new_levels, weights = address(drawn.rows), address(drawn.levels), address(drawn.weights)
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        for j in range(count):
            c = np.int64(roles[place + j]) * n_columns + source.columns[begin + j]
            p = next_place[c]
            next_place[c] = p + 1
            rows[p] = b
            new_levels[p] = level_of[begin + j]
            weights[p] = weight_of[b]


class Sampler:
    """Draws batches from ragged rows: offsets (N+1) int64, columns (n) int32, levels (n) uint8.

    rate None: a row of D ratings has 0..D-1 of them, evenly, as context (the paper's split point).
    rate (low, high): each row draws a rate from that range, and each rating is context with it.
    small: the share of rows that draw a size in 0..D-1 instead, its logarithm evenly.
    weights "paper": a target counts D over the targets of its row (Eq. 19); "unit": 1.
    whole: of which rows these are the ratings in some columns; the group has the others.
    """

    def __init__(
        self,
        offsets: Array,
        columns: Array,
        levels: Array,
        *,
        n_columns: int,
        n_levels: int,
        rate: tuple[float, float] | None = None,
        small: float = 0.0,
        weights: str = "paper",
        threads: int | None = None,
        whole: WholeRows | None = None,
        group: Group = ALONE,
    ) -> None:
        _check(offsets, columns, levels, rate, weights)
        require_inside("columns", columns, n_columns, "columns")
        require_inside("levels", levels, n_levels, "levels")
        self._data = frozen(offsets), frozen(columns), frozen(levels)
        self._how = (-1.0, -1.0, 0.0) if rate is None else (*rate, float(small))
        self._paper = weights == "paper"
        self._threads = thread_count(threads)
        self._tallies = np.zeros((self._threads, 3, n_columns), np.int32)
        self.whole, self._group = whole and WholeRows(*map(frozen, whole)), group

    def draw(self, rows: Array, *, seed: int, step: int) -> DrawnBatch:
        """Split the given rows at random, anew for every seed and step."""
        if self.whole is None:
            return self.split(rows, mark, (seed, step, *self._how))
        return self.split(rows, mark_part, (self.whole, seed, step, *self._how))

    def split(self, rows: Array, marking: Callable[..., None], how: tuple[Any, ...]) -> DrawnBatch:
        """Split the rows by the roles that marking(lo, hi, source, *how, marks, tally) gives."""
        offsets, columns, levels = self._data
        rows = np.array(rows, np.int64)
        require_inside("rows", rows, len(offsets) - 1, "rows")
        places = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(offsets[rows + 1] - offsets[rows], out=places[1:])
        source, cuts = ChosenRows(offsets, columns, rows, places), self._cuts(places)
        n = int(places[-1])
        marks = MarkedRatings(np.empty(n, np.uint8), np.empty(len(rows), np.int64))
        drawn = Drawn(np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.float32))
        self._tallies[:] = 0
        run(marking, [(*cut, source, *how, marks, tally) for cut, tally in cuts])
        context_starts = self._starts(CONTEXT, 0)
        middle = int(context_starts[0][-1])
        target_starts = self._starts(TARGET, middle)
        end = middle + int(target_starts[0][-1])
        if end < n:
            self._starts(DROPPED, end)  # they are written too, behind all others
        counts = marks.counts if self.whole is None else self._group.sum_(marks.counts)
        fixed = (source, levels, marks, self._row_weights(rows, counts), drawn)
        run(_scatter, [(*cut, *fixed, tally) for cut, tally in cuts])
        context = _part(drawn, 0, context_starts, len(rows))
        targets = _part(drawn, middle, target_starts, len(rows))
        return DrawnBatch(context, targets, counts)

    def _row_weights(self, rows: Array, counts: Array) -> Array:
        """What the targets of each row count, given how many ratings are context. (B,)."""
        if not self._paper:
            return np.ones(len(rows), np.float32)
        offsets = self._data[0]
        sizes = offsets[rows + 1] - offsets[rows] if self.whole is None else self.whole.counts[rows]
        return np.asarray(sizes / np.maximum(1, sizes - counts), np.float32)

    def _cuts(self, places: Array) -> list[tuple[tuple[int, int], Array]]:
        """Ranges of rows with about as many ratings each, and the tally of each thread."""
        goals = places[-1] * np.arange(1, self._threads) // self._threads
        cuts = [0, *(int(cut) for cut in np.searchsorted(places, goals)), len(places) - 1]
        return list(zip(pairwise(cuts), self._tallies, strict=True))

    def _starts(self, role: int, first: int) -> tuple[Array, Array]:
        """Where each column starts, and which have ratings; the tallies become cursors."""
        n_columns = self._tallies.shape[2]
        starts, touched = np.empty(n_columns + 1, np.int64), np.empty(n_columns, np.int32)
        return starts, touched[: _cursors(self._tallies, role, first, starts, touched)]


def _part(drawn: Drawn, first: int, columns: tuple[Array, Array], size: int) -> Grouped:
    """Contexts or targets of the batch's `size` rows, which lie from `first` on."""
    starts, touched = columns
    where = slice(first, first + int(starts[-1]))
    rows, levels, weights = drawn.rows[where], drawn.levels[where], drawn.weights[where]
    return Grouped(size, starts, rows, levels, touched, weights)


def _check(
    offsets: Array, columns: Array, levels: Array, rate: tuple[float, float] | None, weights: str
) -> None:
    """Refuse what the kernels would read wrongly, before they run."""
    kinds = {
        "offsets": (offsets, np.int64),
        "columns": (columns, np.int32),
        "levels": (levels, np.uint8),
    }
    for name, (array, dtype) in kinds.items():
        if array.ndim != 1 or array.dtype != dtype or not array.flags.c_contiguous:
            raise ModelError(
                f"{name} has dtype {array.dtype} and shape {array.shape}; it must be a contiguous "
                f"one-dimensional array of {np.dtype(dtype)}"
            )
    rises = offsets.size > 0 and offsets[0] == 0 and bool(np.all(np.diff(offsets) >= 0))
    if not rises or not len(columns) == len(levels) == offsets[-1]:
        raise ModelError(
            f"offsets must rise from 0 to the number of ratings; there are {len(columns)} columns "
            f"and {len(levels)} levels"
        )
    if rate is not None and not 0.0 <= rate[0] <= rate[1] <= 1.0:
        raise ModelError(f"rate (={rate}) must be two rising numbers in 0..1, or None")
    if weights not in ("paper", "unit"):
        raise ModelError(f"weights (={weights!r}) must be 'paper' or 'unit'")
