"""Components that read a row as a sum over its ratings, and their scores.

The sum of a row's ratings becomes a state, and a column's score is its output weights times the
state. A pair whose rating is known is scored from the state of its row without that rating. Serial
queries stay on the calling thread and use no torch, so their bits depend on nothing but the pair;
others go through threaded kernels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, OutputTable, Pairs, RatingComponent
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings, lookup_levels, take_rows
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled

PIECE = 1 << 22
"""Largest number of values in a temporary array."""

FEW = 4
"""Up to so many rows are scored one by one, which is faster than a matrix product."""

MAX_CACHED_ROWS = 1 << 16
"""Sums and states of all rows are cached if there are at most so many."""


class AdditiveComponent(RatingComponent):
    """A component that a row enters as the sum of one term per rating.

    Subtracting a term leaves a rating out, adding one is an update, and adding the sums of several
    processes is distribution.
    """

    axis: Axis

    @abstractmethod
    def row_sums(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        """Return the sum of each row's terms, (B, P)."""

    @abstractmethod
    def entry_terms(self, columns: IntArray, levels: IntArray) -> Array:
        """Return the term of each rating, (n, P)."""

    def project(self, sums: Array, *, serial: bool = True) -> Array:
        """Apply what is linear in the sums, (B, P) to (B, L); computed once per row and rating."""
        del serial
        return sums

    @abstractmethod
    def states(self, projected: Array, counts: IntArray, *, serial: bool = True) -> Array:
        """Return the states of rows with so many ratings from their projected sums, (B, S)."""

    @abstractmethod
    def output(self) -> OutputTable:
        """Return what turns states into scores."""

    def scorer(self, rows: CsrRows) -> RowStates:
        return RowStates(self, rows)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Return the state of each row, or the output weights of each column."""
        if axis == self.axis:
            return self.scorer(context.rows(axis)).all_states()
        table = self.output().table
        return table.reshape(len(table), -1)


class RowStates:
    """Scores of an additive component, given the ratings of its rows.

    Args:
        component: The component.
        rows: The ratings of all rows that pairs may name by number.
    """

    def __init__(self, component: AdditiveComponent, rows: CsrRows) -> None:
        self.component, self.axis, self.rows = component, component.axis, rows
        self.output = component.output()
        self.dtype = self.output.bias.dtype

    # -- sums and states, which a subclass may compute otherwise ----------------------------------

    def row_sums(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        """Return the sums of rows given by their ratings, (B, P)."""
        return self.component.row_sums(ratings, serial=serial)

    def states_of_sums(self, sums: Array, counts: IntArray, *, serial: bool = True) -> Array:
        """Return the states of rows with these sums of so many ratings, (B, S)."""
        projected = self.component.project(sums, serial=serial)
        return self.component.states(projected, counts, serial=serial)

    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        """Return the states of rows given by their ratings, (B, S)."""
        sums, counts = self.row_sums(ratings, serial=serial), np.diff(ratings.offsets)
        return self.states_of_sums(sums, counts, serial=serial)

    def states_without(
        self,
        ratings: RowRatings,
        rows: IntArray,
        columns: IntArray,
        levels: IntArray,
        *,
        serial: bool = True,
    ) -> Array:
        """Return the states of pairs' rows, each without one rating, (n, S)."""
        sums, counts = self.row_sums(ratings, serial=serial), np.diff(ratings.offsets)
        return self._subtract(sums, counts, rows, (columns, levels), serial=serial)

    def _subtract(
        self,
        sums: Array,
        counts: IntArray,
        rows: IntArray,
        cells: tuple[IntArray, IntArray],
        *,
        serial: bool,
    ) -> Array:
        out = np.empty((len(rows), self.width), self.dtype)
        for part in slices(len(rows), sums.shape[1]):
            reduced_sums = sums[rows[part]]
            reduced_sums -= self.component.entry_terms(*(array[part] for array in cells))
            out[part] = self.states_of_sums(reduced_sums, counts[rows[part]] - 1, serial=serial)
        return out

    def _states_without_two(
        self, ratings: RowRatings, rows: IntArray, pairs: Pairs, places: IntArray
    ) -> Array:
        """Return the states of pairs' rows; those at some places lack a further rating. (n, S).

        Rows and ratings are projected once each, not for every pair.
        """
        component, serial = self.component, pairs.serial
        numbers, cells = _distinct_ratings(pairs, places)
        total = component.project(self.row_sums(ratings, serial=serial), serial=serial)
        terms = component.project(component.entry_terms(*cells), serial=serial)
        row_counts = np.diff(ratings.offsets)
        out = np.empty((len(rows), self.width), self.dtype)
        for part in slices(len(rows), total.shape[1]):
            check_cancelled()
            reduced_sums, counts = total[rows[part]], row_counts[rows[part]]
            for number in numbers:
                held = np.flatnonzero(number[part] >= 0)
                reduced_sums[held] -= terms[number[part][held]]
                counts[held] -= 1
            out[part] = component.states(reduced_sums, counts, serial=serial)
        return out

    # -- scores -------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """S, the number of values in a state."""
        return int(self.output.table.shape[2])

    def score_pairs(self, pairs: Pairs) -> Array:
        table, bias, shared = self.output
        out = np.empty((len(pairs.row), bias.shape[1]), self.dtype)
        for places, states, number in self.pair_states(pairs):
            columns = np.maximum(pairs.column[places], 0)
            if pairs.serial:
                scores = scoring.score_cells(states, number, columns, table, bias, shared=shared)
            else:
                scores = scoring.cell_scores(states, table, bias, number, columns, shared=shared)
            out[places] = scores
        return out

    def score_columns(self, rows: CsrRows) -> Array:
        table, bias, shared = self.output
        K, M = bias.T.shape
        states = self.states(ratings_of(rows)) if len(rows) else bias[:0]
        if len(rows) > FEW:
            return scoring.level_products(states, table, bias, shared=shared).transpose(0, 2, 1)
        out = np.empty((len(rows), K, M), self.dtype)
        for state, scores in zip(states, out, strict=True):
            scoring.score_all(state, table, bias, shared=shared, out=scores)
        return out.transpose(0, 2, 1)

    def score_rows(self, columns: IntArray) -> Array:
        states, (table, bias, shared) = self.all_states(), self.output
        weights, bias = table[columns], bias[columns]  # (B, K, S), (B, K)
        if shared:
            weights, bias = weights.cumsum(1), bias.cumsum(1)
        flat = weights.reshape(-1, weights.shape[2])
        if len(columns) > FEW:
            products = scoring.product(flat, states)
        else:
            products = scoring.affine(flat, states, np.zeros(len(states), self.dtype))
        scores = products.reshape(*bias.shape, len(states))
        scores += bias[:, :, None]
        return np.asarray(scores.transpose(0, 2, 1))

    def fold_in_output(self) -> tuple[RowStates, OutputTable] | None:
        return self, self.output

    # -- states of pairs ----------------------------------------------------------------------

    def pair_states(self, pairs: Pairs) -> Iterator[tuple[IntArray, Array, IntArray]]:
        """Yield places of pairs, states (B, S), and the number of each of these pairs' state."""
        if not len(pairs.row):
            return
        if self.reads_all(pairs):
            yield from self._cached_pair_states(pairs)
            return
        for ratings, rows, places in rows_in_pieces(pairs.rows, pairs.row, self.width):
            part = pairs if len(places) == len(pairs.row) else pairs.take(places)
            reduced = leaves_out(part)
            complete = np.flatnonzero(~reduced)
            if len(complete):
                yield places[complete], self.states(ratings, serial=pairs.serial), rows[complete]
            if len(complete) == len(rows):
                continue
            held = np.flatnonzero(reduced)
            held = held[np.argsort(rows[held], kind="stable")]
            states = self._reduced_states(ratings, rows[held], part.take(held))
            yield places[held], states, np.arange(len(held))

    def reads_all(self, pairs: Pairs) -> bool:
        """Whether pairs are scored from the cached states of all rows."""
        return pairs.rows is self.rows and self.axis == "item" and self._is_cached

    def _cached_pair_states(self, pairs: Pairs) -> Iterator[tuple[IntArray, Array, IntArray]]:
        reduced = leaves_out(pairs)
        complete, held = np.flatnonzero(~reduced), np.flatnonzero(reduced)
        if len(complete):
            yield complete, self.all_states(), pairs.row[complete]
        for part in slices(len(held), self.width):
            places = held[part]
            yield places, self.reduced_states(pairs.take(places)), np.arange(len(places))

    def reduced_states(self, pairs: Pairs) -> Array:
        """Return the states of pairs' rows, each without what the pair leaves out, (n, S)."""
        rows = pairs.rows
        if rows is self.rows and self._caches_sums and pairs.left_out is None:
            cells = pairs.column, pairs.levels
            return self._subtract(*self._all_sums, pairs.row, cells, serial=pairs.serial)
        numbers, local = np.unique(pairs.row, return_inverse=True)
        ratings = take_rows(rows.offsets, rows.columns, rows.levels, numbers)
        return self._reduced_states(ratings, local, pairs)

    def _reduced_states(self, ratings: RowRatings, rows: IntArray, pairs: Pairs) -> Array:
        columns, levels = pairs.column, pairs.levels
        if pairs.left_out is not None:
            places = np.flatnonzero(pairs.left_out >= 0)
            if (levels[places] >= 0).any():
                return self._states_without_two(ratings, rows, pairs, places)
            columns, levels = columns.copy(), levels.copy()
            columns[places] = pairs.rows.columns[pairs.left_out[places]]
            levels[places] = pairs.rows.levels[pairs.left_out[places]]
        return self.states_without(ratings, rows, columns, levels, serial=pairs.serial)

    # -- all rows -----------------------------------------------------------------------------

    @property
    def _is_cached(self) -> bool:
        return len(self.rows) <= MAX_CACHED_ROWS

    @property
    def _caches_sums(self) -> bool:
        """Whether leave-one-out of stored rows is a subtraction from cached sums."""
        return self._is_cached

    def states_of(self, numbers: IntArray) -> Array:
        """Return the states of some of the rows, (n, S)."""
        if self._is_cached:
            return np.asarray(self.all_states()[numbers])
        rows = self.rows
        ratings = take_rows(rows.offsets, rows.columns, rows.levels, numbers)
        return self.states(ratings, serial=False)

    def all_states(self) -> Array:
        """Return the states of all rows, (N, S)."""
        return self._all_states

    @locked_cached_property
    def _all_states(self) -> Array:
        return self.states_of_sums(*self._all_sums, serial=False)

    @locked_cached_property
    def _all_sums(self) -> tuple[Array, IntArray]:
        """Sums of all rows, (N, P), and how many ratings each has, (N,)."""
        return self.row_sums(ratings_of(self.rows), serial=False), self.rows.counts()


