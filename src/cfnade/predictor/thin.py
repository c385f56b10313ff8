"""How many ratings an item needs before it is recommended, unless told otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MOST = 20
SHARE = 0.25


def default_min_ratings(counts: IntArray) -> int:
    """At least 1, at most 20; as many as hide no more than a quarter of all ratings.

    counts (items,) are the ratings of each. docs/python.md says why.
    """
    ordered = np.sort(counts)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    for least in range(MOST, 1, -1):
        below = int(np.searchsorted(ordered, least))
        if sums[below] <= SHARE * sums[-1]:
            return least
    return 1
