"""Rows of components that turn the ratings of a row into a state.

A column's score is its output weights times the state. A pair whose rating is known is scored from
the state of its row without that rating. Serial questions stay on the calling thread and use no
torch, so their bits depend on nothing but the pair; others go through threaded kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    Axis,
    ComponentScorer,
    OutputTable,
    Pairs,
    PairStates,
    RatingComponent,
)
from cfnade.data.csr import CsrRows
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings, lookup_levels, take_rows
from cfnade.kernels.scoring import cell_scores
from cfnade.utils.caching import locked_cached_property

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""

KEPT = 1 << 16
"""States of all rows are computed once and kept if there are at most this many items."""


class RowStates(ABC):
    """Rows of a component with states of width S."""

    def __init__(self, axis: Axis, rows: CsrRows, output: OutputTable) -> None:
        """Take the ratings of all rows that may be asked about by number."""
        self.axis, self.rows, self.output = axis, rows, output
        self.dtype = output.bias.dtype

    @abstractmethod
    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        """Return the states of rows given by their ratings, (B, S)."""

    @abstractmethod
    def states_without(
        self,
        ratings: RowRatings,
        rows: Array,
        columns: Array,
        levels: Array,
        *,
        serial: bool = True,
    ) -> Array:
        """Return states of pairs' rows, each without the rating that the pair is, (n, S)."""

    # -- questions ----------------------------------------------------------------------------

    def score_pairs(self, pairs: Pairs) -> Array:
        out = np.empty((len(pairs.row), self.output.bias.shape[1]), self.dtype)
        for places, states, which in self.pair_states(pairs):
            columns = np.maximum(pairs.column[places], 0)
            table, bias, shared = self.output
            score = scoring.score_cells if pairs.serial else _threaded_scores
            out[places] = score(states, which, columns, table, bias, shared=shared)
        return out

    def score_columns(self, rows: CsrRows) -> Array:
        table, bias, shared = self.output
        K, M = bias.T.shape
        states = self.states(ratings_of(rows)) if len(rows) else bias[:0]
        if len(rows) > FEW:
            from cfnade.kernels.scoring import level_products

            return level_products(states, table, bias, shared=shared).transpose(0, 2, 1)
        lines = np.empty((len(rows), K, M), self.dtype)
        for state, line in zip(states, lines, strict=True):
            scoring.score_all(state, table, bias, shared=shared, out=line)
        return lines.transpose(0, 2, 1)

    def score_rows(self, columns: IntArray) -> Array:
        states, (table, bias, shared) = self.all_states(), self.output
        weights, bias = table[columns], bias[columns]  # (B, K, S), (B, K)
        if shared:
            weights, bias = weights.cumsum(1), bias.cumsum(1)
        flat = weights.reshape(-1, weights.shape[2])
        if len(columns) > FEW:
            from cfnade.kernels.scoring import product

            products = product(flat, states)
        else:
            products = scoring.affine(flat, states, np.zeros(len(states), self.dtype))
        lines = products.reshape(*bias.shape, len(states))
        lines += bias[:, :, None]
        return np.asarray(lines.transpose(0, 2, 1))

    def fold_in_output(self) -> tuple[PairStates, OutputTable] | None:
        return self, self.output

    # -- states of pairs ----------------------------------------------------------------------

    def pair_states(self, pairs: Pairs) -> Iterator[tuple[IntArray, Array, IntArray]]:
        """Yield places of pairs, states (B, S), and which state each of these pairs has."""
        if not len(pairs.row):
            return
        if self.reads_all(pairs):
            yield from self._states_of_all(pairs)
            return
        for ratings, rows, places in rows_in_pieces(
            pairs.rows, pairs.row, self.output.table.shape[2]
        ):
            part = pairs if len(places) == len(pairs.row) else pairs.take(places)
            is_held = leaves_out(part)
            held = np.flatnonzero(is_held)
            if not len(held):
                yield places, self.states(ratings, serial=pairs.serial), rows
                continue
            if len(held) < len(rows):
                free = np.flatnonzero(~is_held)
                yield places[free], self.states(ratings, serial=pairs.serial), rows[free]
            held = held[np.argsort(rows[held], kind="stable")]
            rest = self._rest(ratings, rows[held], part.take(held))
            yield places[held], rest, np.arange(len(held))

    def reads_all(self, pairs: Pairs) -> bool:
        return pairs.rows is self.rows and self.axis == "item"

    def _states_of_all(self, pairs: Pairs) -> Iterator[tuple[IntArray, Array, IntArray]]:
        """The same by the states of all rows, which are kept."""
        held = leaves_out(pairs)
        free = np.flatnonzero(~held)
        if len(free):
            yield free, self._every_state, pairs.row[free]
        places = np.flatnonzero(held)
        step = max(1, PIECE // self.output.table.shape[2])
        for first in range(0, len(places), step):
            some = places[first : first + step]
            yield some, self.states_left(pairs.take(some)), np.arange(len(some))

    def states_left(self, pairs: Pairs) -> Array:
        """Return states of pairs, each of which leaves a rating out, (n, S)."""
        numbers, local = np.unique(pairs.row, return_inverse=True)
        rows = pairs.rows
        ratings = take_rows(rows.offsets, rows.columns, rows.levels, numbers)
        return self._rest(ratings, local, pairs)

    def _rest(self, ratings: RowRatings, rows: IntArray, pairs: Pairs) -> Array:
        """Return the states of pairs' rows without what they leave out, (n, S)."""
        columns, levels = pairs.column, pairs.levels
        if pairs.left_out is not None:
            further = np.flatnonzero(pairs.left_out >= 0)
            entries = pairs.left_out[further]
            also_columns = pairs.rows.columns[entries].astype(np.int64)
            also_levels = pairs.rows.levels[entries].astype(np.int64)
            both = levels[further] >= 0
            if both.any():
                return self._without_two(ratings, rows, pairs, further, also_columns)
            columns, levels = columns.copy(), levels.copy()
            columns[further], levels[further] = also_columns, also_levels
        return self.states_without(ratings, rows, columns, levels, serial=pairs.serial)

    def _without_two(
        self, ratings: RowRatings, rows: IntArray, pairs: Pairs, further: IntArray, also: IntArray
    ) -> Array:
        """The same where pairs leave out two ratings: from reduced rows, one for each of `also`."""
        ratings, rows = reduced_rows(ratings, rows, further, also)
        out, held = self.states(ratings, serial=pairs.serial)[rows], pairs.levels >= 0
        held[further] &= also != pairs.column[further]
        own = np.flatnonzero(held)
        cells = rows[own], pairs.column[own], pairs.levels[own]
        out[own] = self.states_without(ratings, *cells, serial=pairs.serial)
        return out

    # -- all rows -----------------------------------------------------------------------------

    def states_of(self, numbers: IntArray) -> Array:
        if len(self.rows) <= KEPT:
            return np.asarray(self._every_state[numbers])
        data = self.rows
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        return self.states(ratings, serial=False)

    def all_states(self) -> Array:
        """Return the states of all rows, (N, S)."""
        return self._every_state

    @locked_cached_property
    def _every_state(self) -> Array:
        return self.states(ratings_of(self.rows), serial=False)


def _threaded_scores(
    states: Array, which: IntArray, columns: IntArray, table: Array, bias: Array, *, shared: bool
) -> Array:
    return cell_scores(states, table, bias, which, columns, shared=shared)


def leaves_out(pairs: Pairs) -> Array:
    """Return which pairs leave a rating out, (n,)."""
    own = pairs.levels >= 0
    return np.asarray(own if pairs.left_out is None else own | (pairs.left_out >= 0))


def ratings_of(rows: CsrRows) -> RowRatings:
    """Return the ratings of all these rows."""
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts())
    return RowRatings(np.array(rows.offsets), numbers, *map(np.array, (rows.columns, rows.levels)))


