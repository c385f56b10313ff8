"""A side that is plain torch alone: what a new kind begins as, slow but whole.

`PlainRows` says what it says one context after another: obvious, and what faster ones are compared
with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Reading, Row, row_of
from cfnade.components.optimizers import TorchTrainer
from cfnade.components.readings import reading_of
from cfnade.components.trainable import TorchRowComponent
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.posterior import Evidence
from cfnade.models.batch import Context


class PlainComponent(TorchRowComponent):
    """Reads rows; a subclass says how it is made and saved, and how it scores cells."""

    @abstractmethod
    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells, each of a row of the context; differentiable. Returns (n, K)."""

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        """Everything moves at the usual rate, without decay."""
        del ratings, share
        names = [name for name, _ in self.network.named_parameters()]
        return dict.fromkeys(names, AdamRule(rate=settings.learning_rate))

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> TorchTrainer:
        del threads
        return TorchTrainer(self, self.rules(ratings, settings, share=share))

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, PlainRows(self.scores_given, context.rows(self.axis)), context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        del context, axis
        return None

    def evidence(self) -> Evidence | None:
        return None


ScoresGiven = Callable[[Context, Tensor, Tensor], Tensor]
"""Scores (n, K) of cells: the number of each one's context, and its column."""


class PlainRows:
    """A RowReading of any side that can score cells given contexts."""

    def __init__(self, scores: ScoresGiven, rows: CsrRows) -> None:
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