def slices(length: int, width: int) -> Iterator[slice]:
    """Yield slices of so many lines that temporary arrays of this width stay small."""
    step = max(1, PIECE // width)
    return (slice(first, first + step) for first in range(0, length, step))


def leaves_out(pairs: Pairs) -> Array:
    """Return which pairs leave a rating out, (n,)."""
    rated = pairs.levels >= 0
    return np.asarray(rated if pairs.left_out is None else rated | (pairs.left_out >= 0))


def _distinct_ratings(
    pairs: Pairs, places: IntArray
) -> tuple[list[IntArray], tuple[IntArray, IntArray]]:
    """Return all ratings that pairs leave out, once each.

    Args:
        pairs: Pairs that leave out their own rating and, at some places, a further one.
        places: These places.

    Returns:
        The numbers of the rating that each pair leaves out as its own, and as a further one, (n,)
        each, -1 for none; then columns and levels of the ratings.
    """
    assert pairs.left_out is not None
    entries, K = pairs.left_out[places], pairs.rows.n_levels
    codes = np.full((2, len(pairs.row)), -1)
    codes[0] = np.where(pairs.levels >= 0, pairs.column * K + pairs.levels, -1)
    codes[1, places] = pairs.rows.columns[entries].astype(np.int64) * K + pairs.rows.levels[entries]
    codes[1, codes[1] == codes[0]] = -1  # the same rating
    distinct, numbers = np.unique(codes, return_inverse=True)
    n_none = int(distinct[0] < 0)
    cells = np.divmod(distinct[n_none:], K)
    return list(numbers.reshape(codes.shape) - n_none), cells


def ratings_of(rows: CsrRows) -> RowRatings:
    """Return the ratings of all these rows."""
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts())
    return RowRatings(np.array(rows.offsets), numbers, *map(np.array, (rows.columns, rows.levels)))