def known_levels(rows: CsrRows, row: IntArray, column: IntArray) -> IntArray:
    """Return the level of each pair's rating in the rows, -1 where there is none, (n,)."""
    if len(row) == 1:  # of most requests
        part = slice(rows.offsets[row[0]], rows.offsets[row[0] + 1])
        found = rows.levels[part][rows.columns[part] == column[0]]
        return found.astype(np.int64) if len(found) else np.full(1, -1)
    out = np.empty(len(row), np.int64)
    for ratings, local, places in rows_in_pieces(rows, row, 0):
        out[places] = lookup_levels(ratings, local, column[places], rows.n_columns)
    return out


def reduced_rows(
    ratings: RowRatings, rows: IntArray, places: IntArray, columns: IntArray
) -> tuple[RowRatings, IntArray]:
    """Append rows that lack a column, one for each row and column, and let pairs read these.

    Args:
        ratings: The ratings of rows.
        rows: Row of each pair, (n,).
        places: Pairs that read a row without a column.
        columns: This column of each of them.
    """
    width = int(ratings.columns.max(initial=0)) + 1
    keys, which = np.unique(rows[places] * width + columns, return_inverse=True)
    of, lacking = keys // width, keys % width
    starts, ends = ratings.offsets[of], ratings.offsets[of + 1]
    sizes = ends - starts
    number = np.repeat(np.arange(len(of)), sizes)
    entries = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + starts[number]
    keep = ratings.columns[entries] != lacking[number]
    number, entries, first = number[keep], entries[keep], len(ratings.offsets) - 1
    reduced = RowRatings(
        np.concatenate(
            [
                ratings.offsets,
                ratings.offsets[-1] + np.cumsum(np.bincount(number, minlength=len(of))),
            ]
        ),
        np.concatenate([ratings.rows, (first + number).astype(ratings.rows.dtype)]),
        np.concatenate([ratings.columns, ratings.columns[entries]]),
        np.concatenate([ratings.levels, ratings.levels[entries]]),
    )
    rows = rows.copy()
    rows[places] = first + which
    return reduced, rows


