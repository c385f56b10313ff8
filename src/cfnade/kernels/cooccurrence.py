"""How often items are picked together: XᵀX of ragged picks, dense, or the largest parts of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import inner, kernel
from cfnade.kernels.likeliest import least_of_largest
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.ragged_sums import transposed
from cfnade.kernels.threads import run, thread_count


@inner
def _count_row(i: int, by_item: Any, by_person: Any, counts: Any) -> None:
    """counts[j] += Σ_u w_ui w_uj for every j."""
    starts, people, of_people = by_item
    offsets, columns, weights = by_person
    for p in range(starts[i], starts[i + 1]):
        own = of_people[p]
        for q in range(offsets[people[p]], offsets[people[p] + 1]):
            counts[columns[q]] += own * weights[q]


@kernel
def _dense_rows(first: int, step: int, by_item: Any, by_person: Any, out: Any) -> None:
    for i in range(first, len(out), step):
        _count_row(i, by_item, by_person, out[i])


@inner
def _least_kept(values: Any, count: int, heap: Any) -> Any:
    """The least of the first `count` values that are kept if there is room for len(heap), and how
    many of those that equal it."""
    least, above = np.float32(-np.inf), 0
    if count > len(heap):
        least = least_of_largest(values, count, heap)
    for m in range(count):
        above += values[m] > least
    return least, len(heap) - above


@kernel
def _sparse_rows(first: int, step: int, by_item: Any, by_person: Any, most: int, out: Any) -> None:
    """The item's own and the `most` largest others, by rising column; -1 behind their end."""
    columns, values = out
    M = len(columns)
    counts, others = np.zeros(M, np.float32), np.empty(M, np.float32)
    heap = np.empty(most, np.float32)
    for i in range(first, M, step):
        _count_row(i, by_item, by_person, counts)
        met, place = np.int64(0), 0  # a literal would make a version of its own below
        for j in range(M):
            if counts[j] != 0 and j != i:
                others[met] = counts[j]
                met += 1
        least, ties = _least_kept(others, met, heap)  # of equal ones the lower columns are kept
        for j in range(M):
            equal = j != i and counts[j] == least
            if counts[j] != 0 and (j == i or counts[j] > least or (equal and ties > 0)):
                ties -= equal
                columns[i, place], values[i, place] = j, counts[j]
                place += 1
            counts[j] = 0.0


def _sides(offsets: Array, columns: Array, weights: Array, M: int) -> tuple[Any, Any]:
    rows = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    by_item = transposed(rows, columns, weights, M)
    return by_item, tuple(map(frozen, (offsets, columns, weights)))


def co_picks(
    offsets: Array, columns: Array, weights: Array, M: int, *, threads: int | None = None
) -> Array:
    """XᵀX of people's picks. Returns (M, M) float32."""
    by_item, by_person = _sides(offsets, columns, weights, M)
    out, count = np.zeros((M, M), np.float32), thread_count(threads)
    # Popular items take longest; every n-th item for each of n threads spreads them.
    run(_dense_rows, [(first, count, by_item, by_person, out) for first in range(count)])
    return out


def largest_co_picks(
    offsets: Array,
    columns: Array,
    weights: Array,
    M: int,
    *,
    most: int,
    threads: int | None = None,
) -> tuple[Array, Array]:
    """The same where M² numbers do not fit: of each item its own and the `most` largest others.

    Returns columns (M, most + 1), rising and -1 behind their end, and values.
    """
    by_item, by_person = _sides(offsets, columns, weights, M)
    out = np.full((M, most + 1), -1, np.int32), np.zeros((M, most + 1), np.float32)
    count = thread_count(threads)
    parts = [(first, count, by_item, by_person, most, out) for first in range(count)]
    run(_sparse_rows, parts)
    return out


@inner
def _choose_neighbours(i: int, columns: Any, values: Any, memory: Any, of: Any, to: Any) -> int:
    """The len(of) columns with the largest values in line i, itself left out, rising; of equal ones
    the lower. Returns how many there are; `to` gets their values."""
    others, heap = memory
    met, kept = np.int64(0), 0
    for q in range(columns.shape[1]):
        if columns[i, q] >= 0 and columns[i, q] != i:
            others[met] = values[i, q]
            met += 1
    least, ties = _least_kept(others, met, heap)
    for q in range(columns.shape[1]):
        j, value = columns[i, q], values[i, q]
        if j >= 0 and j != i and (value > least or (value == least and ties > 0)):
            ties -= value == least
            of[kept], to[kept] = j, value
            kept += 1
    return kept


@kernel
def _systems(
    items: Any, columns: Any, values: Any, ridge: Any, of: Any, grams: Any, targets: Any
) -> None:
    """For each item its neighbours `of`, their counts with each other, and with the item."""
    n, place = of.shape[1], np.full(len(columns), -1, np.int64)
    memory = np.empty(columns.shape[1], np.float32), np.empty(n, np.float32)
    for b in range(len(items)):
        kept = _choose_neighbours(items[b], columns, values, memory, of[b], targets[b])
        for a in range(kept):
            place[of[b, a]] = a
        for a in range(n):
            j = of[b, a]
            if j < 0:
                grams[b, a, a] = 1.0
                continue
            for q in range(columns.shape[1]):
                k = columns[j, q]
                if k < 0:
                    break
                if place[k] >= 0:  # a count that either of two kept holds for both
                    grams[b, a, place[k]] = values[j, q]
                    grams[b, place[k], a] = values[j, q]
            grams[b, a, a] += ridge[0] + ridge[1] * grams[b, a, a]
        for a in range(kept):
            place[of[b, a]] = -1


def neighbour_systems(
    items: Array, columns: Array, values: Array, n: int, penalty: float, doubt: float = 0.0
) -> tuple[Array, Array, Array]:
    """Of each item the n others that it is picked with most, and their regression.

    columns and values are those of largest_co_picks. Returns neighbours (b, n), -1 where there are
    fewer, the regression's matrices (b, n, n) with the penalty and `doubt` times themselves added
    to their diagonals, and its right sides (b, n).
    """
    b = len(items)
    of, grams = np.full((b, n), -1, np.int32), np.zeros((b, n, n), np.float32)
    targets = np.zeros((b, n), np.float32)
    _systems(items, columns, values, (penalty, doubt), of, grams, targets)
    return of, grams, targets
