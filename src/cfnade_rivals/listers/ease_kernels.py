"""EASE's compiled loop."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(nogil=True, cache=True)
def count_together(
    starts: Any, entries: Any, rows: Any, offsets: Any, columns: Any, out: Any
) -> None:
    """out[i, j] += the people who like i and j, for j from i on. Fills (M, M), the upper half.

    Item i has the entries from starts[i] to starts[i+1]: places in `columns`, each with its row.
    One row of `out` is filled at a time, so that it stays in the cache.
    """
    for i in range(len(starts) - 1):
        row = out[i]
        for p in range(starts[i], starts[i + 1]):
            place = entries[p]
            for q in range(place, offsets[rows[place] + 1]):
                row[columns[q]] += 1
