"""Sparse rows: products with tables, XᵀX, and ridge regressions by conjugate gradients.

`solve_ridge_rows` solves for row r, whose entries p have weights w_p and name the table's rows f_p,

    (diag(base + ridge_r) + Σ_p w_p f_p f_pᵀ) x = Σ_p w_p f_p

The diagonal is the preconditioner. Where it holds α FᵀF, of which the entries are a part, no
eigenvalue is above 1 + w/α, whatever the table: some ten steps reach the precision of single
floats, and a step takes D operations an entry where a factorization takes D² (0.04 instead of
0.48 s). Copying strips of a table takes `sum_rows` from 0.72 to 0.50 s (experiments/LOG.md).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.column_groups import counting_sort
from cfnade.kernels.jit import fastmath_internal, internal, kernel
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    load,
    load_masked,
    offset,
    store,
    store_masked,
)
from cfnade.kernels.threads import run_parallel, thread_count

MIN_PARALLEL_ENTRIES = 1_000
"""Up to so many entries are summed on the calling thread."""

_STRIP = 4 * LANES  # columns of a table that are summed together, in registers
_MIN_ENTRIES_PER_ROW = 2  # of a table, from which on copying strips of it saves time


@internal
def _copy_strip(table, M, width, strip):
    """The next columns of a table's M rows, one row of them right behind the other."""
    for row in range(M):
        for lane in range(0, _STRIP, LANES):
            store(strip, row * _STRIP + lane, load(table, row * width + lane))


@kernel
def _add_rows(lo, hi, strip, offsets, columns, weights, table, width, out):
    """out[r] += Σ_p weights[p] · table[columns[p]] for the rows lo to hi; both tables are flat.

    A strip of the table's columns is gone through for all rows before the next one. Where there is
    memory for a copy of it, it lies in cache without gaps, however wide the table is.
    Traffic: one row of the strip an entry, one of the output; for a copy the table once.
    """
    M, copied = len(table) // width, len(strip) > 0
    table, out, strip = data_pointer(table), data_pointer(out), data_pointer(strip)
    strips = width - width % _STRIP
    for first in range(0, strips, _STRIP):
        source, pitch = offset(table, first), width
        if copied:
            _copy_strip(source, M, width, strip)
            source, pitch = strip, _STRIP
        for r in range(lo, hi):
            place = r * width + first
            a, b = load(out, place), load(out, place + LANES)
            c, d = load(out, place + 2 * LANES), load(out, place + 3 * LANES)
            for p in range(offsets[r], offsets[r + 1]):
                begin, weight = columns[p] * pitch, broadcast(table, weights[p])
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
            a = load_masked(out, r * width + first, count)
            for p in range(offsets[r], offsets[r + 1]):
                part = load_masked(table, columns[p] * width + first, count)
                a = a + broadcast(table, weights[p]) * part
            store_masked(out, r * width + first, a, count)


@kernel
def _add_entries(lo, hi, offsets, columns, weights, table, out):
    """The same where the table is sparse."""
    starts, targets, values = table
    for r in range(lo, hi):
        for p in range(offsets[r], offsets[r + 1]):
            for q in range(starts[columns[p]], starts[columns[p] + 1]):
                out[r, targets[q]] += weights[p] * values[q]


