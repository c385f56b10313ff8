"""Assign roles to the ratings of rows (context or target), and write them to their columns.

Every row has its own stream of random numbers, a function of (seed, step, row) alone, and a rating
takes the number of its place in the row. So a batch is the same for any number of threads, and for
any number of processes that hold some columns of each row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import inlined, internal, kernel
from cfnade.kernels.simd import data_pointer, offset
from cfnade.kernels.threads import BarrierPoint, barrier_wait

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

TARGET, CONTEXT, DROPPED = range(3)
"""The roles of a rating in a batch."""


class WholeRows(NamedTuple):
    """What a rank that has some columns of each row knows of the whole."""

    places: Array  # (n,) int32: place of each own rating in its whole row, rising in a row
    counts: Array  # (N,) int32: ratings of each whole row


class BatchRows(NamedTuple):
    """The rows chosen from the data; `places` is where each begins in the batch."""

    offsets: Array
    columns: Array
    rows: Array  # (B,)
    places: Array  # (B+1,)


class MarkedRatings(NamedTuple):
    """What becomes of the ratings of the chosen rows, row by row."""

    roles: Array  # (n,) uint8: TARGET, CONTEXT or DROPPED
    counts: Array  # (B,) int64: how many are context


@inlined
def row_pointers(source: Any) -> Any:
    """The same, as pointers."""
    data = data_pointer(source.offsets), data_pointer(source.columns)
    return BatchRows(*data, data_pointer(source.rows), data_pointer(source.places))


@internal
def mix(z: Any) -> Any:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@inlined
def stream_of(seed: Any, step: Any, row: Any) -> Any:
    """Where the random numbers of a row begin; the j-th is mix(stream + j·GAMMA)."""
    return mix(mix(mix(np.uint64(seed) + GAMMA) ^ np.uint64(step)) ^ (np.uint64(row) + GAMMA))


@inlined
def _unit(bits: Any) -> float:
    """A float in [0, 1)."""
    return float(bits >> np.uint64(11)) * 2.0**-53


@inlined
def _selected(stream: Any, j: int, left: int, needed: Any) -> Any:
    """Whether the j-th rating is among the `needed` that are chosen of the `left` ones (0 or 1)."""
    bits = mix(stream + np.uint64(j + 2) * GAMMA) >> np.uint64(32)
    return np.uint64((bits * np.uint64(left)) >> np.uint64(32) < needed)


@inlined
def _size(draw: float, count: int, low: float, small: float) -> int:
    """How many of a row's ratings are context, if that is what is drawn."""
    if low < 0.0:
        return int(draw * count)
    return max(0, int(float(count) ** (draw / small)) - 1)


@inlined
def _rate(draw: float, low: float, high: float, small: float) -> float:
    """The rate at which they are, if that is."""
    draw = (draw - small) / (1.0 - small)
    return low + (high - low) * draw


@inlined
def _mark_exactly(stream: Any, count: int, size: int, roles: Any, first: int) -> None:
    """A random choice of `size` ratings, every such choice equally likely (selection sampling)."""
    needed = np.uint64(size)
    for j in range(count):
        take = _selected(stream, j, count - j, needed)
        roles[first + j] = np.uint8(take)
        needed -= take


@inlined
def mark_freely(stream: Any, count: int, rate: float, roles: Any, first: int) -> int:
    """Each rating is context with probability `rate`. Returns how many are."""
    taken = 0
    limit = np.uint64(rate * 2.0**32)
    for j in range(count):
        take = mix(stream + np.uint64(j + 2) * GAMMA) >> np.uint64(32) < limit
        roles[first + j] = np.uint8(take)
        taken += int(take)
    return taken


@inlined
def mark_freely_at(stream: Any, places: Any, own: int, rate: float, roles: Any, first: int) -> int:
    """`mark_freely` for `own` ratings at these places of their whole row."""
    taken = 0
    limit = np.uint64(rate * 2.0**32)
    for i in range(own):
        number = np.uint64(places[i] + 2)
        take = mix(stream + number * GAMMA) >> np.uint64(32) < limit
        roles[first + i] = np.uint8(take)
        taken += int(take)
    return taken


