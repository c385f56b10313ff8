"""Scores of a whole line of the table: every column for a row, or every row for a column.

A known cell can be scored from the rest of its row: its embedding is taken off the summed context
and only the dense part of the network is computed again. Requests about a few rows run serially in
compiled loops that use no torch, so they may come from any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.data.rows import IndexArray, LevelArray, Rows
from cfnade.kernels import request
from cfnade.kernels.autograd import context_sum
from cfnade.models import ops
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE

Array = npt.NDArray[Any]  # of the model's dtype
IntArray = npt.NDArray[np.int64]

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


class Row(NamedTuple):
    """What is known of one row."""

    columns: IndexArray  # (c,)
    levels: LevelArray  # (c,)


NOTHING = Row(np.empty(0, np.int32), np.empty(0, np.uint8))


def row_of(rows: Rows, number: int) -> Row:
    """One of many rows; of an unknown one (-1) nothing is known."""
    if number < 0:
        return NOTHING
    part = slice(rows.offsets[number], rows.offsets[number + 1])
    return Row(rows.columns[part], rows.levels[part])


class Net:
    """A model's numbers as arrays (no copies), and its steps for a few rows."""

    def __init__(self, model: CFNADE) -> None:
        self.model = model
        self.shared = model.config.shared
        self._g = ACTIVATIONS[model.config.activation]
        self.input_table = _array(model.input_table)  # (M, K, D)
        self.output_table = _array(model.output_table)  # (M, K, D')
        self.b = _array(model.b)  # (M, K)
        self.c = _array(model.c)  # (H,)
        factored = model.config.factors is not None
        self._B = _array(model.B) if factored else None  # (H, J)
        self._Q = _array(model.Q) if factored else None  # (J, H)
        layers = zip(model.deep_W, model.deep_c, strict=True)
        self._deep = [(_array(W), _array(c)) for W, c in layers]

    def total(self, row: Row) -> Array:
        """The summed embeddings of a row's ratings. Returns (D,)."""
        return request.sum_ratings(row.columns, row.levels, self.input_table, shared=self.shared)

    def embeddings(self, row: Row) -> Iterator[tuple[slice, Array]]:
        """What each rating adds to a sum, some ratings at a time: yields (part, (c, D))."""
        step = max(1, PIECE // self.input_table.shape[2])
        for first in range(0, len(row.columns), step):
            part = slice(first, first + step)
            columns, levels = row.columns[part], row.levels[part]
            yield part, request.embed(columns, levels, self.input_table, shared=self.shared)

    def states(self, sums: Array, counts: IntArray) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, D')."""
        # What remains of a lone rating is nothing, not a rounding error.
        sums = np.where((counts > 0)[:, None], sums, 0).astype(self.c.dtype)
        mean = self.model.config.mean_context
        if mean is not None:
            ratio = mean / np.maximum(counts, 1).astype(sums.dtype)  # see hidden_from_sums
            sums = sums * np.sqrt(ratio, dtype=sums.dtype)[:, None]
        h = self._g(self.c + sums if self._B is None else request.affine(sums, self._B, self.c))
        for W, c in self._deep:
            h = self._g(request.affine(h, W, c))
        if self._Q is None:
            return h
        return request.affine(h, self._Q, np.zeros(len(self._Q), h.dtype))

    def state(self, row: Row) -> Array:
        """The state of one row. Returns (1, D')."""
        return self.states(self.total(row)[None], np.array([len(row.columns)]))

    def states_without(self, row: Row, total: Array) -> Iterator[tuple[slice, Array]]:
        """The row's state without each of its ratings, total (D,) being its sum: (c, D')."""
        left = len(row.columns) - 1
        for part, own in self.embeddings(row):
            yield part, self.states(total - own, np.full(len(own), left))

    def score_all(self, state: Array) -> Array:
        """Scores of every column for one state (D',). Returns (M, K)."""
        return request.score_all(state, self.output_table, self.b, shared=self.shared)

    def score_cells(self, states: Array, which: Array, columns: Array) -> Array:
        """Scores of columns (n,), each for one of the states (B, D'). Returns (n, K)."""
        return request.score_cells(
            states, which, columns, self.output_table, self.b, shared=self.shared
        )

    def column_scores(self, states: Array, column: int) -> Array:
        """Scores of one column for states (B, D'). Returns (B, K)."""
        which = np.arange(len(states))
        return self.score_cells(states, which, np.full(len(states), column))

    def row_cells(self, row: Row, columns: IntArray) -> Array:
        """Scores of some columns; those that are known are scored from the rest. Returns (n, K)."""
        total = self.total(row)
        state = self.states(total[None], np.array([len(row.columns)]))
        scores = self.score_cells(state, np.zeros(len(columns), np.int64), columns)
        held = np.isin(row.columns, columns)
        if held.any():
            known = Row(row.columns[held], row.levels[held])
            again = {int(column): at for at, column in enumerate(known.columns)}
            rest = np.concatenate(
                [
                    self.states(total - own, np.full(len(own), len(row.columns) - 1))
                    for _, own in self.embeddings(known)
                ]
            )
            places = np.array([again.get(column, -1) for column in columns.tolist()])
            cells = np.flatnonzero(places >= 0)
            scores[cells] = self.score_cells(rest, places[cells], columns[cells])
        return scores


def score_rows(net: Net, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Array]:
    """Scores of every column, for each row in turn: yields (M, K).

    If leave_out, known cells are scored from the rest of their row.
    """
    M, K, _ = net.output_table.shape
    step = max(1, PIECE // (M * K))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        totals = np.stack([net.total(row) for row in some])  # (B, D)
        counts = np.array([len(row.columns) for row in some])
        blocks = _score_all(net, totals, counts)
        for row, total, scores in zip(some, totals, blocks, strict=True):
            if leave_out:
                for part, state in net.states_without(row, total):
                    columns = row.columns[part]
                    scores[columns] = net.score_cells(state, np.arange(len(state)), columns)
            yield scores


@torch.no_grad()
def _score_all(net: Net, totals: Array, counts: IntArray) -> Sequence[Array] | Iterator[Array]:
    if len(totals) <= FEW:
        return (net.score_all(state) for state in net.states(totals, counts))
    model = net.model
    hidden = model.hidden_from_sums(torch.from_numpy(totals), torch.from_numpy(counts))
    state, shared = model.output_state(hidden), model.config.shared
    pieces = [s for _, s in ops.all_scores(state, model.output_table, model.b, shared=shared)]
    return list(torch.cat(pieces, 1).numpy())  # (B, M, K)


@torch.no_grad()
def all_sums(model: CFNADE, rows: Rows) -> Tensor:
    """The summed embeddings of each of many rows. Returns (N, D)."""
    parts = (rows.offsets, rows.columns.astype(np.int64), rows.levels.astype(np.int64))
    context = Context(*(torch.from_numpy(np.array(part)) for part in parts))
    return context_sum(model.input_table, context, shared=model.config.shared)


class AllRows:
    """The states of all rows, to score any column at once."""

    @torch.no_grad()
    def __init__(self, net: Net, rows: Rows) -> None:
        self.net = net
        sums = all_sums(net.model, rows)  # (N, D)
        self.sums, self.counts = sums.numpy(), rows.counts()
        hidden = net.model.hidden_from_sums(sums, torch.from_numpy(self.counts))
        self.states = np.ascontiguousarray(net.model.output_state(hidden).numpy())  # (N, D')

    def scores(self, column: int, known: Row, *, leave_out: bool) -> Array:
        """Scores of one column for every row; known are its rows (as "columns") and levels.

        If leave_out, known cells are scored from the rest of their row. Returns (N, K).
        """
        scores = self.net.column_scores(self.states, column)
        if leave_out and len(known.columns):
            self._rescore(scores, column, known.columns, known)
        return scores

    def cells(self, rows: IntArray, column: int, known: Row) -> Array:
        """Scores of one column for some rows, -1 an unknown one; what is known is left out."""
        net = self.net
        nothing = net.state(NOTHING)
        states = np.where((rows >= 0)[:, None], self.states[rows], nothing)
        scores = net.column_scores(states, column)
        levels = dict(zip(known.columns.tolist(), known.levels.tolist(), strict=True))
        at = [place for place, row in enumerate(rows.tolist()) if row in levels]
        if at:
            held = np.array([levels[row] for row in rows[at].tolist()], np.uint8)
            own = Row(rows[at].astype(np.int32), held)
            again = np.empty((len(at), scores.shape[1]), scores.dtype)
            self._rescore(again, column, np.arange(len(at)), own)
            scores[at] = again
        return scores

    def _rescore(self, out: Array, column: int, places: Array, known: Row) -> None:
        """out[places] = scores of the column in rows known.columns, without what is known there."""
        own_ratings = Row(np.full(len(known.columns), column, np.int32), known.levels)
        for part, own in self.net.embeddings(own_ratings):
            rows = known.columns[part]
            states = self.net.states(self.sums[rows] - own, self.counts[rows] - 1)
            out[places[part]] = self.net.column_scores(states, column)


def distributions(scores: Array) -> npt.NDArray[np.float64]:
    """Softmax over levels, in double precision. Returns (n, K)."""
    exact = scores.astype(np.float64)
    exact -= exact.max(1, keepdims=True)
    weights: npt.NDArray[np.float64] = np.exp(exact, out=exact)
    weights /= weights.sum(1, keepdims=True)
    return weights


def _array(parameter: Tensor) -> Array:
    return np.ascontiguousarray(parameter.detach().numpy())
