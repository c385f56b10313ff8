"""The best of all items by expected rating."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.data.rows import IndexArray

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def best(means: FloatArray, n: int, excluded: IndexArray) -> IntArray:
    """Indices of the n highest means, highest first, without those excluded. Returns (≤ n,).

    Of equal ones the lower index comes first, so the list never depends on chance.
    """
    allowed = np.ones(len(means), bool)
    allowed[excluded] = False
    candidates = np.flatnonzero(allowed)
    if n < len(candidates):
        # Keep all that equal the n-th, so that the tie is broken by index alone.
        threshold = np.partition(means[candidates], len(candidates) - n)[len(candidates) - n]
        candidates = candidates[means[candidates] >= threshold]
    order = np.lexsort((candidates, -means[candidates]))
    return candidates[order][:n]