def rows_in_pieces(
    data: CsrRows, rows: IntArray, width: int
) -> Iterator[tuple[RowRatings, IntArray, IntArray]]:
    """Yield the rows of pairs, some at a time, so that temporary arrays stay small.

    Yields the ratings of some rows, of which of them each pair is, and the places of these pairs.
    """
    if not len(rows):
        return
    if len(data) == 1 or len(rows) == 1:
        numbers, local = rows[:1], np.zeros(len(rows), np.int64)
    else:
        numbers, local = np.unique(rows, return_inverse=True)
    if len(numbers) == 1:
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        yield ratings, local, np.arange(len(rows))
        return
    counts = data.offsets[numbers + 1] - data.offsets[numbers]
    asked = np.bincount(local, minlength=len(counts))
    sizes = np.cumsum(width * (1 + asked) + counts)
    cuts = np.searchsorted(sizes, np.arange(4 * PIECE, int(sizes[-1]), 4 * PIECE))
    bounds = np.unique([0, *cuts, len(counts)]).tolist()
    if len(bounds) == 2:
        yield (
            take_rows(data.offsets, data.columns, data.levels, numbers),
            local,
            np.arange(len(rows)),
        )
        return
    order, ends = np.argsort(local, kind="stable"), np.concatenate([[0], np.cumsum(asked)])
    for first, end in pairwise(bounds):
        places = order[ends[first] : ends[end]]
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers[first:end])
        yield ratings, local[places] - first, places


class AdditiveComponent(RatingComponent):
    """A row enters as a sum of one term per rating, from which follow its state and its scores.

    Taking a term off leaves a rating out, adding one is an update, adding the sums of several
    processes is distribution.
    """

    axis: Axis

    @abstractmethod
    def row_sums(self, ratings: RowRatings) -> Array:
        """Return the sum of each row, (B, P)."""

    @abstractmethod
    def entry_terms(self, columns: IntArray, levels: IntArray) -> Array:
        """Return the term of each rating, (n, P)."""

    @abstractmethod
    def states(self, sums: Array, counts: IntArray) -> Array:
        """Return the states of rows with so many ratings, (B, S)."""

    @abstractmethod
    def output(self) -> OutputTable:
        """Return what turns states into scores."""

    def scorer(self, rows: CsrRows) -> ComponentScorer:
        return AdditiveRows(self, rows)


class AdditiveRows(RowStates):
    """Rows of any additive component."""

    def __init__(self, component: AdditiveComponent, rows: CsrRows) -> None:
        super().__init__(component.axis, rows, component.output())
        self._component = component

    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        del serial
        return self._component.states(self._component.row_sums(ratings), np.diff(ratings.offsets))

    def states_without(
        self,
        ratings: RowRatings,
        rows: Array,
        columns: Array,
        levels: Array,
        *,
        serial: bool = True,
    ) -> Array:
        del serial
        sums = self._component.row_sums(ratings)[rows]
        rest = sums - self._component.entry_terms(columns, levels)
        return self._component.states(rest, np.diff(ratings.offsets)[rows] - 1)
