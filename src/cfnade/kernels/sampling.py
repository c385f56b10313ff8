"""Sample batches: part of each row is context, the rest target, both grouped by column.

Every row has its own stream of random numbers, a function of (seed, step, row) alone, and a rating
takes the number of its position in the row. So a batch is the same for any number of threads, and
for any number of processes that hold some columns of each row.

One thread makes a batch: two took 867-1018 µs for one's 1003-1022 (experiments/LOG.md). Threads
sample several batches at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.column_groups import NO_WEIGHTS, Cells, ColumnGroups, require_inside
from cfnade.kernels.jit import inlined, internal, kernel
from cfnade.kernels.simd import data_pointer, offset
from cfnade.kernels.threads import run_parallel, thread_count

TARGET, CONTEXT, DROPPED = range(3)
"""Roles of a rating in a batch."""

_ROLES = 3
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class PartialRows(NamedTuple):
    """The whole rows of which this process holds some columns."""

    positions: Array  # (n,) int32: position of each rating here in its whole row, rising in a row
    sizes: Array  # (N,) int32: ratings of each whole row


class SourceRows(NamedTuple):
    """Ratings row by row; positions and sizes are empty unless only some columns are here."""

    offsets: Array  # (N+1,) int64
    columns: Array  # (n,) int32
    levels: Array  # (n,) uint8
    positions: Array  # (n,) int32
    sizes: Array  # (N,) int32


class BatchRows(NamedTuple):
    """The rows of a batch, and where the ratings of each begin in it."""

    numbers: Array  # (B,) int64
    starts: Array  # (B+1,) int64


class Roles(NamedTuple):
    """Roles of the ratings of a batch, row by row."""

    roles: Array  # (n,) uint8
    context_sizes: Array  # (B,) int64
    tally: Array  # (3 · M,) int32: ratings of each role and column


class GroupedRatings(NamedTuple):
    """Ratings written by column: contexts, then targets."""

    starts: Array  # (2 · (M+1),) int64: targets, contexts; each begins with 0
    present: Array  # (2 · M,) int32: columns with at least one rating
    counts: Array  # (2,) int64: how many columns these are
    rows: Array  # (n,) int32
    levels: Array  # (n,) uint8
    weights: Array  # (n,) float32


# -- kernels ---------------------------------------------------------------------------------------


@inlined
def _source_pointers(source):
    return SourceRows(
        data_pointer(source.offsets),
        data_pointer(source.columns),
        data_pointer(source.levels),
        data_pointer(source.positions),
        data_pointer(source.sizes),
    )


@internal
def mix_bits(z):
    """Scramble 64 bits (the finalizer of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@inlined
def _stream(seed, step, row):
    """Start of a row's random numbers; the j-th is mix_bits(stream + j·GAMMA)."""
    return mix_bits(
        mix_bits(mix_bits(np.uint64(seed) + _GAMMA) ^ np.uint64(step)) ^ (np.uint64(row) + _GAMMA)
    )


@inlined
def _random_bits(stream, position):
    """32 random bits of the rating at a position of its row."""
    return mix_bits(stream + np.uint64(position + 2) * _GAMMA) >> np.uint64(32)


@inlined
def _unit(bits):
    """A float in [0, 1)."""
    return float(bits >> np.uint64(11)) * 2.0**-53


@inlined
def _context_size(draw, count, low, small):
    if low < 0.0:
        return int(draw * count)
    return max(0, int(float(count) ** (draw / small)) - 1)


@inlined
def _keep_rate(draw, low, high, small):
    draw = (draw - small) / (1.0 - small)
    return low + (high - low) * draw


@internal
def _choose_exactly(stream, count, size, positions, partial, n_ratings, roles):
    """Select `size` of a row's `count` ratings, every choice equally likely (selection sampling).

    Returns how many of the ratings here these are.
    """
    needed, j, n_context = np.uint64(size), 0, 0
    for i in range(n_ratings):
        end = positions[i] + 1 if partial else i + 1
        take = np.uint64(0)
        while j < end:
            draw = (_random_bits(stream, j) * np.uint64(count - j)) >> np.uint64(32)
            take = np.uint64(draw < needed)
            needed -= take
            j += 1
        roles[i] = np.uint8(take)
        n_context += int(take)
    return n_context


@internal
def _choose_freely(stream, rate, positions, partial, n_ratings, roles):
    """Make each rating context with probability `rate`. Returns how many are."""
    limit, n_context = np.uint64(rate * 2.0**32), 0
    for i in range(n_ratings):
        take = _random_bits(stream, positions[i] if partial else i) < limit
        roles[i] = np.uint8(take)
        n_context += int(take)
    return n_context


@kernel
def split_rows(source, rows, seed, step, low, high, small, split):
    """Roles of the ratings of rows (1 context, 0 target), and a tally by column.

    Traffic: the rows' columns once, a byte a rating written; the tally stays in cache.
    """
    n_rows, n_columns = len(rows.numbers), len(split.tally) // _ROLES
    partial, tally = len(source.sizes) > 0, data_pointer(split.tally)
    source, all_roles = _source_pointers(source), data_pointer(split.roles)
    for b in range(n_rows):
        row, begin = rows.numbers[b], source.offsets[rows.numbers[b]]
        n_ratings = source.offsets[row + 1] - begin
        count = np.int64(source.sizes[row]) if partial else n_ratings
        positions, roles = offset(source.positions, begin), offset(all_roles, rows.starts[b])
        stream = _stream(seed, step, row)
        draw = _unit(mix_bits(stream + _GAMMA))
        if low < 0.0 or draw < small:
            size = _context_size(draw, count, low, small)
            n_context = _choose_exactly(stream, count, size, positions, partial, n_ratings, roles)
        else:
            rate = _keep_rate(draw, low, high, small)
            n_context = _choose_freely(stream, rate, positions, partial, n_ratings, roles)
        split.context_sizes[b] = n_context
        for i in range(n_ratings):
            tally[np.int64(roles[i]) * n_columns + source.columns[begin + i]] += 1


@kernel
def split_block(source, rows, seed, step, rate, inside, split):
    """Roles of the ratings of a block's rows, and a tally by column: targets inside the block.

    Traffic: as `split_rows`; `inside` (M,) stays in cache.
    """
    n_rows, n_columns = len(rows.numbers), len(split.tally) // _ROLES
    partial, tally = len(source.sizes) > 0, data_pointer(split.tally)
    source, all_roles = _source_pointers(source), data_pointer(split.roles)
    in_block = data_pointer(inside)
    for b in range(n_rows):
        row, begin = rows.numbers[b], source.offsets[rows.numbers[b]]
        n_ratings = source.offsets[row + 1] - begin
        positions, roles = offset(source.positions, begin), offset(all_roles, rows.starts[b])
        _choose_freely(_stream(seed, step, row), rate, positions, partial, n_ratings, roles)
        n_context = 0
        for i in range(n_ratings):
            column, role = source.columns[begin + i], CONTEXT
            if in_block[column]:
                role = TARGET
            elif roles[i] == 0:
                role = DROPPED
            roles[i] = role
            n_context += int(role == CONTEXT)
            tally[role * n_columns + column] += 1
        split.context_sizes[b] = n_context


@internal
def _column_starts(role, first, n_columns, tally, out):
    """Note where columns begin; the tally of a role becomes the places to write to, from `first`.

    Returns the number of ratings with that role.
    """
    cursors = offset(tally, role * n_columns)
    starts = offset(data_pointer(out.starts), role * (n_columns + 1))
    present, place, n = offset(data_pointer(out.present), role * n_columns), 0, 0
    for c in range(n_columns):
        begin = place
        place += cursors[c]
        cursors[c] = first + begin
        starts[c] = begin
        present[n] = c
        n += place > begin
    starts[n_columns] = place
    out.counts[role] = n
    return place


@kernel
def write_columns(source, rows, split, sizes, row_weights, out):
    """Write the ratings of rows to their columns.

    A target counts the ratings of its row (`sizes`) over those that are targets, or 1.
    Traffic: 6 bytes read, 9 written a rating.
    """
    n_rows = len(rows.numbers)
    n_columns = len(out.present) // 2
    next_place = data_pointer(split.tally)
    middle = _column_starts(np.int64(CONTEXT), np.int64(0), n_columns, next_place, out)
    _column_starts(np.int64(TARGET), middle, n_columns, next_place, out)
    source, roles = _source_pointers(source), data_pointer(split.roles)
    out_rows = data_pointer(out.rows)
    levels = data_pointer(out.levels)
    weights = data_pointer(out.weights)
    for b in range(n_rows):
        row, place = rows.numbers[b], rows.starts[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        n_targets = max(1, sizes[b] - split.context_sizes[b])
        weight = np.float32(sizes[b] / n_targets if row_weights else 1.0)
        for j in range(count):
            role = np.int64(roles[place + j])
            if role == DROPPED:
                continue
            cell = role * n_columns + source.columns[begin + j]
            p = next_place[cell]
            next_place[cell] = p + 1
            out_rows[p] = b
            levels[p] = source.levels[begin + j]
            weights[p] = weight


# -- batches ---------------------------------------------------------------------------------------


class GroupedBatch(NamedTuple):
    """Some rows, each split into context and targets, grouped by column."""

    context: ColumnGroups
    targets: ColumnGroups
    context_sizes: Array  # (B,) int64: ratings in each row's context, over all processes

    @property
    def size(self) -> int:
        return len(self.context_sizes)

    def context_cells(self) -> Cells:
        """Return the context row by row, columns rising: row b has context_sizes[b] of them."""
        cells = self.context.cells()
        by_row = np.argsort(cells.rows, kind="stable")
        rows, columns, levels = (part[by_row] for part in cells[:3])
        return Cells(rows, columns, levels, NO_WEIGHTS)

    def target_cells(self) -> Cells:
        """Return the targets by column, rows as sampled; those of a block in the block's order."""
        return self.targets.cells()


class RowSampler:
    """Sample batches of rows.

    Args:
        offsets: Where each row begins, (N+1,) int64.
        columns: Column of each rating, (n,) int32.
        levels: Level of each rating, (n,) uint8.
        n_columns: Number of columns (M).
        n_levels: Number of levels (K).
        rate: None: a row of D ratings has 0..D-1 of them, uniformly, as context (the paper's split
            point). (low, high): each row draws a rate from that range, and each rating is context
            with this probability.
        small: Share of rows that draw a context size in 0..D-1 instead, uniformly in its logarithm.
        weights: "paper": a target counts D over the targets of its row (Eq. 19); "unit": 1.
        threads: Threads of `sample_many`; None is torch's number.
        partial: What is known of the whole rows, if these are the ratings in some columns.
        group: The processes that hold the other columns.
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
        partial: PartialRows | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        _check(offsets, columns, levels, rate, weights)
        require_inside("columns", columns, n_columns, "columns")
        require_inside("levels", levels, n_levels, "levels")
        partial_arrays = partial or (np.empty(0, np.int32), np.empty(0, np.int32))
        self._source = SourceRows(*map(readonly, (offsets, columns, levels, *partial_arrays)))
        self._rates = (-1.0, -1.0, 0.0) if rate is None else (*rate, float(small))
        self._row_weights = weights == "paper"
        self._threads, self._n_columns = thread_count(threads), n_columns
        self._is_partial, self._group = partial is not None, group

    def sample(self, rows: Array, *, seed: int, step: int) -> GroupedBatch:
        """Split these rows on this thread; depends on (seed, step, row, position) only."""
        return self.split(rows, split_rows, (seed, step, *self._rates))

    def sample_many(self, batches: Sequence[Array], *, seed: int, step: int) -> list[GroupedBatch]:
        """Sample consecutive steps, one batch per thread at a time."""
        threads = 1 if self._is_partial else min(self._threads, len(batches))

        def sample_some(first: int) -> list[GroupedBatch]:
            numbers = range(first, len(batches), threads)
            return [self.sample(batches[n], seed=seed, step=step + n) for n in numbers]

        if threads < 2:
            return sample_some(0) if batches else []
        sampled = run_parallel(sample_some, [(first,) for first in range(threads)])
        return [sampled[n % threads][n // threads] for n in range(len(batches))]

    def split(
        self, rows: Array, kernel: Callable[..., None], arguments: tuple[Any, ...]
    ) -> GroupedBatch:
        """Split rows by the roles that kernel(source, rows, *arguments, split) assigns."""
        source, M = self._source, self._n_columns
        numbers = np.array(rows, np.int64)
        require_inside("rows", numbers, len(source.offsets) - 1, "rows")
        sizes = source.offsets[numbers + 1] - source.offsets[numbers]
        batch = BatchRows(numbers, np.concatenate([[0], np.cumsum(sizes)]))
        n = int(batch.starts[-1])
        split = Roles(
            np.empty(n, np.uint8), np.empty(len(rows), np.int64), np.zeros(_ROLES * M, np.int32)
        )
        kernel(source, batch, *arguments, split)
        if self._is_partial:
            sizes = source.sizes[numbers].astype(np.int64)
            self._group.all_reduce(split.context_sizes)
        out = GroupedRatings(
            np.empty(2 * (M + 1), np.int64),
            np.empty(2 * M, np.int32),
            np.empty(2, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.uint8),
            np.empty(n, np.float32),
        )
        write_columns(source, batch, split, sizes, self._row_weights, out)
        return GroupedBatch(*_groups(out, len(rows)), split.context_sizes)


def _groups(out: GroupedRatings, n_rows: int) -> tuple[ColumnGroups, ColumnGroups]:
    """Contexts and targets of the batch's rows."""
    starts, present = out.starts.reshape(2, -1), out.present.reshape(2, -1)
    middle = int(starts[CONTEXT, -1])
    context, targets = slice(middle), slice(middle, middle + int(starts[TARGET, -1]))
    context_columns, target_columns = (
        present[role, : out.counts[role]] for role in (CONTEXT, TARGET)
    )
    return (
        ColumnGroups(
            n_rows, starts[CONTEXT], out.rows[context], out.levels[context], context_columns
        ),
        ColumnGroups(
            n_rows,
            starts[TARGET],
            out.rows[targets],
            out.levels[targets],
            target_columns,
            out.weights[targets],
        ),
    )


def _check(
    offsets: Array, columns: Array, levels: Array, rate: tuple[float, float] | None, weights: str
) -> None:
    """Raise a ModelError for arrays and options that the kernels would misread."""
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