@kernel
def split_rows(
    lo: int,
    hi: int,
    source: Any,
    seed: int,
    step: int,
    low: float,
    high: float,
    small: float,
    marks: Any,
    tally: Any,
) -> None:
    """Roles of the ratings of batch rows lo..hi (1 context, 0 target) and a tally by column.

    Traffic: the rows' columns once, a byte a rating written; the tally stays in cache.
    """
    n_columns, sums, source = tally.shape[1], data_pointer(tally), row_pointers(source)
    roles, counts = data_pointer(marks.roles), data_pointer(marks.counts)
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        stream = stream_of(seed, step, row)
        draw = _unit(mix(stream + GAMMA))
        if low < 0.0 or draw < small:
            counts[b] = _size(draw, count, low, small)
            _mark_exactly(stream, count, counts[b], roles, place)
        else:
            counts[b] = mark_freely(stream, count, _rate(draw, low, high, small), roles, place)
        for j in range(count):
            role = np.int64(roles[place + j])
            sums[role * n_columns + source.columns[begin + j]] += 1


@inlined
def _mark_exactly_of(
    stream: Any, count: int, size: int, places: Any, own: int, roles: Any, first: int
) -> int:
    """`_mark_exactly` for `own` ratings at these places of a row of `count`. Returns how many of
    them are context."""
    needed, j, taken = np.uint64(size), 0, 0
    for i in range(own):
        take = np.uint64(0)
        while j <= places[i]:
            take = _selected(stream, j, count - j, needed)
            needed -= take
            j += 1
        roles[first + i] = np.uint8(take)
        taken += int(take)
    return taken


@kernel
def split_rows_part(
    lo: int,
    hi: int,
    source: Any,
    whole: Any,
    seed: int,
    step: int,
    low: float,
    high: float,
    small: float,
    marks: Any,
    tally: Any,
) -> None:
    """`mark` for ratings in some columns of rows: what becomes of each is as in the whole row.

    counts are those of the own ratings. Traffic: 8 bytes read and one written a rating.
    """
    n_columns, sums, source = tally.shape[1], data_pointer(tally), row_pointers(source)
    roles, counts, sizes = (
        data_pointer(marks.roles),
        data_pointer(marks.counts),
        data_pointer(whole.counts),
    )
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, own = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        places, count = offset(data_pointer(whole.places), begin), np.int64(sizes[row])
        stream = stream_of(seed, step, row)
        draw = _unit(mix(stream + GAMMA))
        if low < 0.0 or draw < small:
            size = _size(draw, count, low, small)
            counts[b] = _mark_exactly_of(stream, count, size, places, own, roles, place)
        else:
            rate = _rate(draw, low, high, small)
            counts[b] = mark_freely_at(stream, places, own, rate, roles, place)
        for i in range(own):
            role = np.int64(roles[place + i])
            sums[role * n_columns + source.columns[begin + i]] += 1


ROLES = 3


class Tallies(NamedTuple):
    """How many ratings each thread has marked of each role and column; and where the next one is
    written, which every thread finds by itself."""

    counts: Array  # (threads · 3 · M,) int32
    cursors: Array  # the same


class GroupedPlaces(NamedTuple):
    """Where contexts and targets are, by column; each begins with 0."""

    starts: Array  # (2 · (M+1),) int64: targets, contexts
    present: Array  # (2 · M,) int32: the columns that have any
    found: Array  # (2,) int64: how many these are


