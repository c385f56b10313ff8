"""Which ratings of a row are context, which are targets.

Every row has its own stream of random numbers, a function of (seed, step, row) alone, and a rating
takes the number of its place in the row. So a batch is the same for any number of threads, and for
any number of ranks that have some columns of each row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.compiled import glue, inner, kernel
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import address, beyond

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

TARGET, CONTEXT, DROPPED = range(3)
"""The roles of a rating in a batch."""


class WholeRows(NamedTuple):
    """What a rank that has some columns of each row knows of the whole."""

    places: Array  # (n,) int32: place of each own rating in its whole row, rising in a row
    counts: Array  # (N,) int32: ratings of each whole row


class ChosenRows(NamedTuple):
    """The rows chosen from the data; `places` is where each begins in the batch."""

    offsets: Array
    columns: Array
    rows: Array  # (B,)
    places: Array  # (B+1,)


class MarkedRatings(NamedTuple):
    """What becomes of the ratings of the chosen rows, row by row."""

    roles: Array  # (n,) uint8: TARGET, CONTEXT or DROPPED
    counts: Array  # (B,) int64: how many are context


@glue
def bare_rows(source: Any) -> Any:
    """The same, as pointers."""
    data = address(source.offsets), address(source.columns)
    return ChosenRows(*data, address(source.rows), address(source.places))


@inner
def mix(z: Any) -> Any:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@glue
def stream_of(seed: Any, step: Any, row: Any) -> Any:
    """Where the random numbers of a row begin; the j-th is mix(stream + j·GAMMA)."""
    return mix(mix(mix(np.uint64(seed) + GAMMA) ^ np.uint64(step)) ^ (np.uint64(row) + GAMMA))


@glue
def _unit(bits: Any) -> float:
    """A float in [0, 1)."""
    return float(bits >> np.uint64(11)) * 2.0**-53


@glue
def _selected(stream: Any, j: int, left: int, needed: Any) -> Any:
    """Whether the j-th rating is among the `needed` that are chosen of the `left` ones (0 or 1)."""
    bits = mix(stream + np.uint64(j + 2) * GAMMA) >> np.uint64(32)
    return np.uint64((bits * np.uint64(left)) >> np.uint64(32) < needed)


@glue
def _size(draw: float, count: int, low: float, small: float) -> int:
    """How many of a row's ratings are context, if that is what is drawn."""
    if low < 0.0:
        return int(draw * count)
    return max(0, int(float(count) ** (draw / small)) - 1)


@glue
def _rate(draw: float, low: float, high: float, small: float) -> float:
    """The rate at which they are, if that is."""
    draw = (draw - small) / (1.0 - small)
    return low + (high - low) * draw


@glue
def _mark_exactly(stream: Any, count: int, size: int, roles: Any, first: int) -> None:
    """A random choice of `size` ratings, every such choice equally likely (selection sampling)."""
    needed = np.uint64(size)
    for j in range(count):
        take = _selected(stream, j, count - j, needed)
        roles[first + j] = np.uint8(take)
        needed -= take


@glue
def mark_freely(stream: Any, count: int, rate: float, roles: Any, first: int) -> int:
    """Each rating is context with probability `rate`. Returns how many are."""
    taken = 0
    limit = np.uint64(rate * 2.0**32)
    for j in range(count):
        take = mix(stream + np.uint64(j + 2) * GAMMA) >> np.uint64(32) < limit
        roles[first + j] = np.uint8(take)
        taken += int(take)
    return taken


@glue
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
def mark(
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
    n_columns, sums, source = tally.shape[1], address(tally), bare_rows(source)
    roles, counts = address(marks.roles), address(marks.counts)
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


@glue
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
def mark_part(
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
    n_columns, sums, source = tally.shape[1], address(tally), bare_rows(source)
    roles, counts, sizes = address(marks.roles), address(marks.counts), address(whole.counts)
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, own = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        places, count = beyond(address(whole.places), begin), np.int64(sizes[row])
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
