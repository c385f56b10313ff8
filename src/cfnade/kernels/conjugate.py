"""Many ridge regressions on the rows of one table, by conjugate gradients, in single floats.

Row r, whose entries p have weights w_p and name the table's rows f_p, solves

    (diag(base + ridge_r) + Σ_p w_p f_p f_pᵀ) x = Σ_p w_p f_p

The diagonal is the preconditioner. Where it holds α FᵀF, of which the entries are a part, no
eigenvalue is above 1 + w/α, whatever the table: some ten steps reach the precision of single
floats, and a step takes D operations an entry where a factorisation takes D².
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import kernel, loose_inner
from cfnade.kernels.memory import Array, frozen
from cfnade.kernels.ragged_sums import shares_of_rows
from cfnade.kernels.threads import run

_CLOSE = 1e-12
"""Of the residual's square: what is left when it ends."""


@loose_inner
def _apply(first: int, last: int, columns: Any, weights: Any, table: Any, p: Any, q: Any) -> None:
    """q += Σ w f (f·p) over these entries."""
    for entry in range(first, last):
        row, product = table[columns[entry]], np.float32(0.0)
        for d in range(len(p)):
            product += row[d] * p[d]
        product *= weights[entry]
        for d in range(len(q)):
            q[d] += product * row[d]


@kernel
def _solve_rows(
    lo: int,
    hi: int,
    offsets: Any,
    columns: Any,
    weights: Any,
    table: Any,
    base: Any,
    ridges: Any,
    out: Any,
) -> None:
    """out[r] = x of the rows lo to hi. Traffic: the entries' rows of the table, once a step.

    Not loose: the compiler keeps two versions of such loops, for arrays that may overlap and that
    cannot, and loose ones would add up in two orders, by where arrays happen to lie.
    """
    D = table.shape[1]
    inverse, rest, step, moved = (
        np.empty(D, np.float32),
        np.empty(D, np.float32),
        np.empty(D, np.float32),
        np.empty(D, np.float32),
    )
    for r in range(lo, hi):
        first, last, x, ridge = offsets[r], offsets[r + 1], out[r], ridges[r]
        x[:] = 0.0
        rest[:] = 0.0
        for entry in range(first, last):
            row, weight = table[columns[entry]], weights[entry]
            for d in range(D):
                rest[d] += weight * row[d]
        size = 0.0
        for d in range(D):
            inverse[d] = 1 / (base[d] + ridge)
            step[d] = inverse[d] * rest[d]
            size += rest[d] * step[d]
        enough = _CLOSE * size
        for _ in range(2 * D + 10):
            if size <= enough:
                break
            for d in range(D):
                moved[d] = step[d] / inverse[d]
            _apply(first, last, columns, weights, table, step, moved)
            along = 0.0
            for d in range(D):
                along += step[d] * moved[d]
            far, before, size = np.float32(size / along), size, 0.0
            for d in range(D):
                x[d] += far * step[d]
                rest[d] -= far * moved[d]
                size += rest[d] * rest[d] * inverse[d]
            turn = np.float32(size / before)
            for d in range(D):
                step[d] = inverse[d] * rest[d] + turn * step[d]


def solve_rows(
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
    data = *map(frozen, (offsets, columns, weights, table, base, ridges)), out
    run(_solve_rows, [(*part, *data) for part in shares_of_rows(offsets, threads)])
    return out
