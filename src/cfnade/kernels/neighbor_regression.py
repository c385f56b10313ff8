"""Regressions of each item on the items that it occurs with most, for catalogs of any size.

Of XᵀX a line per item is kept: its own count and those of the `n_kept` items with the largest
cosine. Item j is then regressed on its m nearest ones by a Cholesky factorization of its own, in
memory that does not grow with the catalog.
"""

from __future__ import annotations

import numpy as np

from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.jit import fastmath_internal, internal, kernel
from cfnade.kernels.sparse import by_item_and_user
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade.kernels.top_k import nth_largest_of_row

_RIDGE_FACTOR, _MAX_TRIES = 1.5, 20
"""Growth of a diagonal: a matrix may be indefinite because small counts are not kept."""


@kernel
def _gram_lines(first, step, by_item, by_user, norms, n_kept, out):
    """The `n_kept` columns with the largest cosine, by rising column; -1 behind their end."""
    starts, users, of_users = by_item
    offsets, columns, weights = by_user
    lines, values = out
    M = len(lines)
    counts, cosines = np.zeros(M, np.float32), np.empty(M, np.float32)
    touched, heap = np.empty(M, np.int32), np.empty(n_kept, np.float32)
    for i in range(first, M, step):
        met = 0
        for p in range(starts[i], starts[i + 1]):
            weight = of_users[p]
            for q in range(offsets[users[p]], offsets[users[p] + 1]):
                j = columns[q]
                if counts[j] == 0:
                    touched[met] = j
                    met += 1
                counts[j] += weight * weights[q]
        n_candidates = 0
        for t in range(met):
            if touched[t] != i:
                cosines[n_candidates] = counts[touched[t]] / norms[touched[t]]
                n_candidates += 1
        least, ties = np.float32(-np.inf), 0
        if n_candidates > n_kept:
            least = nth_largest_of_row(cosines, n_candidates, heap)
            above = 0
            for t in range(n_candidates):
                above += cosines[t] > least
            ties = n_kept - above
        rising = np.sort(touched[:met])  # of equal ones the lower columns are kept
        place = 0
        for t in range(met):
            j = rising[t]
            cosine = counts[j] / norms[j]
            equal = j != i and cosine == least
            if j != i and (cosine > least or (equal and ties > 0)):
                ties -= equal
                lines[i, place], values[i, place] = j, counts[j]
                place += 1
            counts[j] = 0.0


def gram_lines(
    offsets: Array, columns: Array, weights: Array, M: int, n_kept: int
) -> tuple[Array, Array, Array]:
    """Return lines (M, n_kept) of XᵀX, rising with -1 at the end, their values, the diagonal."""
    by_item, by_user = by_item_and_user(offsets, columns, weights, M)
    diagonal = np.bincount(columns, np.square(weights, dtype=np.float64), minlength=M)
    norms = np.sqrt(np.maximum(diagonal, 1e-30)).astype(np.float32)
    out = np.full((M, n_kept), -1, np.int32), np.zeros((M, n_kept), np.float32)
    count = thread_count(None)
    run_parallel(
        _gram_lines, [(n, count, by_item, by_user, norms, n_kept, out) for n in range(count)]
    )
    return *out, diagonal.astype(np.float32)


@internal
def _length(line):
    """How many columns a line has."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high) >> 1
        if line[middle] >= 0:
            low = middle + 1
        else:
            high = middle
    return low


@fastmath_internal
def _factorize(matrix, n):
    """Make the lower triangle the Cholesky factor; whether that is possible."""
    for i in range(n):
        for j in range(i + 1):
            total = np.float64(matrix[i, j])
            part = np.float32(0.0)
            for k in range(j):
                part += matrix[i, k] * matrix[j, k]
            total -= part
            if i == j:
                if total <= 0:
                    return False
                matrix[i, i] = np.sqrt(total)
            else:
                matrix[i, j] = total / matrix[j, j]
    return True


@fastmath_internal
def _solve(matrix, n, vector):
    """vector becomes (L Lᵀ)⁻¹ vector."""
    for i in range(n):
        for k in range(i):
            vector[i] -= matrix[i, k] * vector[k]
        vector[i] /= matrix[i, i]
    for i in range(n - 1, -1, -1):
        vector[i] /= matrix[i, i]
        for k in range(i):
            vector[k] -= matrix[i, k] * vector[i]


@internal
def _fill_gram(matrix, items, n, lines, values, diagonal, places):
    """The lower triangle of the chosen items' counts with each other; `places` (M,) are all -1.

    A count that either of two lines kept holds for both. Passes over whole lines: searching them
    for each pair took three times as long on 2,900 items (Steam, m = 100).
    """
    for a in range(n):
        places[items[a]] = a
        matrix[a, :a] = np.float32(0.0)
        matrix[a, a] = diagonal[a]
    for a in range(n):
        i = items[a]
        for p in range(_length(lines[i])):
            b = places[lines[i, p]]
            if b > a:
                matrix[b, a] = values[i, p]
            elif b >= 0:
                matrix[a, b] = values[i, p]
    for a in range(n):
        places[items[a]] = -1


@kernel
def _regressions(first, step, lines, values, diagonal, ridge, m, out):
    """The neighbors of each item, rising, and the weights of their regression."""
    neighbors, weights = out
    M, n_kept = lines.shape
    matrix, ridged = np.empty((m, m), np.float32), np.empty(m, np.float32)
    cosines, target = np.empty(n_kept, np.float32), np.empty(m, np.float32)
    places = np.full(M, -1, np.int32)
    for j in range(first, M, step):
        n_candidates = _length(lines[j])
        for q in range(n_candidates):
            i = lines[j, q]
            cosines[q] = -values[j, q] / np.sqrt(np.maximum(diagonal[i], np.float32(1e-30)))
        n = min(m, n_candidates)
        if n == 0:
            continue
        order = np.argsort(cosines[:n_candidates], kind="mergesort")[:n]
        order.sort()
        for a in range(n):
            neighbors[j, a] = lines[j, order[a]]
            ridged[a] = diagonal[neighbors[j, a]] + ridge[neighbors[j, a]]
        for _ in range(_MAX_TRIES):
            _fill_gram(matrix, neighbors[j], n, lines, values, ridged, places)
            if _factorize(matrix, n):
                for a in range(n):
                    target[a] = values[j, order[a]]
                _solve(matrix, n, target)
                for a in range(n):
                    weights[j, a] = target[a]
                break
            for a in range(n):
                ridged[a] *= _RIDGE_FACTOR


def neighbor_regressions(
    lines: Array, values: Array, diagonal: Array, ridge: Array, m: int
) -> tuple[Array, Array]:
    """Return each item's m neighbors (M, m), -1 behind their end, and their weights (M, m).

    lines, values and the diagonal are those of `gram_lines`; ridge (M,) is added to the diagonal.
    """
    out = np.full((len(lines), m), -1, np.int32), np.zeros((len(lines), m), np.float32)
    data = *map(readonly, (lines, values, diagonal, ridge.astype(np.float32))), m, out
    count = thread_count(None)
    run_parallel(_regressions, [(first, count, *data) for first in range(count)])
    return out
