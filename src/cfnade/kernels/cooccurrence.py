"""How often items occur together: XᵀX of sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.kernels.compiled import inner, kernel
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
