"""Posteriors of rows whose ratings lie on several ranks: each adds up its own, one of them solves.

A rank solves its share of the rows. What travels for a row is D (D + 3) / 2 numbers there, and D
back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade.data.csr import CsrRows
from cfnade.distributed.process_group import Array, ProcessGroup
from cfnade.kernels.factor_analysis import add_moments, residual_sums, row_moments
from cfnade.kernels.posterior import (
    Evidence,
    Posteriors,
    RaggedRows,
    lower_products,
    row_sums,
    solve_rows,
    solve_sums,
)

Floats = npt.NDArray[np.float32]

PIECE = 4096
"""Rows of which sums travel at a time."""


def posteriors_of_ranks(rows: RaggedRows, evidence: Evidence, group: ProcessGroup) -> Posteriors:
    """Means and ω of all rows; the factors are those of this rank's share, the rest is blank."""
    B, D = len(rows.offsets) - 1, len(evidence.prior)
    kind = evidence.E.dtype
    sums: Any = np.empty((B, evidence.products.shape[1] + D), kind)
    row_sums(0, B, rows, evidence, sums)
    group.reduce_scatter_rows(torch.from_numpy(sums))
    out = Posteriors(*(np.zeros(shape, kind) for shape in ((B, D, D), (B, D), (B,))))
    solve_sums(*group.row_range(B), sums, evidence, out)
    both = np.concatenate([out.means, out.unknown[:, None]], 1)
    group.all_gather_rows(torch.from_numpy(both))
    return out._replace(means=np.ascontiguousarray(both[:, :-1]), unknown=both[:, -1].copy())


def solved_by_ranks(
    found: Posteriors, slopes: Array, group: ProcessGroup
) -> tuple[Posteriors, Array]:
    """The slopes of all means times Λ⁻¹, and posteriors that leave them as they are."""
    B, D = slopes.shape
    shared = torch.from_numpy(slopes)
    group.reduce_scatter_rows(shared)
    solve_rows(*group.row_range(B), found.factors, slopes)
    group.all_gather_rows(shared)
    solved = np.ascontiguousarray(np.broadcast_to(np.eye(D, dtype=slopes.dtype), (B, D, D)))
    return found._replace(factors=solved), slopes


def expected_of_ranks(
    rows: CsrRows, residuals: Floats, a: Floats, c: Floats, group: ProcessGroup
) -> tuple[Floats, Floats, Floats]:
    """The sums of factor analysis's expectation step, of this rank's columns."""
    M, D = a.shape
    lower = np.empty((M, D * (D + 1) // 2), np.float32)
    lower_products(a, c, lower)
    totals = np.zeros_like(lower), np.zeros_like(a), np.zeros_like(a)
    data, prior = (np.array(rows.offsets), np.array(rows.columns)), np.ones(D, np.float32)
    for first in range(0, len(rows), PIECE):
        sums = np.empty((min(PIECE, len(rows) - first), lower.shape[1] + D), np.float32)
        residual_sums(first, data, residuals, (a, lower), sums)
        shared = torch.from_numpy(sums)
        group.reduce_scatter_rows(shared)
        row_moments(*group.row_range(len(sums)), sums, prior)
        group.all_gather_rows(shared)
        add_moments(first, data, residuals, sums, totals)
    return totals
