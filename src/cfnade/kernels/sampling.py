"""Sample batches: part of each row is context, the rest target, both grouped by column.

A block is some users × some items, for a model that reads both sides. Ratings inside the block are
targets. Those users' and those items' ratings outside it are context, thinned by one keep rate per
side and step. So no target is in any context, on either side, and all targets share the contexts of
their row and of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.column_groups import (
    NO_WEIGHTS,
    Cells,
    ColumnGroups,
    counting_sort,
    require_inside,
)
from cfnade.kernels.jit import inlined, kernel
from cfnade.kernels.row_splits import (
    CONTEXT,
    DROPPED,
    ROLES,
    TARGET,
    BatchRows,
    GroupedPlaces,
    MarkedRatings,
    WholeRows,
    mark_freely,
    mark_freely_at,
    no_tallies,
    row_pointers,
    scatter,
    split_rows,
    split_rows_part,
    stream_of,
)
from cfnade.kernels.simd import data_pointer, offset
from cfnade.kernels.threads import Barrier, run_parallel, thread_count


@dataclass(frozen=True)
class GroupedBatch:
    """Some rows, each split into context and targets, grouped by column."""

    context: ColumnGroups
    targets: ColumnGroups
    context_sizes: Array  # (B,) int64: ratings in each row's context, those of other ranks too

    @property
    def size(self) -> int:
        return len(self.context_sizes)

    def context_cells(self) -> Cells:
        """The context row by row, columns rising: row b has context_sizes[b] of them."""
        cells = self.context.cells()
        by_row = np.argsort(cells.rows, kind="stable")
        rows, columns, levels = (part[by_row] for part in cells[:3])
        return Cells(rows, columns, levels, NO_WEIGHTS)

    def target_cells(self) -> Cells:
        """The targets by column, rows as drawn; those of a block in the block's one order."""
        return self.targets.cells()


class Drawn(NamedTuple):
    """A batch being made, by column: contexts before targets."""

    rows: Array  # (n,) int32
    levels: Array  # (n,) uint8
    weights: Array  # (n,) float32


class RowSampler:
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
        self._data = readonly(offsets), readonly(columns), readonly(levels)
        self._how = (-1.0, -1.0, 0.0) if rate is None else (*rate, float(small))
        self._paper = weights == "paper"
        self._threads = thread_count(threads)
        self._n_columns, self._tallies = n_columns, no_tallies(self._threads, n_columns)
        self.whole, self._group = whole and WholeRows(*map(readonly, whole)), group

    def sample(self, rows: Array, *, seed: int, step: int) -> GroupedBatch:
        """Split the given rows at random, anew for every seed and step."""
        if self.whole is None:
            return self.split(rows, split_rows, (seed, step, *self._how))
        return self.split(rows, split_rows_part, (self.whole, seed, step, *self._how))

    def sample_many(self, batches: Sequence[Array], *, seed: int, step: int) -> list[GroupedBatch]:
        """`sample` of some batches, whose steps follow each other, each on a thread of its own.

        Two threads that made one batch together were hardly faster than one alone.
        """
        alone = self._alone[: len(batches)]
        if len(alone) < 2 or self.whole is not None:
            return [self.sample(rows, seed=seed, step=step + n) for n, rows in enumerate(batches)]

        def one(n: int) -> list[GroupedBatch]:
            numbers = range(n, len(batches), len(alone))
            return [alone[n].sample(batches[i], seed=seed, step=step + i) for i in numbers]

        drawn = run_parallel(one, [(n,) for n in range(len(alone))])
        return [drawn[i % len(alone)][i // len(alone)] for i in range(len(batches))]

    @cached_property
    def _alone(self) -> list[RowSampler]:
        """For each thread one that works on it alone, on the same data."""
        return [self._with_threads(1) for _ in range(self._threads)]

    def _with_threads(self, threads: int) -> RowSampler:
        one = copy(self)
        one._threads = threads
        one._tallies = no_tallies(threads, self._n_columns)
        return one

    def split(
        self, rows: Array, marking: Callable[..., None], how: tuple[Any, ...]
    ) -> GroupedBatch:
        """Split the rows by the roles that marking(lo, hi, source, *how, marks, tally) gives."""
        offsets, columns, levels = self._data
        rows = np.array(rows, np.int64)
        require_inside("rows", rows, len(offsets) - 1, "rows")
        sizes = offsets[rows + 1] - offsets[rows]
        places = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=places[1:])
        source, cuts = BatchRows(offsets, columns, rows, places), self._cuts(places)
        n = int(places[-1])
        marks = MarkedRatings(np.empty(n, np.uint8), np.empty(len(rows), np.int64))
        drawn = Drawn(np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.float32))
        groups = self._groups()
        if self.whole is not None:
            sizes = self.whole.counts[rows].astype(np.int64)
        scattered = (source, levels, marks, sizes, self._paper, drawn, self._tallies, groups)
        self._each(cuts, (marking, (source, *how, marks)), scattered, marks.counts)
        return GroupedBatch(*_parts(drawn, groups, len(rows)), marks.counts)

    def _each(
        self, cuts: list[tuple[int, int]], marked: Any, scattered: tuple[Any, ...], counts: Array
    ) -> None:
        """Each thread marks its rows, and writes its columns once all are marked. Ranks tell each
        other in between how many of each row are context."""
        gates, (marking, how) = Barrier(self._threads), marked

        def mark_rows(thread: int, cut: tuple[int, int]) -> None:
            marking(*cut, *how, self._tally(thread))

        def write_columns(thread: int) -> None:
            scatter(gates.point(thread, 1), *scattered)

        def both(thread: int, cut: tuple[int, int]) -> None:
            with gates.release_on_error(thread):
                mark_rows(thread, cut)
                write_columns(thread)

        parts = list(enumerate(cuts))
        try:
            if self.whole is None:
                run_parallel(both, parts)
            else:
                run_parallel(mark_rows, parts)
                self._group.all_reduce(counts)
                run_parallel(write_columns, [(thread,) for thread in range(self._threads)])
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
        starts, present = np.empty(2 * (M + 1), np.int64), np.empty(2 * M, np.int32)
        return GroupedPlaces(starts, present, np.empty(2, np.int64))


