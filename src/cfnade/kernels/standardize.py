"""Scores of several components on one scale: every row with mean 0 and standard deviation 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from cfnade.kernels.compiled import kernel
from cfnade.kernels.memory import Array
from cfnade.kernels.threads import run, thread_count

_FEW = 16  # rows that are not worth a thread


@kernel
def _add_standardized(lo: int, hi: int, scores: Any, weight: Any, total: Any) -> None:
    M = scores.shape[1]
    for r in range(lo, hi):
        row, out, sums = scores[r], total[r], 0.0
        for i in range(M):
            sums += row[i]
        mean, squares = sums / M, 0.0
        for i in range(M):
            gap = row[i] - mean
            squares += gap * gap
        deviation = np.sqrt(squares / M)
        if deviation <= 1e-9 * abs(mean) or deviation == 0:
            continue  # the component knows nothing of this row
        factor, offset = np.float32(weight / deviation), np.float32(mean)
        for i in range(M):
            out[i] += factor * (row[i] - offset)


def add_standardized(scores: Array, weight: float, total: Array) -> None:
    """Add to total (B, M) the weighted scores (B, M), each row shifted and scaled."""
    count = 1 if len(scores) <= _FEW else thread_count(None)
    bounds = np.linspace(0, len(scores), count + 1).astype(int).tolist()
    run(
        _add_standardized,
        [(lo, hi, scores, weight, total) for lo, hi in pairwise(bounds)],
    )
