"""Answers about rows and columns of any side that turns a row into a state.

A column's score is its output weights times the state. A known cell is scored from the state of its
row without it. Cells of many rows go through threaded kernels; whatever is asked of one row runs
serially on the calling thread and uses no torch, so its bits depend on nothing but the question.
Lists of more than a few rows are matrix products, which are torch's (kernels/scoring.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import NOTHING, Array, Row
from cfnade.components.directions import Directions, directions, gram, mean_column
from cfnade.data.csr import CsrRows
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings, lookup_levels, take_rows
from cfnade.kernels.scoring import cell_scores
from cfnade.utils.caching import locked_cached_property

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""


class StateRows(ABC):
    """A RowReading (see readings.py) of a side with states of width S."""

    def __init__(self, rows: CsrRows, output: Array, bias: Array, *, shared: bool = True) -> None:
        self.rows, self.dtype = rows, bias.dtype
        self._output, self._bias = output, bias  # (M, K, S), (M, K)
        self.shared = shared  # whether levels add up (Eq. 10)

    @property
    def width(self) -> int:
        """S."""
        return int(self._output.shape[2])

    @abstractmethod
    def states(self, ratings: RowRatings) -> Array:
        """What is known of rows given by their ratings, on the calling thread. Returns (B, S)."""

    @abstractmethod
    def states_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        """The same of cells' rows, each without the rating that the cell is. Returns (n, S)."""

    # -- cells of many rows -------------------------------------------------------------------

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        out = np.empty((len(rows), self._bias.shape[1]), self.dtype)
        for ratings, which, mine in rows_in_pieces(self.rows, rows, self._output.shape[2]):
            out[mine] = self._scored(ratings, which, columns[mine])
        return out

    def many(self, rows: Sequence[Row], which: IntArray, columns: IntArray) -> Array:
        """Cells of rows given by their ratings: which of these, and the column. (n, K)."""
        counts = np.array([len(row.columns) for row in rows])
        out = np.empty((len(which), self._bias.shape[1]), self.dtype)
        for first, end, mine in _pieces(counts, which, self._output.shape[2]):
            ratings = as_ratings(rows[first:end])
            out[mine] = self._scored(ratings, which[mine] - first, columns[mine])
        return out

    def _scored(self, ratings: RowRatings, rows: IntArray, columns: IntArray) -> Array:
        """Scores of cells of these rows, by threads; a known one without itself. (n, K)."""
        levels = lookup_levels(ratings, rows, columns, len(self._bias))
        states, which = self._many_states(ratings), rows.copy()
        held = np.flatnonzero(levels >= 0)
        if len(held):
            # A state more for each such cell: its own row without the cell's rating.
            held = held[np.argsort(rows[held], kind="stable")]
            rest = self._many_without(ratings, rows[held], columns[held], levels[held])
            which[held] = len(states) + np.arange(len(held))
            states = np.concatenate([states, rest])
        asked = which, np.maximum(columns, 0)
        return cell_scores(states, self._output, self._bias, *asked, shared=self.shared)

    def _many_states(self, ratings: RowRatings) -> Array:
        """As `states`, but threads may help."""
        return self.states(ratings)

    def _many_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        """As `states_without`, but threads may help."""
        return self.states_without(ratings, rows, columns, levels)

    # -- one row, given by its ratings --------------------------------------------------------

    def some(self, row: Row, columns: IntArray) -> Array:
        return self._score(*self.states_given(row, columns), np.maximum(columns, 0))

    def without_each(self, row: Row, column: int) -> Array:
        return self._column(self.states_without_each(row), column)

    def without_levels(self, row: Row, column: int) -> Array:
        return self._column(self.states_without_levels(row), column)

    def states_given(self, row: Row, columns: IntArray) -> tuple[Array, IntArray]:
        """States of a row without each of some columns: (B, S), and which is whose, (n,)."""
        states, which = self.states(as_ratings([row])), np.zeros(len(columns), np.int64)
        held = np.flatnonzero(np.isin(row.columns, columns))
        if len(held):
            # A state more for each column that is known: without what is known of it.
            states = np.concatenate([states, self._without(row, held)])
            place = np.zeros(len(self._bias) + 1, np.int64)  # the last one: of an unknown column
            place[row.columns[held]] = 1 + np.arange(len(held))
            which = place[columns]
        return states, which

    def states_without_each(self, row: Row) -> Array:
        """States of a row without each of its ratings. Returns (c, S)."""
        return self._without(row, np.arange(len(row.columns)))

    def states_without_levels(self, row: Row) -> Array:
        """States of a row without all ratings of each level. Returns (K, S)."""
        kept = [row.levels != level for level in range(self.rows.n_levels)]
        return self.states(as_ratings([Row(row.columns[k], row.levels[k]) for k in kept]))

    def _without(self, row: Row, places: IntArray) -> Array:
        """The row's state without each of its ratings at these places. Returns (n, S)."""
        cells = 0 * places, row.columns[places], row.levels[places]
        return self.states_without(as_ratings([row]), *cells)

    # -- all columns of rows, and all rows of columns ------------------------------------------

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Array:
        K, M = self._bias.T.shape
        states = self.states(as_ratings(rows)) if rows else self._bias[:0]
        if len(rows) > FEW:
            from cfnade.kernels.scoring import level_products

            lines = level_products(states, self._output, self._bias, shared=self.shared)
        else:
            lines = np.empty((len(rows), K, M), self.dtype)
            for state, line in zip(states, lines, strict=True):
                scoring.score_all(state, self._output, self._bias, shared=self.shared, out=line)
        scores = lines.transpose(0, 2, 1)
        for row, own in zip(rows, scores, strict=True):
            if leave_out and len(row.columns):
                rest = self.states_without_each(row)
                own[row.columns] = self._score(rest, np.arange(len(rest)), row.columns)
        return scores

    def across(self, columns: IntArray, raters: Sequence[Row], *, leave_out: bool) -> Array:
        states = self._all_states()
        weights, bias = self._output[columns], self._bias[columns]  # (B, K, S), (B, K)
        if self.shared:
            weights, bias = weights.cumsum(1), bias.cumsum(1)
        flat = weights.reshape(-1, weights.shape[2])
        if len(columns) > FEW:
            from cfnade.kernels.scoring import product

            products = product(flat, states)
        else:
            products = scoring.affine(flat, states, np.zeros(len(states), self.dtype))
        lines = products.reshape(*bias.shape, len(states))
        lines += bias[:, :, None]
        scores = lines.transpose(0, 2, 1)
        for column, row, own in zip(columns.tolist(), raters, scores, strict=True):
            if leave_out and len(row.columns):
                own[row.columns] = self.down(column, row.columns.astype(np.int64), row)
        return scores

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        return self._column(self.states_down(column, rows, raters), column)

    def states_down(self, column: int, rows: IntArray, raters: Row) -> Array:
        """States of rows by number without what they say of a column, if it is one. (n, S)."""
        states = self._by_number(rows)
        if column >= 0:
            level = np.full(len(self.rows) + 1, -1)  # the last one is that of an unknown row
            level[raters.columns] = raters.levels
            held = np.flatnonzero(level[rows] >= 0)
            if len(held):
                states[held] = self._without_column(column, rows[held], level[rows[held]])
        return states

    def _without_column(self, column: int, rows: IntArray, levels: IntArray) -> Array:
        """States of rows without their ratings of a column, at these levels. Returns (n, S)."""
        data = self.rows
        ratings = take_rows(data.offsets, data.columns, data.levels, rows)
        return self.states_without(
            ratings, np.arange(len(rows)), np.full(len(rows), column), levels
        )

    def _by_number(self, rows: IntArray) -> Array:
        """States of rows by number, -1 an unknown one. Returns (n, S)."""
        return np.asarray(self._every_state[rows])

    def _all_states(self) -> Array:
        """Of all rows. Returns (N, S)."""
        return self._every_state[:-1]

    @locked_cached_property
    def _every_state(self) -> Array:
        """Of all rows, and last of one of which nothing is known. Returns (N + 1, S)."""
        data, numbers = self.rows, np.append(np.arange(len(self.rows)), -1)
        return self._many_states(take_rows(data.offsets, data.columns, data.levels, numbers))

    def features(self, counts: IntArray, *, mean_only: bool = False) -> StateFeatures | None:
        """What a column without weights is folded into; counts are the others' ratings."""
        return features_of(self, self._output, self._bias, counts, mean_only=mean_only)

    # -- pieces -------------------------------------------------------------------------------

    def _score(self, states: Array, which: Array, columns: Array) -> Array:
        """Scores of columns (n,), each for one of the states (B, S). Returns (n, K)."""
        return scoring.score_cells(
            states, which, columns, self._output, self._bias, shared=self.shared
        )

    def _column(self, states: Array, column: int) -> Array:
        """Scores of one column for each state. Returns (B, K)."""
        return self._score(states, np.arange(len(states)), np.full(len(states), column))


