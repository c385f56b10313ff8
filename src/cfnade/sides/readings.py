"""From a side's rows and columns to users and items: the one door where answers are transposed.

A side says what it has to say about rows and columns (`RowReading`); `ByUser` and `ByItem` turn
that into answers about users and items. `PlainRows` says it for any side in plain torch, one
context after another: slow, obvious, and what faster ones are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cfnade.data.ratings import IntArray, Rows
from cfnade.models.batch import Context
from cfnade.sides.side import Array, Axis, Reading, Row, Who, row_of


class RowReading(Protocol):
    """Scores of a side's own rows and columns; an unknown column (-1) scores as column 0."""

    rows: Rows
    dtype: np.dtype[Any]  # of scores

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        """Cells of rows by number, -1 an unknown one; a known cell without itself. (n, K)."""

    def some(self, row: Row, columns: IntArray) -> Array:
        """Some columns of a row given by its ratings, a known one without itself. (n, K)."""

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Array]:
        """Every column of each row; known ones without themselves if leave_out. (M, K) each."""

    def down(self, column: int, rows: IntArray | None, raters: Row, *, leave_out: bool) -> Array:
        """One column of some rows by number, or of all; `raters` are those who rated it. (n, K)."""

    def without_each(self, row: Row, column: int) -> Array:
        """A column of the row without each of its ratings, none of which is of it. (c, K)."""

    def without_levels(self, row: Row, column: int) -> Array:
        """The same without all ratings of each level. (K, K)."""


def reading_of(axis: Axis | None, rows: RowReading) -> Reading:
    """A side's answers about users and items."""
    return ByUser(rows) if axis == "user" else ByItem(rows)


class ByUser:
    """Rows are users: a person is a row, known or new."""

    learns: Axis | None = "item"

    def __init__(self, reading: RowReading) -> None:
        self._rows = reading

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        del times
        return self._rows.cells(users, items)

    def person(self, who: Who, items: IntArray) -> Array:
        return self._rows.some(who.rated, items)

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Iterator[Array]:
        return self._rows.all([who.rated for who in people], leave_out=leave_out)

    def without_each(self, who: Who, item: int) -> Array:
        return self._rows.without_each(who.rated.without(item), item)

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        return np.repeat(self.person(who, np.array([item])), len(raters.columns), axis=0)

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del raters
        scores = self.person(who, np.array([item]))
        return np.repeat(scores, scores.shape[1], axis=0)


class ByItem:
    """Rows are items: a person is a column, which only those have who were trained on."""

    learns: Axis | None = "user"

    def __init__(self, reading: RowReading) -> None:
        self._rows = reading

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        del times
        return self._rows.cells(items, users)

    def person(self, who: Who, items: IntArray) -> Array:
        return self._down(who, items, leave_out=True)

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Iterator[Array]:
        for who in people:
            yield self._down(who, None, leave_out=leave_out)

    def _down(self, who: Who, items: IntArray | None, *, leave_out: bool) -> Array:
        if who.user < 0:  # no weights, so nothing to say: the scorer has a rule for that
            count = len(self._rows.rows) if items is None else len(items)
            return np.zeros((count, self._rows.rows.n_levels), self._rows.dtype)
        return self._rows.down(who.user, items, who.rated, leave_out=leave_out)

    def without_each(self, who: Who, item: int) -> Array:
        others = who.rated.without(item).columns
        return np.repeat(self.person(who, np.array([item])), len(others), axis=0)

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        del item
        return self._rows.without_each(raters, max(who.user, 0))

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del item
        return self._rows.without_levels(raters, max(who.user, 0))


ScoresGiven = Callable[[Context, Tensor, Tensor], Tensor]
"""Scores (n, K) of cells: the number of each one's context, and its column."""


class PlainRows:
    """A RowReading of any side that can score cells given contexts."""

    def __init__(self, scores: ScoresGiven, rows: Rows) -> None:
        self._scores, self.rows, self.dtype = scores, rows, np.dtype(np.float64)

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        known = [row_of(self.rows, row) for row in rows.tolist()]
        return self._asked([row.without(c) for row, c in zip(known, columns, strict=True)], columns)

    def some(self, row: Row, columns: IntArray) -> Array:
        return self._asked([row.without(column) for column in columns], columns)

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Array]:
        every = np.arange(self.rows.n_columns)
        for row in rows:
            yield self.some(row, every) if leave_out else self._asked([row] * len(every), every)

    def down(self, column: int, rows: IntArray | None, raters: Row, *, leave_out: bool) -> Array:
        numbers = np.arange(len(self.rows)) if rows is None else rows
        known = [row_of(self.rows, row) for row in numbers.tolist()]
        if leave_out:
            known = [row.without(column) for row in known]
        del raters  # the rows themselves say who rated the column
        return self._asked(known, np.full(len(known), column))

    def without_each(self, row: Row, column: int) -> Array:
        return self._asked(
            [row.without(other) for other in row.columns], np.full(len(row.columns), column)
        )

    def without_levels(self, row: Row, column: int) -> Array:
        K = self.rows.n_levels
        kept = [row.levels != level for level in range(K)]
        parts = [Row(row.columns[keep], row.levels[keep]) for keep in kept]
        return self._asked(parts, np.full(K, column))

    @torch.no_grad()
    def _asked(self, known: Sequence[Row], columns: IntArray) -> Array:
        """Each column given its own context. Returns (n, K)."""
        counts = [len(row.columns) for row in known]
        joined = [np.concatenate([[], *(row[part] for row in known)]) for part in (0, 1)]
        parts = [np.concatenate([[0], np.cumsum(counts)]), *joined]
        context = Context(*(torch.from_numpy(part.astype(np.int64)) for part in parts))
        cells = np.arange(len(known)), np.maximum(columns, 0)
        scores = self._scores(context, *(torch.from_numpy(part.astype(np.int64)) for part in cells))
        return np.asarray(scores.numpy())