def _parts(drawn: Drawn, groups: GroupedPlaces, size: int) -> tuple[ColumnGroups, ColumnGroups]:
    """Contexts and targets of the batch's `size` rows; contexts lie first."""
    starts, present = groups.starts.reshape(2, -1), groups.present.reshape(2, -1)
    middle = int(starts[CONTEXT, -1])
    where = {CONTEXT: slice(middle), TARGET: slice(middle, middle + int(starts[TARGET, -1]))}
    context, targets = (
        ColumnGroups(
            size,
            starts[role],
            drawn.rows[where[role]],
            drawn.levels[where[role]],
            present[role, : groups.found[role]],
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


@dataclass(frozen=True)
class BlockBatch:
    """The same targets from both sides: grouped by item for the user side, by user for the other.

    A side's rows are the block's users (items), its columns all items (users). Targets have one
    order, that of the user side; `order` of a side's targets says where each stands in it.
    """

    users: Array  # (B,) int64
    items: Array  # (B',) int64, rising
    user: GroupedBatch
    item: GroupedBatch

    @property
    def n_targets(self) -> int:
        return len(self.user.targets.rows)


@inlined
def _assign_block_roles(
    place: int, begin: int, count: int, columns: Any, within: Any, roles: Any, sums: Any, n: int
) -> int:
    """Inside the block ratings are targets, outside what was marked. Returns the context's size."""
    n_context = 0
    for j in range(count):
        column, role = columns[begin + j], CONTEXT
        if within[column]:
            role = TARGET
        elif roles[place + j] == 0:
            role = DROPPED
        roles[place + j] = role
        n_context += int(role == CONTEXT)
        sums[role * n + column] += 1
    return n_context


@kernel
def _split_block(
    lo: int,
    hi: int,
    source: Any,
    seed: int,
    step: int,
    rate: float,
    inside: Any,
    marks: Any,
    tally: Any,
) -> None:
    """Roles of the ratings of block rows lo..hi, and a tally by column.

    Traffic: the rows' columns once, a byte a rating written; tally and `inside` stay in cache.
    """
    n_columns, sums, within = tally.shape[1], data_pointer(tally), data_pointer(inside)
    source, roles, counts = (
        row_pointers(source),
        data_pointer(marks.roles),
        data_pointer(marks.counts),
    )
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        mark_freely(stream_of(seed, step, row), count, rate, roles, place)
        counts[b] = _assign_block_roles(
            place, begin, count, source.columns, within, roles, sums, n_columns
        )


@kernel
def _split_block_part(
    lo: int,
    hi: int,
    source: Any,
    whole: Any,
    seed: int,
    step: int,
    rate: float,
    inside: Any,
    marks: Any,
    tally: Any,
) -> None:
    """`_mark_block` for ratings in some columns of rows."""
    n_columns, sums, within = tally.shape[1], data_pointer(tally), data_pointer(inside)
    source, roles, counts = (
        row_pointers(source),
        data_pointer(marks.roles),
        data_pointer(marks.counts),
    )
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        places = offset(data_pointer(whole.places), begin)
        mark_freely_at(stream_of(seed, step, row), places, count, rate, roles, place)
        counts[b] = _assign_block_roles(
            place, begin, count, source.columns, within, roles, sums, n_columns
        )


class BlockPart(NamedTuple):
    """What a rank has of the rows of one side: some columns, by their numbers in the whole."""

    columns: Array  # (C,)
    rows: WholeRows


class BlockSampler:
    """Draws blocks of `columns` items from ratings given by user and by item.

    Both are what `Sampler` takes: (offsets, columns, levels). A keep rate is drawn from `rate` for
    each side and step. parts say which columns of each side these are, if a group shares them;
    the targets of a block's sides are then each rank's own.
    """

    def __init__(
        self,
        by_user: tuple[Array, Array, Array],
        by_item: tuple[Array, Array, Array],
        *,
        columns: int,
        n_levels: int,
        rate: tuple[float, float],
        threads: int | None = None,
        parts: tuple[BlockPart, BlockPart] | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        n_users, n_items = len(by_user[0]) - 1, len(by_item[0]) - 1
        if not 1 <= columns <= n_items:
            raise ModelError(f"columns (={columns}) of a block must lie in 1..{n_items}, the items")
        how: dict[str, Any] = {"n_levels": n_levels, "rate": rate, "weights": "unit"}
        widths, whole = (n_items, n_users), (None, None)
        if parts is not None:
            widths = tuple(max(1, len(part.columns)) for part in parts)  # type: ignore[assignment]
            whole = tuple(part.rows for part in parts)  # type: ignore[assignment]
        how |= {"threads": threads, "group": group}
        self._user = RowSampler(*by_user, n_columns=widths[0], whole=whole[0], **how)
        self._item = RowSampler(*by_item, n_columns=widths[1], whole=whole[1], **how)
        self._sizes, self._columns, self._rate = (n_users, n_items), columns, rate
        self._parts = parts

    def sample(self, users: Array, *, seed: int, step: int) -> BlockBatch:
        """The block of these users, each given once, and of items drawn for the seed and step."""
        users = np.asarray(users, np.int64)
        n_users, n_items = self._sizes
        require_inside("users", users, n_users, "users")
        rng = np.random.default_rng((seed, step))
        items = np.sort(rng.choice(n_items, self._columns, replace=False))
        keep = rng.uniform(*self._rate, 2).tolist()
        # Two streams of random numbers a step, one for each side.
        inside = _membership(n_items, items), _membership(n_users, users)
        if self._parts is not None:
            user, item = self._split_parts(users, items, (seed, 2 * step), keep, inside)
            return BlockBatch(users, items, user, item)
        user = self._user.split(users, _split_block, (seed, 2 * step, keep[0], inside[0]))
        item = self._item.split(items, _split_block, (seed, 2 * step + 1, keep[1], inside[1]))
        by_item, by_user = user.targets, item.targets
        # Items rise in both groupings, so the targets of a user come in the same order.
        _, order = counting_sort(users[by_item.rows], n_users)
        return BlockBatch(
            users,
            items,
            GroupedBatch(
                user.context, by_item._replace(order=np.arange(len(order))), user.context_sizes
            ),
            GroupedBatch(item.context, by_user._replace(order=order), item.context_sizes),
        )

    def _split_parts(
        self,
        users: Array,
        items: Array,
        stream: tuple[int, int],
        keep: list[float],
        inside: tuple[Array, Array],
    ) -> tuple[GroupedBatch, GroupedBatch]:
        """The same of a rank's own columns; each side's targets are in its own order."""
        halves = []
        for number, (sampler, rows) in enumerate(((self._user, users), (self._item, items))):
            part = self._parts[number]  # type: ignore[index]
            own = np.zeros(max(1, len(part.columns)), np.uint8)
            own[: len(part.columns)] = inside[number][part.columns]
            seed, step = stream
            how = (sampler.whole, seed, step + number, keep[number], own)
            batch = sampler.split(rows, _split_block_part, how)
            order = np.arange(len(batch.targets.rows))
            halves.append(replace(batch, targets=batch.targets._replace(order=order)))
        return halves[0], halves[1]


def _membership(size: int, chosen: Array) -> Array:
    """Which of `size` are chosen; a repeated one would be drawn twice."""
    inside = np.zeros(size, np.uint8)
    inside[chosen] = 1
    if int(inside.sum()) != len(chosen):
        raise ModelError("a block's users must be given once each")
    return inside