@internal
def _place(role: int, first: int, gate: Any, tallies: Any, n_columns: int, groups: Any) -> int:
    """Where the ratings of a role are written, from `first` on; one thread notes where columns
    begin. Returns how many ratings of that role there are."""
    counts = offset(data_pointer(tallies.counts), role * n_columns)
    stride = ROLES * n_columns
    end = gate.threads * stride
    cursors = offset(data_pointer(tallies.cursors), gate.thread * stride + role * n_columns)
    starts = offset(data_pointer(groups.starts), role * (n_columns + 1))
    present, place, n = offset(data_pointer(groups.present), role * n_columns), 0, 0
    notes = role != DROPPED and gate.thread == role % gate.threads
    for c in range(n_columns):
        begin = place
        cursors[c] = first + place
        for t in range(c, end, stride):
            place += counts[t]
        if notes:
            starts[c] = begin
            present[n] = c
            n += place > begin
    if notes:
        starts[n_columns] = place
        groups.found[role] = n
    return place


@inlined
def _first_column(part: int, gate: Any, tallies: Any, n_columns: int, total: int) -> int:
    """Where a thread's columns begin, so that each has about as many ratings to write."""
    if part == gate.threads:
        return n_columns
    cursors = offset(data_pointer(tallies.cursors), gate.thread * ROLES * n_columns)
    contexts = offset(cursors, CONTEXT * n_columns)
    targets = offset(cursors, TARGET * n_columns)
    goal = total * part // gate.threads + contexts[0] + targets[0]
    lo, hi = 0, n_columns
    while lo < hi:
        middle = (lo + hi) // 2
        if contexts[middle] + targets[middle] < goal:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inlined
def _clear_tally(gate: Any, tallies: Any, n_columns: int) -> None:
    """This thread's, for the next batch, once nobody reads it."""
    barrier_wait(BarrierPoint(gate.passed, gate.thread, gate.threads, gate.number + 1))
    counts, first = data_pointer(tallies.counts), gate.thread * ROLES * n_columns
    for i in range(first, first + ROLES * n_columns):
        counts[i] = 0


@kernel
def scatter(
    gate: Any,
    source: Any,
    levels: Any,
    marks: Any,
    sizes: Any,
    paper: bool,
    drawn: Any,
    tallies: Any,
    groups: Any,
) -> None:
    """Write all rows' ratings in this thread's share of the columns, once all have been marked.

    Shares of rows would lie between each other, and threads write to the same cache lines. A
    target counts as many as its row (of `sizes` ratings) has over those that are targets, or 1.
    Traffic: 6 bytes read, 9 written a rating; a role and a column read of those of others.
    """
    barrier_wait(gate)
    n_columns = len(groups.present) // 2
    middle = _place(np.int64(CONTEXT), np.int64(0), gate, tallies, n_columns, groups)
    end = middle + _place(np.int64(TARGET), middle, gate, tallies, n_columns, groups)
    if end < len(marks.roles):  # they are written too, behind all others
        _place(np.int64(DROPPED), end, gate, tallies, n_columns, groups)
    lo = _first_column(gate.thread, gate, tallies, n_columns, end)
    hi = _first_column(gate.thread + 1, gate, tallies, n_columns, end)
    n_rows, source, roles = len(source.rows), row_pointers(source), data_pointer(marks.roles)
    next_place = offset(data_pointer(tallies.cursors), gate.thread * ROLES * n_columns)
    level_of = data_pointer(levels)
    rows, new_levels, weights = (
        data_pointer(drawn.rows),
        data_pointer(drawn.levels),
        data_pointer(drawn.weights),
    )
    for b in range(n_rows):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        weight = np.float32(sizes[b] / max(1, sizes[b] - marks.counts[b]) if paper else 1.0)
        for j in range(count):
            column = source.columns[begin + j]
            if lo <= column < hi:
                c = np.int64(roles[place + j]) * n_columns + column
                p = next_place[c]
                next_place[c] = p + 1
                rows[p] = b
                new_levels[p] = level_of[begin + j]
                weights[p] = weight
    _clear_tally(gate, tallies, n_columns)


def no_tallies(threads: int, n_columns: int) -> Tallies:
    numbers = threads * ROLES * n_columns
    return Tallies(np.zeros(numbers, np.int32), np.empty(numbers, np.int32))
