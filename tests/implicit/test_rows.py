"""Interactions as sparse rows."""

from __future__ import annotations

import numpy as np
from tests.implicit.cases import M, some_rows


def test_weights_of_items_are_those_of_the_row_in_any_order() -> None:
    rows = some_rows(weighted=True)
    rows = rows.with_weights(np.arange(1, len(rows.columns) + 1))
    items = np.random.default_rng(0).permutation(M).astype(np.int32)
    for row in range(len(rows)):
        own = slice(rows.indptr[row], rows.indptr[row + 1])
        held = dict(zip(rows.columns[own].tolist(), rows.weights[own].tolist(), strict=True))
        assert rows.weights_of(row, items).tolist() == [held.get(i, 1.0) for i in items.tolist()]
