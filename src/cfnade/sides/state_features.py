"""Rows' states against imagined columns: what a column without weights is folded into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfnade._typing import IntArray
from cfnade.kernels import scoring
from cfnade.sides.directions import Directions, directions, gram, mean_column
from cfnade.sides.side import NOTHING, Array, Row
from cfnade.utils.caching import locked_cached_property

if TYPE_CHECKING:
    from cfnade.sides.state_rows import StateRows

SAMPLE = 2_048
"""Of more rows, so many say how states are spread."""

KEPT = 1 << 15
"""Features of so many rows are kept once they are made."""


def features_of(
    rows: StateRows, table: Array, bias: Array, counts: IntArray, *, mean_only: bool
) -> StateFeatures | None:
    """From the output table of columns with so many training ratings; None: they are too few."""
    if mean_only:
        mean = mean_column(table, bias, counts, shared=rows.shared)
        return None if mean is None else StateFeatures(rows, mean)
    ratings = rows.rows.counts()
    rated = np.flatnonzero(ratings)
    rated = rated[:: max(1, -(-len(rated) // SAMPLE))]
    if not len(rated):
        return None
    spread = gram(rows.states_down(-1, rated, NOTHING), ratings[rated])
    basis = directions(table, bias, counts, spread, shared=rows.shared)
    return None if basis is None else StateFeatures(rows, basis)


class StateFeatures:
    """Features (n, K, 1 + D) of states, by whatever door these come."""

    def __init__(self, rows: StateRows, found: Directions) -> None:
        self._rows, self.variances = rows, found.variances
        self._shape = found.bias.shape
        self._table = found.table.reshape(-1, found.table.shape[2])
        self._bias = found.bias.reshape(-1)

    def some(self, row: Row, columns: IntArray) -> Array:
        states, which = self._rows.states_given(row, columns)
        return self._of(states)[which]

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        if len(self._rows.rows) > KEPT:
            return self._of(self._rows.states_down(column, rows, raters))
        all_rows = len(rows) == len(self._every) - 1 and bool((rows == np.arange(len(rows))).all())
        features = self._every[:-1] if all_rows else self._every[rows]
        held = np.flatnonzero(np.isin(rows, raters.columns)) if column >= 0 else rows[:0]
        if len(held):
            features = features.copy()  # those of all rows are kept as they are
            features[held] = self._of(self._rows.states_down(column, rows[held], raters))
        return features

    def without_each(self, row: Row) -> Array:
        return self._of(self._rows.states_without_each(row))

    def without_levels(self, row: Row) -> Array:
        return self._of(self._rows.states_without_levels(row))

    @locked_cached_property
    def _every(self) -> Array:
        """Of every row as it is known, and last of one of which nothing is."""
        numbers = np.append(np.arange(len(self._rows.rows)), -1)
        return self._of(self._rows.states_down(-1, numbers, NOTHING))

    def _of(self, states: Array) -> Array:
        return scoring.affine(states, self._table, self._bias).reshape(-1, *self._shape)
