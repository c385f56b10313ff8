"""What a bundle says about given cells, from the ratings that it conditions on.

A cell is a user and an item, by index; -1 stands for an id that the model has never met. Nothing is
calibrated here. A cell that is in the context is predicted from the rest of its row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.bundle import Bundle
from cfnade.data.rows import IntArray
from cfnade.errors import PredictionError
from cfnade.kernels.autograd import cell_scores, context_sum
from cfnade.models.batch import Context
from cfnade.models.distribution import Distribution
from cfnade.models.unseen import unseen_rule

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PIECE = 1 << 23
"""How many numbers the states of a chunk may hold: 32 MB in float32."""


def cell_probabilities(bundle: Bundle, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
    """The distribution over levels of each cell, before calibration. Returns (n, K).

    For many calls keep a `Cells` instead: it sorts the context into rows only once.
    """
    return Cells(bundle).probabilities(users, items)


def unseen_columns(
    columns: IntArray, column_counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Which of these columns training saw no rating of, or does not know at all (-1)."""
    unseen: BoolArray = (columns < 0) | (column_counts.sum(1)[columns] == 0)
    return unseen


class _Known(NamedTuple):
    """The context of some rows, each rating with the number of its row among them."""

    offsets: IntArray  # (B+1,)
    rows: IntArray  # (C,)
    columns: IntArray  # (C,)
    levels: IntArray  # (C,)


