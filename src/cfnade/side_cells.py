"""What one side of a model says about given cells: scores from the ratings that it conditions on.

Rows and columns are the side's own, -1 stands for one that is unknown. A cell that is in the
context is scored from the rest of its row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.data.rows import IntArray, Rows
from cfnade.kernels.autograd import cell_scores, context_sum
from cfnade.kernels.grouping import group
from cfnade.kernels.lookup import Known, levels_of, ratings_of
from cfnade.models.cfnade import CFNADE

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PIECE = 1 << 23
"""How many numbers the states of a chunk may hold: 32 MB in float32."""


class SideCells:
    """The context sorted into rows; models of these rows and columns are asked about cells."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def empty(self, rows: IntArray) -> BoolArray:
        """Of which of these rows nothing is known. Returns (n,)."""
        none: BoolArray = rows < 0
        none[~none] = self._rows.counts()[rows[~none]] == 0
        return none

    def scores(self, model: CFNADE, rows: IntArray, columns: IntArray) -> FloatArray:
        """Scores of all levels of each cell; an unknown column scores as column 0. (n, K)."""
        out = np.empty((len(rows), model.config.levels))
        for piece in self._pieces(rows, model.input_table.shape[2]):
            local, state = self._states(model, rows[piece], columns[piece])
            out[piece] = _scores(model, state, local, columns[piece])
        return out

    def known_levels(self, rows: IntArray, columns: IntArray) -> IntArray:
        """The level of each cell's rating in the context, -1 where there is none. Returns (n,)."""
        out = np.empty(len(rows), np.int64)
        for piece in self._pieces(rows, 1):
            numbers, local = np.unique(rows[piece], return_inverse=True)
            out[piece] = self._levels(self._known(numbers), local, columns[piece])
        return out

    def level_counts(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """How often each level stands in these rows, but for these columns of theirs. (n, K)."""
        K = self._rows.n_levels
        numbers, local = np.unique(rows, return_inverse=True)
        known = self._known(numbers)
        cells = np.bincount(
            known.rows.astype(np.int64) * K + known.levels, minlength=len(numbers) * K
        )
        counts: FloatArray = cells.reshape(-1, K)[local].astype(np.float64)
        own = self._levels(known, local, columns)
        held = np.flatnonzero(own >= 0)
        counts[held, own[held]] -= 1.0
        return counts

    # -- cells of a few rows -----------------------------------------------------------------

    @torch.no_grad()
    def _states(self, model: CFNADE, rows: IntArray, columns: IntArray) -> tuple[IntArray, Tensor]:
        """For each cell the number of its state (n,), and the states (B', D)."""
        numbers, local = np.unique(rows, return_inverse=True)
        known = self._known(numbers)
        levels = self._levels(known, local, columns)
        sums = _sums(model, known.rows, known.columns, known.levels, len(numbers))
        counts = torch.from_numpy(np.diff(known.offsets))
        held = np.flatnonzero(levels >= 0)
        if len(held):
            # A row more for each such cell: its own row's context without the cell's rating.
            each = np.arange(len(held))
            own = _sums(model, each, columns[held], levels[held], len(held))  # (c, D)
            at = torch.from_numpy(local[held])
            local[held] = len(sums) + each
            sums, counts = torch.cat([sums, sums[at] - own]), torch.cat([counts, counts[at] - 1])
        return local, model.output_state(model.hidden_from_sums(sums, counts))

    def _known(self, rows: IntArray) -> Known:
        return ratings_of(self._rows.offsets, self._rows.columns, self._rows.levels, rows)

    def _levels(self, known: Known, rows: IntArray, columns: IntArray) -> IntArray:
        """The known level of each cell, -1 where there is none. Returns (n,)."""
        found: IntArray = levels_of(known, rows, columns, self._rows.n_columns)
        return found

    def _pieces(self, rows: IntArray, width: int) -> list[IntArray]:
        """Cells of one row stay together as far as possible, so that its state is made once."""
        order = np.argsort(rows, kind="stable")
        step = max(1, PIECE // width)
        return [order[first : first + step] for first in range(0, len(order), step)]


def _sums(
    model: CFNADE,
    rows: npt.NDArray[np.integer],
    columns: npt.NDArray[np.integer],
    levels: npt.NDArray[np.integer],
    size: int,
) -> Tensor:
    """The summed context of each of `size` rows. Returns (size, D)."""
    M, K, _ = model.input_table.shape
    context = group(rows, columns, levels, size=size, n_columns=M, n_levels=K)
    return context_sum(model.input_table, context, shared=model.config.shared)


@torch.no_grad()
def _scores(model: CFNADE, state: Tensor, local: IntArray, columns: IntArray) -> FloatArray:
    scores = cell_scores(
        state,
        model.output_table,
        model.b,
        torch.from_numpy(local),
        torch.from_numpy(np.maximum(columns, 0)),
        shared=model.config.shared,
    )  # (n, K)
    found: FloatArray = scores.double().numpy()
    return found
