"""Answers about rows and columns of any side that turns a row into a state.

A column's score is its output weights times the state. A known cell is scored from the state of its
row without it. Cells of many rows go through threaded kernels; whatever is asked of one row runs
serially on the calling thread and uses no torch, so its bits depend on nothing but the question.
Lists of more than a few rows are matrix products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from cfnade.data.ratings import IntArray, Rows
from cfnade.kernels import request
from cfnade.kernels.forward import cell_scores
from cfnade.kernels.grouping import RowRatings, levels_of, ratings_of
from cfnade.once import once
from cfnade.sides.side import NOTHING, Array, Row

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""


class StateRows(ABC):
    """A RowReading (see readings.py) of a side with states of width S."""

    def __init__(self, rows: Rows, output: Array, bias: Array) -> None:
        self.rows, self.dtype = rows, bias.dtype
        self._output, self._bias = output, bias  # (M, K, S), (M, K); levels add up (Eq. 10)

    @abstractmethod
    def states(self, ratings: RowRatings) -> Array:
        """What is known of rows given by their ratings. Returns (B, S)."""

    @abstractmethod
    def states_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        """The same of cells' rows, each without the rating that the cell is. Returns (n, S)."""

    # -- cells of many rows -------------------------------------------------------------------

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        """Scores of cells; those of one row go together, so that its state is made once. (n, K)."""
        out = np.empty((len(rows), self._bias.shape[1]), self.dtype)
        order = np.argsort(rows, kind="stable")
        step = max(1, 2 * PIECE // self._output.shape[2] ** 2)
        for first in range(0, len(order), step):
            piece = order[first : first + step]
            out[piece] = self._piece(rows[piece], columns[piece])
        return out

    def _piece(self, rows: IntArray, columns: IntArray) -> Array:
        data = self.rows
        numbers, local = np.unique(rows, return_inverse=True)
        ratings = ratings_of(data.offsets, data.columns, data.levels, numbers)
        levels = levels_of(ratings, local, columns, data.n_columns)
        states = self.states(ratings)
        held = np.flatnonzero(levels >= 0)
        if len(held):
            # A state more for each such cell: its own row without the cell's rating.
            rest = self.states_without(ratings, local[held], columns[held], levels[held])
            local[held] = len(states) + np.arange(len(held))
            states = np.concatenate([states, rest])
        state, table, bias = map(torch.from_numpy, (states, self._output, self._bias))
        scores = cell_scores(state, table, bias, local, np.maximum(columns, 0), shared=True)
        return np.asarray(scores.numpy())

    # -- one row, given by its ratings --------------------------------------------------------

    def some(self, row: Row, columns: IntArray) -> Array:
        columns, ratings = np.maximum(columns, 0), _ratings([row])
        states, which = self.states(ratings), np.zeros(len(columns), np.int64)
        held = np.flatnonzero(np.isin(row.columns, columns))
        if len(held):
            # A state more for each column that is known: without what is known of it.
            states = np.concatenate([states, self._without(row, held)])
            place = np.zeros(len(self._bias), np.int64)
            place[row.columns[held]] = 1 + np.arange(len(held))
            which = place[columns]
        return self._score(states, which, columns)

    def without_each(self, row: Row, column: int) -> Array:
        return self._column(self._without(row, np.arange(len(row.columns))), column)

    def without_levels(self, row: Row, column: int) -> Array:
        kept = [row.levels != level for level in range(self._bias.shape[1])]
        parts = _ratings([Row(row.columns[keep], row.levels[keep]) for keep in kept])
        return self._column(self.states(parts), column)

    def _without(self, row: Row, places: IntArray) -> Array:
        """The row's state without each of its ratings at these places. Returns (n, S)."""
        zeros = np.zeros(len(places), np.int64)
        return self.states_without(_ratings([row]), zeros, row.columns[places], row.levels[places])

    # -- all columns of rows ------------------------------------------------------------------

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Array]:
        step = max(1, PIECE // self._bias.size)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            states = self.states(_ratings(some))
            lines = map(self._score_all, states) if len(some) <= FEW else self._product(states)
            for row, scores in zip(some, lines, strict=True):
                if leave_out and len(row.columns):
                    rest = self._without(row, np.arange(len(row.columns)))
                    scores[row.columns] = self._score(rest, np.arange(len(rest)), row.columns)
                yield scores

    def _score_all(self, state: Array) -> Array:
        return request.score_all(state, self._output, self._bias, shared=True)

    def _product(self, states: Array) -> Array:
        """Scores of every column for each state. Returns (B, M, K)."""
        M, K, width = self._output.shape
        flat = torch.from_numpy(states) @ torch.from_numpy(self._output).view(-1, width).T
        scores = flat.view(-1, M, K) + torch.from_numpy(self._bias)
        return np.asarray(scores.cumsum(2).numpy())

    # -- one column of rows -------------------------------------------------------------------

    def down(self, column: int, rows: IntArray | None, raters: Row, *, leave_out: bool) -> Array:
        numbers = np.arange(len(self.rows)) if rows is None else rows
        nothing = self.states(_ratings([NOTHING]))
        states = np.where((numbers >= 0)[:, None], self.every[numbers], nothing)
        if leave_out:
            level = np.full(len(self.rows) + 1, -1)  # the last one is that of an unknown row
            level[raters.columns] = raters.levels
            held = np.flatnonzero(level[numbers] >= 0)
            data, own = self.rows, numbers[held]
            ratings = ratings_of(data.offsets, data.columns, data.levels, own)
            cells = np.arange(len(held)), np.full(len(held), column), level[own]
            states[held] = self.states_without(ratings, *cells)
        return self._column(states, column)

    @once
    def every(self) -> Array:
        """The states of all rows. Returns (N, S)."""
        data = self.rows
        numbers = np.arange(len(data))
        return self.states(ratings_of(data.offsets, data.columns, data.levels, numbers))

    # -- pieces -------------------------------------------------------------------------------

    def _score(self, states: Array, which: Array, columns: Array) -> Array:
        """Scores of columns (n,), each for one of the states (B, S). Returns (n, K)."""
        return request.score_cells(states, which, columns, self._output, self._bias, shared=True)

    def _column(self, states: Array, column: int) -> Array:
        """Scores of one column for each state. Returns (B, K)."""
        return self._score(states, np.arange(len(states)), np.full(len(states), column))


def _ratings(rows: Sequence[Row]) -> RowRatings:
    """Rows one after another."""
    counts = [len(row.columns) for row in rows]
    return RowRatings(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.repeat(np.arange(len(rows), dtype=np.int32), counts),
        np.concatenate([row.columns for row in rows]).astype(np.int32),
        np.concatenate([row.levels for row in rows]).astype(np.uint8),
    )