class Cells:
    """Answers about cells; the context is sorted into rows once."""

    def __init__(self, bundle: Bundle, *, unseen: str = "mean") -> None:
        self.bundle = bundle
        context = bundle.context
        counts = torch.from_numpy(np.array(bundle.column_counts.sum(0)))
        self._rule = unseen_rule(unseen, counts=counts, values=context.scale.values)
        self._rows = context.rows(bundle.side)
        self._limits = {"users": context.n_users, "items": context.n_items}

    def probabilities(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """The distribution over levels of each cell, before calibration. Returns (n, K)."""
        rows, columns = self._cells(users, items)
        order = np.argsort(rows, kind="stable")
        out = np.empty((len(rows), len(self.bundle.context.scale)))
        for piece in self._pieces(order):
            out[piece] = self._probabilities(rows[piece], columns[piece])
        return self._with_unseen(out, rows, columns)

    def _with_unseen(self, found: FloatArray, rows: IntArray, columns: IntArray) -> FloatArray:
        """Apply the rule of models/unseen.py where training saw no rating of a column or row."""
        empty, known = rows < 0, rows >= 0
        empty[known] = self._rows.counts()[rows[known]] == 0
        distribution = Distribution.from_probabilities(
            torch.from_numpy(found), self.bundle.context.scale.values
        )
        ruled = self._rule.apply(
            distribution,
            unseen_column=torch.from_numpy(unseen_columns(columns, self.bundle.column_counts)),
            unseen_row=torch.from_numpy(empty),
        )
        return ruled.probabilities.numpy()

    def known_levels(self, users: npt.ArrayLike, items: npt.ArrayLike) -> IntArray:
        """The level of each cell's rating in the context, -1 where there is none. Returns (n,)."""
        rows, columns = self._cells(users, items)
        order = np.argsort(rows, kind="stable")
        out = np.empty(len(rows), np.int64)
        for piece in self._pieces(order):
            numbers, local = np.unique(rows[piece], return_inverse=True)
            out[piece] = self._levels(self._known(numbers), local, columns[piece])
        return out

    # -- cells of a few rows -----------------------------------------------------------------

    def _probabilities(self, rows: IntArray, columns: IntArray) -> FloatArray:
        model = self.bundle.model
        numbers, local = np.unique(rows, return_inverse=True)
        known = self._known(numbers)
        levels = self._levels(known, local, columns)
        with torch.no_grad():
            sums = self._sums(known.offsets, known.columns, known.levels)
            counts = torch.from_numpy(np.diff(known.offsets))
            held = np.flatnonzero(levels >= 0)
            if len(held):
                local[held], sums, counts = self._without(
                    local[held], columns[held], levels[held], sums, counts
                )
            state = model.output_state(model.hidden_from_sums(sums, counts))  # (B', D)
            scores = cell_scores(
                state,
                model.output_table,
                model.b,
                torch.from_numpy(local),
                torch.from_numpy(np.maximum(columns, 0)),
                shared=model.config.shared,
            )  # (n, K)
            found: FloatArray = scores.double().softmax(1).numpy()
        return found

    def _without(
        self, local: IntArray, columns: IntArray, levels: IntArray, sums: Tensor, counts: Tensor
    ) -> tuple[IntArray, Tensor, Tensor]:
        """Add a row for each cell: its own row's context without the cell's rating."""
        own = self._sums(np.arange(len(local) + 1), columns, levels)  # (n, D)
        rows = torch.from_numpy(local)
        numbers = len(sums) + np.arange(len(local))
        return numbers, torch.cat([sums, sums[rows] - own]), torch.cat([counts, counts[rows] - 1])

    def _sums(self, offsets: IntArray, columns: IntArray, levels: IntArray) -> Tensor:
        model = self.bundle.model
        context = Context(*(torch.from_numpy(a) for a in (offsets, columns, levels)))
        return context_sum(model.input_table, context, shared=model.config.shared)

    def _known(self, rows: IntArray) -> _Known:
        """The context of these rows; a row that is unknown (-1) has none."""
        starts, ends = self._rows.offsets[rows], self._rows.offsets[rows + 1]
        counts = np.where(rows < 0, 0, ends - starts)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        numbers = np.repeat(np.arange(len(rows)), counts)
        places = np.arange(len(numbers)) + (starts - offsets[:-1])[numbers]
        columns, levels = self._rows.columns[places], self._rows.levels[places]
        return _Known(offsets, numbers, columns.astype(np.int64), levels.astype(np.int64))

    def _levels(self, known: _Known, rows: IntArray, columns: IntArray) -> IntArray:
        """The known level of each cell, -1 where there is none. Returns (n,)."""
        stride = self._rows.n_columns + 1  # an unknown column (-1) is a column of its own here
        cells, which = np.unique(rows * stride + columns + 1, return_inverse=True)
        keys = known.rows * stride + known.columns + 1
        at = np.minimum(np.searchsorted(cells, keys), len(cells) - 1)
        hits = cells[at] == keys
        levels = np.full(len(cells), -1, np.int64)
        levels[at[hits]] = known.levels[hits]
        return levels[which]

    # -- borders -----------------------------------------------------------------------------

    def _pieces(self, order: IntArray) -> list[IntArray]:
        """Cells of one row stay together as far as possible, so that its state is made once."""
        step = max(1, PIECE // self.bundle.model.input_table.shape[2])
        return [order[first : first + step] for first in range(0, len(order), step)]

    def _cells(self, users: npt.ArrayLike, items: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """Checked rows and columns of the model."""
        given = {"users": np.asarray(users), "items": np.asarray(items)}
        checked = [_indices(name, array, self._limits[name]) for name, array in given.items()]
        if len(checked[0]) != len(checked[1]):
            raise PredictionError(
                f"{len(checked[0])} users and {len(checked[1])} items were given; a cell is one "
                "of each, so give equally many"
            )
        rows, columns = checked if self.bundle.side == "user" else checked[::-1]
        if not self.bundle.has_context and bool((rows >= 0).any()):
            raise PredictionError(
                "this model was saved without its context, so nothing is known of the "
                f"{self.bundle.side}s in its data; give histories, or the model with its context"
            )
        return rows, columns


def _indices(name: str, given: npt.NDArray[Any], limit: int) -> IntArray:
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise PredictionError(
            f"{name} have dtype {given.dtype} and shape {given.shape}; give a one-dimensional "
            "array of whole numbers"
        )
    array = given.astype(np.int64)
    if array.size and not (array.min() >= -1 and array.max() < limit):
        bad = array[(array < -1) | (array >= limit)][0]
        raise PredictionError(
            f"{name} contains {bad}; it must lie in 0..{limit - 1}, or be -1 for an unknown one"
        )
    return array