def as_ratings(rows: Sequence[Row]) -> RowRatings:
    """Rows one after another."""
    counts = [len(row.columns) for row in rows]
    return RowRatings(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.repeat(np.arange(len(rows), dtype=np.int32), counts),
        np.concatenate([row.columns for row in rows]).astype(np.int32),
        np.concatenate([row.levels for row in rows]).astype(np.uint8),
    )


def rows_in_pieces(
    data: CsrRows, rows: IntArray, width: int
) -> Iterator[tuple[RowRatings, IntArray, IntArray]]:
    """The rows of cells, some at a time: their ratings, of which of them each cell is, and the
    places of these cells."""
    numbers, local = np.unique(rows, return_inverse=True)
    counts = np.where(numbers < 0, 0, data.offsets[numbers + 1] - data.offsets[numbers])
    for first, end, mine in _pieces(counts, local, width):
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers[first:end])
        yield ratings, local[mine] - first, mine


def _pieces(counts: Array, which: IntArray, width: int) -> Iterator[tuple[int, int, IntArray]]:
    """Ranges of rows with their cells, whose temporary arrays are of a bearable size.

    counts (B,) are the rows' ratings, which (n,) says of which row a cell is.
    """
    asked = np.bincount(which, minlength=len(counts))
    order, ends = np.argsort(which, kind="stable"), np.concatenate([[0], np.cumsum(asked)])
    sizes = np.cumsum(width * (1 + asked) + counts)
    whole = int(sizes[-1]) if len(sizes) else 0
    cuts = np.searchsorted(sizes, np.arange(4 * PIECE, whole, 4 * PIECE))
    for first, end in pairwise(np.unique([0, *cuts, len(counts)]).tolist()):
        yield first, end, order[ends[first] : ends[end]]


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