def sum_rows(
    offsets: Array, columns: Array, weights: Array, table: Array, *, threads: int | None = None
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
    data = *map(readonly, (offsets, columns, weights, table.reshape(-1))), table.shape[1]
    parts = [
        (lo, hi, np.empty(_strip_size(offsets[hi] - offsets[lo], len(table)), np.float32))
        for lo, hi in shares_of_rows(offsets, threads)
    ]
    run_parallel(_add_rows, [(*part, *data, out.reshape(-1)) for part in parts])


def _strip_size(entries: int, rows: int) -> int:
    """How many numbers are copied for so many entries, 0 if that would not save time."""
    return rows * _STRIP if entries > _MIN_ENTRIES_PER_ROW * rows else 0


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
    sparse = tuple(map(readonly, (starts, targets, values)))
    data = *map(readonly, (offsets, columns, weights)), sparse, out
    run_parallel(_add_entries, [(*part, *data) for part in shares_of_rows(offsets, threads)])
    return out


def shares_of_rows(offsets: Array, threads: int | None) -> list[tuple[int, int]]:
    """Rows for each thread, with as many entries as the others', about; one thread for a few."""
    count = thread_count(threads) if offsets[-1] > MIN_PARALLEL_ENTRIES else 1
    shares = np.linspace(0, offsets[-1] + len(offsets), count + 1)
    bounds = np.searchsorted(offsets + np.arange(len(offsets)), shares).tolist()
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    return list(pairwise(bounds))


def transposed(
    rows: Array, columns: Array, weights: Array, n_columns: int
) -> tuple[Array, Array, Array]:
    """The same entries by column: offsets (M+1,), rows (n,), weights (n,)."""
    offsets, order = counting_sort(columns, n_columns)
    return offsets, rows[order].astype(np.int32), weights[order].astype(np.float32)


@internal
def _add_cooccurrence(i, by_item, by_user, counts):
    """counts[j] += Σ_u w_ui w_uj for every j."""
    starts, users, of_users = by_item
    offsets, columns, weights = by_user
    for p in range(starts[i], starts[i + 1]):
        weight = of_users[p]
        for q in range(offsets[users[p]], offsets[users[p] + 1]):
            counts[columns[q]] += weight * weights[q]


@kernel
def _cooccurrence_rows(first, step, by_item, by_user, out):
    for i in range(first, len(out), step):
        _add_cooccurrence(i, by_item, by_user, out[i])


def by_item_and_user(offsets: Array, columns: Array, weights: Array, M: int) -> tuple[Any, Any]:
    """Return the entries of users' rows by item, and as they are."""
    rows = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    by_item = transposed(rows, columns, weights, M)
    return by_item, tuple(map(readonly, (offsets, columns, weights)))


def cooccurrence(
    offsets: Array, columns: Array, weights: Array, M: int, *, threads: int | None = None
) -> Array:
    """Return XᵀX of interactions by user, (M, M) float32."""
    by_item, by_user = by_item_and_user(offsets, columns, weights, M)
    out, count = np.zeros((M, M), np.float32), thread_count(threads)
    # Popular items take longest; every n-th item for each of n threads spreads them.
    run_parallel(
        _cooccurrence_rows, [(first, count, by_item, by_user, out) for first in range(count)]
    )
    return out


_TOLERANCE = 1e-12
"""Of the residual's square: what is left when it ends."""


@fastmath_internal
def _apply_gram(first, last, columns, weights, table, p, q):
    """q += Σ w f (f·p) over these entries."""
    for entry in range(first, last):
        row, product = table[columns[entry]], np.float32(0.0)
        for d in range(len(p)):
            product += row[d] * p[d]
        product *= weights[entry]
        for d in range(len(q)):
            q[d] += product * row[d]


@kernel
def _solve_ridge_rows(lo, hi, offsets, columns, weights, table, base, ridges, out):
    """out[r] = x of the rows lo to hi. Traffic: the entries' rows of the table, once a step.

    Not fastmath: the compiler keeps two versions of such loops, for arrays that may overlap and for
    others. Fastmath would add up in another order in each, depending on addresses.
    """
    D = table.shape[1]
    inverse = np.empty(D, np.float32)
    residual = np.empty(D, np.float32)
    step = np.empty(D, np.float32)
    moved = np.empty(D, np.float32)
    for r in range(lo, hi):
        first, last, x, ridge = offsets[r], offsets[r + 1], out[r], ridges[r]
        x[:] = 0.0
        residual[:] = 0.0
        for entry in range(first, last):
            row, weight = table[columns[entry]], weights[entry]
            for d in range(D):
                residual[d] += weight * row[d]
        size = 0.0
        for d in range(D):
            inverse[d] = 1 / (base[d] + ridge)
            step[d] = inverse[d] * residual[d]
            size += residual[d] * step[d]
        enough = _TOLERANCE * size
        for _ in range(2 * D + 10):
            if size <= enough:
                break
            for d in range(D):
                moved[d] = step[d] / inverse[d]
            _apply_gram(first, last, columns, weights, table, step, moved)
            along = 0.0
            for d in range(D):
                along += step[d] * moved[d]
            step_length, previous, size = np.float32(size / along), size, 0.0
            for d in range(D):
                x[d] += step_length * step[d]
                residual[d] -= step_length * moved[d]
                size += residual[d] * residual[d] * inverse[d]
            conjugacy = np.float32(size / previous)
            for d in range(D):
                step[d] = inverse[d] * residual[d] + conjugacy * step[d]


def solve_ridge_rows(
    offsets: Array,
    columns: Array,
    weights: Array,
    table: Array,
    base: Array,
    ridges: Array,
    *,
    threads: int | None = None,
) -> Array:
    """x of every ragged row; base (D,) and ridges (rows,) make its diagonal. Returns (rows, D)."""
    out = np.empty((len(offsets) - 1, table.shape[1]), np.float32)
    data = *map(readonly, (offsets, columns, weights, table, base, ridges)), out
    run_parallel(_solve_ridge_rows, [(*part, *data) for part in shares_of_rows(offsets, threads)])
    return out
