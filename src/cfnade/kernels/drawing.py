"""Batches drawn and grouped by column: part of each row is context, the rest target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.gates import Gates
from cfnade.kernels.grouping import NO_WEIGHTS, CellArrays, Grouped, require_inside
from cfnade.kernels.marking import (
    CONTEXT,
    TARGET,
    ChosenRows,
    MarkedRatings,
    WholeRows,
    mark,
    mark_part,
)
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.scattering import ROLES, GroupedPlaces, no_tallies, scatter
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
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        _check(offsets, columns, levels, rate, weights)
        require_inside("columns", columns, n_columns, "columns")
        require_inside("levels", levels, n_levels, "levels")
        self._data = frozen(offsets), frozen(columns), frozen(levels)
        self._how = (-1.0, -1.0, 0.0) if rate is None else (*rate, float(small))
        self._paper = weights == "paper"
        self._threads = thread_count(threads)
        self._n_columns, self._tallies = n_columns, no_tallies(self._threads, n_columns)
        self.whole, self._group = whole and WholeRows(*map(frozen, whole)), group

    def draw(self, rows: Array, *, seed: int, step: int) -> DrawnBatch:
        """Split the given rows at random, anew for every seed and step."""
        if self.whole is None:
            return self.split(rows, mark, (seed, step, *self._how))
        return self.split(rows, mark_part, (self.whole, seed, step, *self._how))

    def several(self, batches: Sequence[Array], *, seed: int, step: int) -> list[DrawnBatch]:
        """`draw` of some batches, whose steps follow each other, each on a thread of its own.

        Two threads that made one batch together were hardly faster than one alone.
        """
        alone = self._alone[: len(batches)]
        if len(alone) < 2 or self.whole is not None:
            return [self.draw(rows, seed=seed, step=step + n) for n, rows in enumerate(batches)]

        def one(n: int) -> list[DrawnBatch]:
            numbers = range(n, len(batches), len(alone))
            return [alone[n].draw(batches[i], seed=seed, step=step + i) for i in numbers]

        drawn = run(one, [(n,) for n in range(len(alone))])
        return [drawn[i % len(alone)][i // len(alone)] for i in range(len(batches))]

    @cached_property
    def _alone(self) -> list[Sampler]:
        """For each thread one that works on it alone, on the same data."""
        return [self._with_threads(1) for _ in range(self._threads)]

    def _with_threads(self, threads: int) -> Sampler:
        one = copy(self)
        one._threads = threads
        one._tallies = no_tallies(threads, self._n_columns)
        return one

    def split(self, rows: Array, marking: Callable[..., None], how: tuple[Any, ...]) -> DrawnBatch:
        """Split the rows by the roles that marking(lo, hi, source, *how, marks, tally) gives."""
        offsets, columns, levels = self._data
        rows = np.array(rows, np.int64)
        require_inside("rows", rows, len(offsets) - 1, "rows")
        sizes = offsets[rows + 1] - offsets[rows]
        places = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=places[1:])
        source, cuts = ChosenRows(offsets, columns, rows, places), self._cuts(places)
        n = int(places[-1])
        marks = MarkedRatings(np.empty(n, np.uint8), np.empty(len(rows), np.int64))
        drawn = Drawn(np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.float32))
        groups = self._groups()
        if self.whole is not None:
            sizes = self.whole.counts[rows].astype(np.int64)
        scattered = (source, levels, marks, sizes, self._paper, drawn, self._tallies, groups)
        self._each(cuts, (marking, (source, *how, marks)), scattered, marks.counts)
        return DrawnBatch(*_parts(drawn, groups, len(rows)), marks.counts)

    def _each(
        self, cuts: list[tuple[int, int]], marked: Any, scattered: tuple[Any, ...], counts: Array
    ) -> None:
        """Each thread marks its rows, and writes its columns once all are marked. Ranks tell each
        other in between how many of each row are context."""
        gates, (marking, how) = Gates(self._threads), marked

        def mark_rows(thread: int, cut: tuple[int, int]) -> None:
            marking(*cut, *how, self._tally(thread))

        def write_columns(thread: int) -> None:
            scatter(gates.at(thread, 1), *scattered)

        def both(thread: int, cut: tuple[int, int]) -> None:
            with gates.left_open(thread):
                mark_rows(thread, cut)
                write_columns(thread)

        parts = list(enumerate(cuts))
        try:
            if self.whole is None:
                run(both, parts)
            else:
                run(mark_rows, parts)
                self._group.all_reduce(counts)
                run(write_columns, [(thread,) for thread in range(self._threads)])
        except BaseException:
            self._tallies.counts[:] = 0  # as a batch leaves them that was drawn to its end
            raise

    def _tally(self, thread: int) -> Array:
        return np.asarray(self._tallies.counts.reshape(self._threads, ROLES, -1)[thread])

    def _cuts(self, places: Array) -> list[tuple[int, int]]:
        """Ranges of rows with about as many ratings each."""
        goals = places[-1] * np.arange(1, self._threads) // self._threads
        return list(pairwise([0, *np.searchsorted(places, goals).tolist(), len(places) - 1]))

    def _groups(self) -> GroupedPlaces:
        """Room for contexts and targets."""
        M = self._n_columns
        starts, touched = np.empty(2 * (M + 1), np.int64), np.empty(2 * M, np.int32)
        return GroupedPlaces(starts, touched, np.empty(2, np.int64))


def _parts(drawn: Drawn, groups: GroupedPlaces, size: int) -> tuple[Grouped, Grouped]:
    """Contexts and targets of the batch's `size` rows; contexts lie first."""
    starts, touched = groups.starts.reshape(2, -1), groups.touched.reshape(2, -1)
    middle = int(starts[CONTEXT, -1])
    where = {CONTEXT: slice(middle), TARGET: slice(middle, middle + int(starts[TARGET, -1]))}
    context, targets = (
        Grouped(
            size,
            starts[role],
            drawn.rows[where[role]],
            drawn.levels[where[role]],
            touched[role, : groups.found[role]],
            drawn.weights[where[role]],
        )
        for role in (CONTEXT, TARGET)
    )
    return context, targets


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
