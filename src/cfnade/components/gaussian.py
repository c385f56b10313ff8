"""What is said about rows and columns from the posteriors of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from cfnade.components.base import Array, Axis, OutputTable
from cfnade.components.row_states import PIECE, RowStates
from cfnade.data.csr import CsrRows
from cfnade.kernels.column_groups import RowRatings
from cfnade.kernels.posterior import (
    Evidence,
    Posteriors,
    RaggedRows,
    leave_one_out,
    row_sums,
    solve_sums,
)
from cfnade.kernels.threads import run_parallel


def posteriors_of(rows: RaggedRows, evidence: Evidence, threads: int = 1) -> Posteriors:
    """Of all rows."""
    B, D = len(rows.offsets) - 1, len(evidence.prior)
    out = Posteriors(*(np.empty(shape, evidence.E.dtype) for shape in ((B, D, D), (B, D), (B,))))
    cuts = np.searchsorted(rows.offsets, rows.offsets[-1] * np.arange(1, threads) / threads)
    bounds = pairwise([0, *cuts.tolist(), B])
    sums = np.empty((B, evidence.products.shape[1] + D), evidence.E.dtype)

    def solve_part(lo: int, hi: int) -> None:
        row_sums(lo, hi, rows, evidence, sums)
        solve_sums(lo, hi, sums, evidence, out)

    run_parallel(solve_part, list(bounds))
    return out


class PosteriorRows(RowStates):
    """A state is (γ m, ω); of several bodies of evidence, each m and the mean of ω."""

    def __init__(
        self,
        axis: Axis,
        rows: CsrRows,
        evidence: Sequence[Evidence],
        output: OutputTable,
        *,
        gain: Callable[[Array], Array] = np.ones_like,
    ) -> None:
        super().__init__(axis, rows, output)
        self._gain, self._evidence = gain, evidence

    @property
    def width(self) -> int:
        """S."""
        return int(self.output.table.shape[2])

    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        del serial
        D, rows = len(self._evidence[0].prior), len(ratings.offsets) - 1
        out = np.empty((rows, len(self._evidence) * D + 1), self.dtype)
        step, ragged = max(1, PIECE // (D * D)), _ragged(ratings)
        for first in range(0, rows, step):
            offsets = np.array(ratings.offsets[first : first + step + 1])
            some = ragged._replace(offsets=offsets)
            posteriors = [posteriors_of(some, evidence) for evidence in self._evidence]
            parts = [(one.means, one.unknown) for one in posteriors]
            out[first : first + step] = self._joined(parts)
        return out

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
        ragged = _ragged(ratings)
        cells = tuple(np.array(part, np.int64) for part in (rows, columns, levels))
        parts = []
        for evidence in self._evidence:
            means = np.empty((len(rows), len(evidence.prior)), self.dtype)
            unknown = np.empty(len(rows), self.dtype)
            leave_one_out(ragged, cells, evidence, means, unknown)
            parts.append((means, unknown))
        return self._joined(parts)

    def _joined(self, parts: Sequence[tuple[Array, Array]]) -> Array:
        means = [mean * self._gain(unknown).astype(self.dtype)[:, None] for mean, unknown in parts]
        unknown = parts[0][1]
        if len(parts) > 1:
            unknown = np.mean([unknown for _, unknown in parts], axis=0, dtype=self.dtype)
        return np.concatenate([*means, unknown[:, None]], 1)


def _ragged(ratings: RowRatings) -> RaggedRows:
    """In arrays that may be written to, whatever was given: another kind would compile anew."""
    return RaggedRows(
        np.require(ratings.offsets, np.int64, "W"),
        np.require(ratings.columns, np.int32, "W"),
        np.require(ratings.levels, np.uint8, "W"),
    )