def known_levels(rows: CsrRows, row: IntArray, column: IntArray) -> IntArray:
    """Return the level of each pair's rating in the rows, -1 where there is none, (n,)."""
    if len(row) == 1:  # of most requests
        part = slice(rows.offsets[row[0]], rows.offsets[row[0] + 1])
        levels = rows.levels[part][rows.columns[part] == column[0]]
        return levels.astype(np.int64) if len(levels) else np.full(1, -1)
    out = np.empty(len(row), np.int64)
    for ratings, local, places in rows_in_pieces(rows, row, 0):
        out[places] = lookup_levels(ratings, local, column[places], rows.n_columns)
    return out


def rows_in_pieces(
    data: CsrRows, rows: IntArray, width: int
) -> Iterator[tuple[RowRatings, IntArray, IntArray]]:
    """Yield the rows of pairs in pieces, so that temporary arrays stay small.

    Yields the ratings of some rows, the number of each pair's row among them, and the places of
    these pairs.
    """
    if not len(rows):
        return
    if len(data) == 1 or len(rows) == 1:
        numbers, local = rows[:1], np.zeros(len(rows), np.int64)
    else:
        numbers, local = np.unique(rows, return_inverse=True)
    bounds = [0, len(numbers)]
    if len(numbers) > 1:
        n_pairs = np.bincount(local, minlength=len(numbers))
        counts = data.offsets[numbers + 1] - data.offsets[numbers]
        sizes = np.cumsum(width * (1 + n_pairs) + counts)
        cuts = np.searchsorted(sizes, np.arange(4 * PIECE, int(sizes[-1]), 4 * PIECE))
        bounds = np.unique([0, *cuts, len(numbers)]).tolist()
    if len(bounds) == 2:
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        yield ratings, local, np.arange(len(rows))
        return
    order, ends = np.argsort(local, kind="stable"), np.concatenate([[0], np.cumsum(n_pairs)])
    for first, end in pairwise(bounds):
        places = order[ends[first] : ends[end]]
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers[first:end])
        yield ratings, local[places] - first, places
