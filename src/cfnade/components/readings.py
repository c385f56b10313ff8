"""From a side's rows and columns to users and items: the one door where answers are transposed.

A side says what it has to say about rows and columns (`RowReading`); `ByUser` and `ByItem` turn
that into answers about users and items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Folding, Reading, Row, What, Who, row_of
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.utils.cancellation import check_cancelled


class RowReading(Protocol):
    """Scores of a side's own rows and columns; an unknown column (-1) scores as column 0."""

    rows: CsrRows
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


@runtime_checkable
class LeavesPairsOut(Protocol):
    """A RowReading that leaves many pairs of ratings out of a row faster than one by one."""

    def some_without(self, row: Row, left_out: IntArray, columns: IntArray) -> Array:
        """As `Reading.person_without`, for columns of a row. (b, n, K)."""


def reading_of(axis: Axis | None, rows: RowReading, context: Dataset) -> Reading:
    """A side's answers about users and items."""
    return ByUser(rows) if axis == "user" else ByItem(rows, context)


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

    def person_without(self, who: Who, left_out: IntArray, items: IntArray) -> Array:
        if isinstance(self._rows, LeavesPairsOut):
            return self._rows.some_without(who.rated, left_out, items)
        out = np.empty((len(left_out), len(items), self._rows.rows.n_levels), self._rows.dtype)
        for column, own in zip(left_out.tolist(), out, strict=True):
            check_cancelled()
            own[:] = self._rows.some(who.rated.without(column), items)
        return out

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
    """Rows are items: a person is a column, which only those have who were trained on.

    The ratings that the rows hold of a person are those of the context, whatever history a
    question gives: these are left out of the person's own cells.
    """

    learns: Axis | None = "user"

    def __init__(self, reading: RowReading, context: Dataset) -> None:
        self._rows, self._context = reading, context

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        del times
        return self._rows.cells(items, users)

    def person(self, who: Who, items: IntArray) -> Array:
        return _down(self._rows, who.user, items, row_of(self._context.rows("user"), who.user))

    def person_without(self, who: Who, left_out: IntArray, items: IntArray) -> Array:
        return np.repeat(self.person(who, items)[None], len(left_out), axis=0)

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
        return None if features is None else FoldingUsers(features, self._context)

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Array:
        users = np.array([who.user for who in people], np.int64)
        known, stored = np.flatnonzero(users >= 0), self._context.rows("user")
        rows = [row_of(stored, int(user)) for user in users[known]]
        if not leave_out:  # what only the context holds is left out of itself even then
            rows = [
                row.excluding(people[number].rated.columns)
                for number, row in zip(known.tolist(), rows, strict=True)
            ]
        care = leave_out or any(len(row.columns) for row in rows)
        scores = self._rows.across(users[known], rows, leave_out=care)
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

    def __init__(self, features: ColumnFeatures, context: Dataset) -> None:
        self._features, self.variances = features, features.variances
        self._context = context

    def person(self, who: Who, items: IntArray) -> Array:
        stored = row_of(self._context.rows("user"), who.user)
        return self._features.down(who.user, items, stored)

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
