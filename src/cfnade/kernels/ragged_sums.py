"""Sums of table rows that ragged rows name: a sparse matrix times a dense one, in single floats."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from cfnade.kernels.compiled import inner, kernel
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.simd import LANES, address, beyond, fill, load, load_part, store, store_part
from cfnade.kernels.threads import run, thread_count

FEW = 1_000
"""Up to so many entries are summed on the calling thread."""

_STRIP = 4 * LANES  # columns of a table that are summed together, in registers
_WORTH = 2  # entries for each row of a table, from which on copying strips of it saves time


@inner
def _copy_strip(table: Any, M: int, width: int, strip: Any) -> None:
    """The next columns of a table's M rows, one row of them right behind the other."""
    for row in range(M):
        for lane in range(0, _STRIP, LANES):
            store(strip, row * _STRIP + lane, load(table, row * width + lane))


@kernel
def _add_rows(
    lo: int,
    hi: int,
    strip: Any,
    offsets: Any,
    columns: Any,
    weights: Any,
    table: Any,
    width: int,
    out: Any,
) -> None:
    """out[r] += Σ_p weights[p] · table[columns[p]] for the rows lo to hi; both tables are flat.

    A strip of the table's columns is gone through for all rows before the next one. Where there is
    memory for a copy of it, it lies in cache without gaps, however wide the table is.
    Traffic: one row of the strip an entry, one of the output; for a copy the table once.
    """
    M, copied = len(table) // width, len(strip) > 0
    table, out, strip = address(table), address(out), address(strip)
    strips = width - width % _STRIP
    for first in range(0, strips, _STRIP):
        source, pitch = beyond(table, first), width
        if copied:
            _copy_strip(source, M, width, strip)
            source, pitch = strip, _STRIP
        for r in range(lo, hi):
            place = r * width + first
            a, b = load(out, place), load(out, place + LANES)
            c, d = load(out, place + 2 * LANES), load(out, place + 3 * LANES)
            for p in range(offsets[r], offsets[r + 1]):
                begin, weight = columns[p] * pitch, fill(table, weights[p])
                a = a + weight * load(source, begin)
                b = b + weight * load(source, begin + LANES)
                c = c + weight * load(source, begin + 2 * LANES)
                d = d + weight * load(source, begin + 3 * LANES)
            store(out, place, a)
            store(out, place + LANES, b)
            store(out, place + 2 * LANES, c)
            store(out, place + 3 * LANES, d)
    for first in range(strips, width, LANES):
        count = min(LANES, width - first)
        for r in range(lo, hi):
            a = load_part(out, r * width + first, count)
            for p in range(offsets[r], offsets[r + 1]):
                part = load_part(table, columns[p] * width + first, count)
                a = a + fill(table, weights[p]) * part
            store_part(out, r * width + first, a, count)


@kernel
def _transpose(rows: Any, columns: Any, weights: Any, starts: Any, out: Any) -> None:
    """Counting sort by column; starts (M+1,) hold where each column begins and are used up."""
    of_rows, of_weights = out
    for p in range(len(columns)):
        place = starts[columns[p]]
        of_rows[place], of_weights[place] = rows[p], weights[p]
        starts[columns[p]] = place + 1


@kernel
def _add_entries(
    lo: int, hi: int, offsets: Any, columns: Any, weights: Any, table: Any, out: Any
) -> None:
    """The same where the table is sparse."""
    starts, targets, values = table
    for r in range(lo, hi):
        for p in range(offsets[r], offsets[r + 1]):
            for q in range(starts[columns[p]], starts[columns[p] + 1]):
                out[r, targets[q]] += weights[p] * values[q]


def sum_rows(
    offsets: Array,
    columns: Array,
    weights: Array,
    table: Array,
    *,
    threads: int | None = None,
) -> Array:
    """Σ weights[p] · table[columns[p]] over each ragged row. Returns (rows, width) float32."""
    out = np.zeros((len(offsets) - 1, table.shape[1]), np.float32)
    add_rows(offsets, columns, weights, table, out, threads=threads)
    return out


def add_rows(
    offsets: Array,
    columns: Array,
    weights: Array,
    table: Array,
    out: Array,
    *,
    threads: int | None = None,
) -> None:
    """The same, added to what out (rows, width) holds."""
    data = *map(frozen, (offsets, columns, weights, table.reshape(-1))), table.shape[1]
    parts = [
        (lo, hi, np.empty(_strip_size(offsets[hi] - offsets[lo], len(table)), np.float32))
        for lo, hi in shares_of_rows(offsets, threads)
    ]
    run(_add_rows, [(*part, *data, out.reshape(-1)) for part in parts])


def _strip_size(entries: int, rows: int) -> int:
    """How many numbers are copied for so many entries, 0 if that would not save time."""
    return rows * _STRIP if entries > _WORTH * rows else 0


def add_entries(
    offsets: Array,
    columns: Array,
    weights: Array,
    starts: Array,
    targets: Array,
    values: Array,
    *,
    threads: int | None = None,
) -> Array:
    """The same of a sparse square table: row j has values at its targets. (rows, M) float32."""
    out = np.zeros((len(offsets) - 1, len(starts) - 1), np.float32)
    sparse = tuple(map(frozen, (starts, targets, values)))
    data = *map(frozen, (offsets, columns, weights)), sparse, out
    run(_add_entries, [(*part, *data) for part in shares_of_rows(offsets, threads)])
    return out


def shares_of_rows(offsets: Array, threads: int | None) -> list[tuple[int, int]]:
    """Rows for each thread, with as many entries as the others', about; one thread for a few."""
    count = thread_count(threads) if offsets[-1] > FEW else 1
    shares = np.linspace(0, offsets[-1] + len(offsets), count + 1)
    bounds = np.searchsorted(offsets + np.arange(len(offsets)), shares).tolist()
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    return list(pairwise(bounds))


def transposed(
    rows: Array, columns: Array, weights: Array, n_columns: int
) -> tuple[Array, Array, Array]:
    """The same entries by column: offsets (M+1,), rows (n,), weights (n,)."""
    offsets = np.zeros(n_columns + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=n_columns), out=offsets[1:])
    out = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)
    _transpose(*map(frozen, (rows, columns, weights)), offsets[:-1].copy(), out)
    return offsets, *out
