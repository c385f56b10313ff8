"""From a side's rows and columns to users and items: the one door where answers are transposed.

A side says what it has to say about rows and columns (`RowReading`); `ByUser` and `ByItem` turn
that into answers about users and items. `PlainRows` says it for any side in plain torch, one
context after another: slow, obvious, and what faster ones are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from cfnade.data.ratings import IntArray, Rows
from cfnade.models.batch import Context
from cfnade.sides.side import Array, Axis, Folding, Reading, Row, What, Who, row_of


class RowReading(Protocol):
    """Scores of a side's own rows and columns; an unknown column (-1) scores as column 0."""

    rows: Rows
    dtype: np.dtype[Any]  # of scores

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        """Cells of rows by number, -1 an unknown one; a known cell without itself. (n, K)."""

    def some(self, row: Row, columns: IntArray) -> Array:
        """Some columns of a row given by its ratings, a known one without itself. (n, K)."""

    def many(self, rows: Sequence[Row], which: IntArray, columns: IntArray) -> Array:
        """The same of many such rows at once: which of them, and the column. (n, K)."""

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Array:
        """Every column of each row; known ones without themselves if leave_out. (B, M, K)."""

    def across(self, columns: IntArray, raters: Sequence[Row], *, leave_out: bool) -> Array:
        """Every row of each column, which `raters` have; the same care. (B, N, K)."""

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        """One column of rows by number without it; `raters` are those who rated it. (n, K)."""

    def without_each(self, row: Row, column: int) -> Array:
        """A column of the row without each of its ratings, none of which is of it. (c, K)."""

    def without_levels(self, row: Row, column: int) -> Array:
        """The same without all ratings of each level. (K, K)."""


class ColumnFeatures(Protocol):
    """Scores of imagined columns, which ratings of other columns say nothing of: see `Folding`.

    A column's number, -1 for a new one, only says which ratings are left out. (n, K, 1 + D) each.
    """

    variances: Array

    def some(self, row: Row, columns: IntArray) -> Array:
        """A row given by its ratings, without each of these columns."""

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        """Rows by number, -1 an unknown one, without the column, which `raters` have."""

    def without_each(self, row: Row) -> Array:
        """The row without each of its ratings."""

    def without_levels(self, row: Row) -> Array:
        """The row without all ratings of each level."""


