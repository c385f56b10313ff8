"""What a CF-NADE says about its rows and columns, from the summed contexts of its rows.

A known cell is scored from the rest of its row: its embedding is taken off the summed context, and
only the dense part of the network is computed again. Cells of many rows go through threaded
kernels; whatever is asked of one row runs serially on the calling thread and uses no torch, so its
bits depend on nothing but the question. Lists of more than a few rows are matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.data.ratings import IntArray, Rows
from cfnade.kernels import request
from cfnade.kernels.forward import cell_scores, context_sum
from cfnade.kernels.grouping import group, levels_of, ratings_of
from cfnade.models.cfnade import CFNADENetwork
from cfnade.once import once
from cfnade.sides.nade_features import features_of
from cfnade.sides.readings import ColumnFeatures
from cfnade.sides.side import NOTHING, Array, Row

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

KEPT = 1 << 16
"""Summed contexts of so many rows are kept once they are made; of more, each time what is asked."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


class _States(NamedTuple):
    """All rows at once: what meets the output table, and what it was made of."""

    states: Array  # (N, D')
    sums: Array  # (N, D)
    counts: IntArray  # (N,)


class NadeRows:
    """A network's numbers as arrays (no copies), and the rows that it reads."""

    def __init__(self, network: CFNADENetwork, rows: Rows) -> None:
        self.network, self.rows = network, rows
        self._shared = network.config.shared
        self._g = _ACTIVATIONS[network.config.activation]
        self._input, self._output = _array(network.input_table), _array(network.output_table)
        self._b, self._c = _array(network.b), _array(network.c)  # (M, K), (H,)
        self.dtype = self._b.dtype
        factored = network.config.factors is not None
        self._B = _array(network.B) if factored else None  # (H, J)
        self._Q = _array(network.Q) if factored else None  # (J, H)
        layers = zip(network.deep_W, network.deep_c, strict=True)
        self._deep = [(_array(W), _array(c)) for W, c in layers]

    # -- cells of many rows -------------------------------------------------------------------

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        """Scores of cells; those of one row go together, so that its state is made once. (n, K)."""
        out = np.empty((len(rows), self._output.shape[1]), self._b.dtype)
        order = np.argsort(rows, kind="stable")
        step = max(1, 2 * PIECE // self._input.shape[2])
        for first in range(0, len(order), step):
            piece = order[first : first + step]
            out[piece] = self._piece(rows[piece], columns[piece])
        return out

    @torch.no_grad()
    def _piece(self, rows: IntArray, columns: IntArray) -> Array:
        network, data = self.network, self.rows
        numbers, local = np.unique(rows, return_inverse=True)
        known = ratings_of(data.offsets, data.columns, data.levels, numbers)
        levels = levels_of(known, local, columns, data.n_columns)
        sums = self._sums(known.rows, known.columns, known.levels, len(numbers))
        counts = torch.from_numpy(np.diff(known.offsets))
        held = np.flatnonzero(levels >= 0)
        if len(held):
            # A row more for each such cell: its own row's context without the cell's rating.
            each = np.arange(len(held))
            own = self._sums(each, columns[held], levels[held], len(held))  # (c, D)
            whole = torch.from_numpy(local[held])
            local[held] = len(sums) + each
            sums = torch.cat([sums, sums[whole] - own])
            counts = torch.cat([counts, counts[whole] - 1])
        state = network.output_state(network.hidden_from_sums(sums, counts))
        scores = cell_scores(
            state,
            network.output_table,
            network.b,
            local,
            np.maximum(columns, 0),
            shared=self._shared,
        )
        return np.asarray(scores.numpy())

    def _sums(
        self,
        rows: npt.NDArray[np.integer],
        columns: npt.NDArray[np.integer],
        levels: npt.NDArray[np.integer],
        size: int,
    ) -> Tensor:
        """The summed context of each of `size` rows. Returns (size, D)."""
        M, K, _ = self._input.shape
        context = group(rows, columns, levels, size=size, n_columns=M, n_levels=K)
        return context_sum(self.network.input_table, context, shared=self._shared)

    # -- one row, given by its ratings --------------------------------------------------------

    def some(self, row: Row, columns: IntArray) -> Array:
        columns = np.maximum(columns, 0)
        return self._score(*self.states_given(row, columns), columns)

    def states_given(self, row: Row, columns: IntArray) -> tuple[Array, IntArray]:
        """States of a row without each of some columns: (B, D'), and which is whose, (n,)."""
        total = self._total(row)
        states = self._states(total[None], np.array([len(row.columns)]))
        which = np.zeros(len(columns), np.int64)
        held = np.flatnonzero(np.isin(row.columns, columns))
        if len(held):
            # A state more for each column that is known: without what is known of it.
            known = Row(row.columns[held], row.levels[held])
            rest = self._states_without(known, total, len(row.columns))
            states = np.concatenate([states, rest])
            place = np.zeros(self._b.shape[0] + 1, np.int64)  # the last one: of an unknown column
            place[known.columns] = 1 + np.arange(len(held))
            which = place[columns]
        return states, which

    def without_each(self, row: Row, column: int) -> Array:
        return self._column(self.states_without_each(row), column)

    def without_levels(self, row: Row, column: int) -> Array:
        return self._column(self.states_without_levels(row), column)

    def states_without_each(self, row: Row) -> Array:
        """States of a row without each of its ratings. Returns (c, D')."""
        return self._states_without(row, self._total(row), len(row.columns))

    def states_without_levels(self, row: Row) -> Array:
        """States of a row without all ratings of each level. Returns (K, D')."""
        K = self._output.shape[1]
        counts = np.bincount(row.levels, minlength=K)
        total = self._total(row)
        shares = np.zeros((K, len(total)), total.dtype)  # what each level's ratings add up to
        for level in np.flatnonzero(counts):
            mine = row.levels == level
            shares[level] = self._total(Row(row.columns[mine], row.levels[mine]))
        return self._states(total - shares, len(row.levels) - counts)

    # -- all columns of rows ------------------------------------------------------------------

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Array]:
        M, K, _ = self._output.shape
        step = max(1, PIECE // (M * K))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            totals = np.stack([self._total(row) for row in some])  # (B, D)
            counts = np.array([len(row.columns) for row in some])
            states = self._states(totals, counts)
            few = len(some) <= FEW
            lines = map(self._score_all, states) if few else self._product(states)
            for row, total, scores in zip(some, totals, lines, strict=True):
                if leave_out:
                    rest = self._states_without(row, total, len(row.columns))
                    scores[row.columns] = self._score(rest, np.arange(len(rest)), row.columns)
                yield scores

    def _score_all(self, state: Array) -> Array:
        return request.score_all(state, self._output, self._b, shared=self._shared)

    def _product(self, states: Array) -> Array:
        """Scores of every column for each state. Returns (B, M, K)."""
        M, K, width = self._output.shape
        flat = torch.from_numpy(states) @ torch.from_numpy(self._output).view(-1, width).T
        scores = flat.view(-1, M, K) + torch.from_numpy(self._b)
        return np.asarray((scores.cumsum(2) if self._shared else scores).numpy())

    # -- one column of rows -------------------------------------------------------------------

    def down(self, column: int, rows: IntArray | None, raters: Row, *, leave_out: bool) -> Array:
        every = self._all_rows
        if rows is None:
            scores, numbers = self._column(every.states, column), np.arange(len(self.rows))
        else:
            nothing = self._states(self._total(NOTHING)[None], np.array([0]))
            states = np.where((rows >= 0)[:, None], every.states[rows], nothing)
            scores, numbers = self._column(states, column), rows
        if leave_out:
            level = np.full(len(self.rows) + 1, -1)  # the last one is that of an unknown row
            level[raters.columns] = raters.levels
            held = np.flatnonzero(level[numbers] >= 0)
            self._rescore(scores, held, numbers[held], column, level[numbers[held]])
        return scores

    def states_down(self, column: int, rows: IntArray, raters: Row) -> Array:
        """States of rows by number without what they say of a column, if it is one. (n, D')."""
        sums, counts = self._some_rows(rows)
        if column >= 0:
            level = np.full(len(self.rows) + 1, -1)
            level[raters.columns] = raters.levels
            held = np.flatnonzero(level[rows] >= 0)
            sums[held] -= self._embed(np.full(len(held), column), level[rows[held]])
            counts[held] -= 1
        return self._states(sums, counts)

    def _some_rows(self, rows: IntArray) -> tuple[Array, IntArray]:
        """Summed contexts of rows by number, and how many ratings each has: (n, D) and (n,)."""
        if len(self.rows) <= KEPT:
            every = self._all_rows
            known = rows >= 0
            return every.sums[rows] * known[:, None], every.counts[rows] * known
        data = self.rows
        numbers, local = np.unique(rows, return_inverse=True)
        known_ratings = ratings_of(data.offsets, data.columns, data.levels, numbers)
        parts = known_ratings.rows, known_ratings.columns, known_ratings.levels
        with torch.no_grad():
            sums = self._sums(*parts, len(numbers))
        return sums.numpy()[local], np.diff(known_ratings.offsets)[local]

    def _rescore(
        self, scores: Array, places: IntArray, rows: IntArray, column: int, levels: IntArray
    ) -> None:
        """scores[places] = those of the column in these rows, without its own rating there."""
        every, step = self._all_rows, max(1, PIECE // self._input.shape[2])
        for first in range(0, len(places), step):
            part = slice(first, first + step)
            own = self._embed(np.full(len(rows[part]), column), levels[part])
            states = self._states(every.sums[rows[part]] - own, every.counts[rows[part]] - 1)
            scores[places[part]] = self._column(states, column)

    @once
    def _all_rows(self) -> _States:
        with torch.no_grad():
            rows, network = self.rows, self.network
            numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts())
            sums = self._sums(numbers, rows.columns, rows.levels, len(rows))
            hidden = network.hidden_from_sums(sums, torch.from_numpy(rows.counts()))
            states = np.ascontiguousarray(network.output_state(hidden).numpy())
        return _States(states, np.asarray(sums.numpy()), rows.counts())

    def hidden(self) -> Tensor:
        """The last layer of every row. Returns (N, H)."""
        every = self._all_rows
        return self.network.hidden_from_sums(*map(torch.from_numpy, (every.sums, every.counts)))

    def features(self, counts: IntArray) -> ColumnFeatures | None:
        return features_of(self, self._output, self._b, counts)

    # -- pieces -------------------------------------------------------------------------------

    def _total(self, row: Row) -> Array:
        """The summed embeddings of a row's ratings. Returns (D,)."""
        return request.sum_ratings(row.columns, row.levels, self._input, shared=self._shared)

    def _embed(self, columns: Array, levels: Array) -> Array:
        """What each rating adds to a sum. Returns (c, D)."""
        return request.embed(columns, levels, self._input, shared=self._shared)

    def _states(self, sums: Array, counts: IntArray) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, D')."""
        # What remains of a lone rating is nothing, not a rounding error.
        sums = np.where((counts > 0)[:, None], sums, 0).astype(self._c.dtype)
        mean = self.network.config.mean_context
        if mean is not None:
            ratio = mean / np.maximum(counts, 1).astype(sums.dtype)  # see hidden_from_sums
            sums = sums * np.sqrt(ratio, dtype=sums.dtype)[:, None]
        h = self._g(self._c + sums if self._B is None else request.affine(sums, self._B, self._c))
        for W, c in self._deep:
            h = self._g(request.affine(h, W, c))
        if self._Q is None:
            return h
        return request.affine(h, self._Q, np.zeros(len(self._Q), h.dtype))

    def _states_without(self, known: Row, total: Array, count: int) -> Array:
        """The state of a row of `count` ratings without each of some of them. Returns (c, D')."""
        out = np.empty((len(known.columns), self._output.shape[2]), self._b.dtype)
        step = max(1, PIECE // self._input.shape[2])
        for first in range(0, len(out), step):
            part = slice(first, first + step)
            own = self._embed(known.columns[part], known.levels[part])
            out[part] = self._states(total - own, np.full(len(own), count - 1))
        return out

    def _score(self, states: Array, which: Array, columns: Array) -> Array:
        """Scores of columns (n,), each for one of the states (B, D'). Returns (n, K)."""
        return request.score_cells(
            states, which, columns, self._output, self._b, shared=self._shared
        )

    def _column(self, states: Array, column: int) -> Array:
        """Scores of one column for each state. Returns (B, K)."""
        return self._score(states, np.arange(len(states)), np.full(len(states), column))


def _array(parameter: Tensor) -> Array:
    return np.ascontiguousarray(parameter.detach().numpy())
