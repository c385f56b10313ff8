"""Scores of a whole line of the table: every column for a row, or every row for a column.

A known cell can be scored from the rest of its row: its embedding is taken off the summed context
and only the dense part of the network is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cfnade.data.rows import IndexArray, LevelArray, Rows
from cfnade.kernels.autograd import context_sum
from cfnade.kernels.predict import score_all, sum_row
from cfnade.kernels.threads import one_torch_thread
from cfnade.models import ops
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

FEW = 4
"""How many rows are faster scored one by one than by a matrix product."""


def one_thread_if(small: bool) -> AbstractContextManager[None]:
    """Keep torch on this thread for small work: calling its other threads takes longer."""
    return one_torch_thread() if small else nullcontext()


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


def row_sum(model: CFNADE, row: Row) -> Tensor:
    """The summed embeddings of a row's ratings. Returns (D,)."""
    return sum_row(model.input_table, row.columns, row.levels, shared=model.config.shared)


def all_sums(model: CFNADE, rows: Rows) -> Tensor:
    """The summed embeddings of each of many rows. Returns (N, D)."""
    parts = (rows.offsets, rows.columns.astype(np.int64), rows.levels.astype(np.int64))
    context = Context(*(torch.from_numpy(np.array(part)) for part in parts))
    return context_sum(model.input_table, context, shared=model.config.shared)


def states(model: CFNADE, sums: Tensor, counts: Tensor) -> Tensor:
    """What meets the output table, for sums (B, D) of counts (B,) ratings each. Returns (B, D)."""
    # What remains of a lone rating is nothing, not a rounding error.
    sums = torch.where((counts > 0).unsqueeze(1), sums, 0.0)
    return model.output_state(model.hidden_from_sums(sums, counts))


def embeddings(model: CFNADE, columns: Tensor, levels: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """What each rating adds to a sum, some ratings at a time: yields (part, (c, D))."""
    table = model.input_table
    _, K, D = table.shape
    ladder = torch.arange(K)
    step = max(1, PIECE // (K * D))
    for first in range(0, len(columns), step):
        part = slice(first, first + step)
        level = levels[part].unsqueeze(1)
        used = ladder <= level if model.config.shared else ladder == level  # (c, K)
        vectors = table[columns[part]]  # (c, K, D)
        yield part, torch.bmm(used.to(vectors.dtype).unsqueeze(1), vectors).squeeze(1)


def states_without(model: CFNADE, row: Row, total: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The row's state without each of its ratings: yields (part, (c, D)). total (D,) is its sum."""
    columns, levels = torch.from_numpy(row.columns.astype(np.int64)), _long(row.levels)
    left = len(row.columns) - 1
    for part, own in embeddings(model, columns, levels):
        yield part, states(model, total - own, torch.full((len(own),), left))


def column_scores(model: CFNADE, state: Tensor, column: int) -> Tensor:
    """Scores of one column for states (B, D). Returns (B, K)."""
    scores = state @ model.output_table[column].T + model.b[column]  # (B, K)
    return scores.cumsum(1) if model.config.shared else scores


def score_rows(model: CFNADE, rows: Sequence[Row], *, leave_out: bool) -> Iterator[Tensor]:
    """Scores of every column, for each row in turn: yields (M, K).

    If leave_out, known cells are scored from the rest of their row.
    """
    M, K, _ = model.output_table.shape
    step = max(1, PIECE // (M * K))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        totals = torch.stack([row_sum(model, row) for row in some])  # (B, D)
        counts = torch.tensor([len(row.columns) for row in some])
        blocks = _score_all(model, states(model, totals, counts))
        for row, total, scores in zip(some, totals, blocks, strict=True):
            if leave_out:
                _rescore_known(model, row, total, scores)
            yield scores


def _score_all(model: CFNADE, state: Tensor) -> Iterator[Tensor]:
    table, bias, shared = model.output_table, model.b, model.config.shared
    if len(state) <= FEW:
        for one in state:
            yield score_all(one, table, bias, shared=shared)
    else:
        pieces = [scores for _, scores in ops.all_scores(state, table, bias, shared=shared)]
        yield from torch.cat(pieces, 1)  # (B, M, K)


def _rescore_known(model: CFNADE, row: Row, total: Tensor, scores: Tensor) -> None:
    columns = torch.from_numpy(row.columns.astype(np.int64))
    table, bias, shared = model.output_table, model.b, model.config.shared
    for part, state in states_without(model, row, total):
        numbers = torch.arange(len(state))
        scores[columns[part]] = ops.cell_scores(
            state, table, bias, numbers, columns[part], shared=shared
        )


class AllRows:
    """The states of all rows, to score any column at once."""

    def __init__(self, model: CFNADE, rows: Rows) -> None:
        self.model = model
        self.sums = all_sums(model, rows)  # (N, D)
        self.counts = torch.from_numpy(rows.counts())
        self.states = states(model, self.sums, self.counts)  # (N, D)

    def scores(self, column: int, known: Row, *, leave_out: bool) -> Tensor:
        """Scores of one column for every row; known are its rows (as "columns") and levels.

        If leave_out, known cells are scored from the rest of their row. Returns (N, K).
        """
        scores = column_scores(self.model, self.states, column)
        if leave_out and len(known.columns):
            rows = torch.from_numpy(known.columns.astype(np.int64))
            columns = torch.full((len(rows),), column)
            for part, own in embeddings(self.model, columns, _long(known.levels)):
                at = rows[part]
                state = states(self.model, self.sums[at] - own, self.counts[at] - 1)
                scores[at] = column_scores(self.model, state, column)
        return scores


def _long(levels: LevelArray) -> Tensor:
    return torch.from_numpy(levels.astype(np.int64))