@runtime_checkable
class Foldable(Protocol):
    """A RowReading whose scores are linear in weights of the column can be this, too."""

    def features(self, counts: IntArray, *, mean_only: bool) -> ColumnFeatures | None:
        """From the weights of columns with so many training ratings (M,); None: too few."""


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

    def item(self, what: What, users: IntArray) -> Array:
        return _down(self._rows, what.item, users, what.raters)

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Array:
        return self._rows.many([who.rated for who in people], which, items)

    def folding(self, counts: IntArray, *, mean_only: bool = False) -> Folding | None:
        features = _features(self._rows, counts, mean_only)
        return None if features is None else FoldingItems(features)

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Array:
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
        return _down(self._rows, who.user, items, who.rated)

    def item(self, what: What, users: IntArray) -> Array:
        return self._rows.some(what.raters, users)

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Array:
        out = np.zeros((len(which), self._rows.rows.n_levels), self._rows.dtype)
        order = np.argsort(which, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
            if len(mine):
                out[mine] = self.person(people[which[mine[0]]], items[mine])
        return out

    def folding(self, counts: IntArray, *, mean_only: bool = False) -> Folding | None:
        features = _features(self._rows, counts, mean_only)
        return None if features is None else FoldingUsers(features)

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Array:
        users = np.array([who.user for who in people], np.int64)
        known, rows = np.flatnonzero(users >= 0), [who.rated for who in people if who.user >= 0]
        scores = self._rows.across(users[known], rows, leave_out=leave_out)
        if len(known) == len(people):
            return scores
        _, N, K = scores.shape
        out = np.zeros((len(people), K, N), scores.dtype).transpose(0, 2, 1)  # as in _down
        out[known] = scores
        return out

    def without_each(self, who: Who, item: int) -> Array:
        others = who.rated.without(item).columns
        return np.repeat(self.person(who, np.array([item])), len(others), axis=0)

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        del item
        return self._rows.without_each(raters, max(who.user, 0))

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del item
        return self._rows.without_levels(raters, max(who.user, 0))


def _features(reading: RowReading, counts: IntArray, mean_only: bool) -> ColumnFeatures | None:
    return reading.features(counts, mean_only=mean_only) if isinstance(reading, Foldable) else None


def _down(reading: RowReading, column: int, rows: IntArray, raters: Row) -> Array:
    """A column of rows; a new one has no weights, so nothing to say: the scorer sees to that."""
    if column < 0:
        return np.zeros((len(rows), reading.rows.n_levels), reading.dtype)
    return reading.down(column, rows, raters)


class FoldingItems:
    """Rows are users, and the imagined column is an item."""

    def __init__(self, features: ColumnFeatures) -> None:
        self._features, self.variances = features, features.variances

    def person(self, who: Who, items: IntArray) -> Array:
        return self._features.some(who.rated, items)

    def item(self, what: What, users: IntArray) -> Array:
        return self._features.down(what.item, users, what.raters)

    def without_each(self, who: Who, item: int) -> Array:
        return self._features.without_each(who.rated.without(item))

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        return np.repeat(self.person(who, np.array([item])), len(raters.columns), axis=0)

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del raters
        features = self.person(who, np.array([item]))
        return np.repeat(features, features.shape[1], axis=0)


class FoldingUsers:
    """Rows are items, and the imagined column is a user."""

    def __init__(self, features: ColumnFeatures) -> None:
        self._features, self.variances = features, features.variances

    def person(self, who: Who, items: IntArray) -> Array:
        return self._features.down(who.user, items, who.rated)

    def item(self, what: What, users: IntArray) -> Array:
        return self._features.some(what.raters, users)

    def without_each(self, who: Who, item: int) -> Array:
        others = who.rated.without(item).columns
        return np.repeat(self.person(who, np.array([item])), len(others), axis=0)

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        del who, item
        return self._features.without_each(raters)

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del who, item
        return self._features.without_levels(raters)


ScoresGiven = Callable[[Context, Tensor, Tensor], Tensor]
"""Scores (n, K) of cells: the number of each one's context, and its column."""


class PlainRows:
    """A RowReading of any side that can score cells given contexts."""

    def __init__(self, scores: ScoresGiven, rows: Rows) -> None:
        self._scores, self.rows, self.dtype = scores, rows, np.dtype(np.float64)

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        histories = [row_of(self.rows, row) for row in rows.tolist()]
        return self._asked(
            [row.without(c) for row, c in zip(histories, columns, strict=True)], columns
        )

    def some(self, row: Row, columns: IntArray) -> Array:
        return self._asked([row.without(column) for column in columns], columns)

    def many(self, rows: Sequence[Row], which: IntArray, columns: IntArray) -> Array:
        asked = zip(which.tolist(), columns.tolist(), strict=True)
        return self._asked([rows[row].without(column) for row, column in asked], columns)

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Array:
        every = np.arange(self.rows.n_columns)
        out = np.empty((len(rows), len(every), self.rows.n_levels), self.dtype)
        for number, row in enumerate(rows):
            out[number] = (
                self.some(row, every) if leave_out else self._asked([row] * len(every), every)
            )
        return out

    def across(self, columns: IntArray, raters: Sequence[Row], *, leave_out: bool) -> Array:
        every = np.arange(len(self.rows))
        histories = [row_of(self.rows, row) for row in every.tolist()]
        out = np.empty((len(columns), len(every), self.rows.n_levels), self.dtype)
        for number, (column, row) in enumerate(zip(columns.tolist(), raters, strict=True)):
            out[number] = (
                self.down(column, every, row)
                if leave_out
                else self._asked(histories, np.full(len(histories), column))
            )
        return out

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        del raters  # the rows themselves say who rated the column
        histories = [row_of(self.rows, row).without(column) for row in rows.tolist()]
        return self._asked(histories, np.full(len(histories), column))

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
