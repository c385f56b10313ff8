"""What a CF-NADE says about its rows and columns, from the summed contexts of its rows.

A known cell is scored from the rest of its row: its embedding is taken off the summed context, and
only the dense part of the network is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Reading, Row, RowWeights
from cfnade.components.readings import reading_of
from cfnade.components.row_states import StateRows, as_ratings
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings, group_by_column, take_rows
from cfnade.kernels.scoring import context_sum
from cfnade.models.config import CFNADEConfig
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

KEPT = 1 << 16
"""Summed contexts of so many rows are kept once they are made; of more, each time what is asked."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
}


class NadeWeights(RowWeights):
    """A CF-NADE's numbers, by the names of models/cfnade.py."""

    config: CFNADEConfig

    @staticmethod
    def config_of(fields: Mapping[str, Any]) -> CFNADEConfig:
        return CFNADEConfig.from_dict(fields)

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = cls.config_of(fields)
        M, K, J, sizes = config.columns, config.levels, config.factors, config.hidden
        tables: dict[str, tuple[int, ...]]
        if J is None:
            tables = {"W": (M, K, sizes[0]), "V": (M, K, sizes[-1])}
        else:
            tables = {"A": (M, K, J), "P": (M, K, J), "B": (sizes[0], J), "Q": (J, sizes[-1])}
        layers = enumerate(pairwise(sizes))
        deep = {f"deep_W.{n}": (out, inner) for n, (inner, out) in layers}
        biases = {f"deep_c.{n}": (size,) for n, size in enumerate(sizes[1:])}
        return {**tables, "b": (M, K), "c": sizes[:1], **deep, **biases}

    @property
    def input_table(self) -> Array:
        """What a known rating adds. (M, K, D)."""
        return self.tables["W" if self.config.factors is None else "A"]

    @property
    def output_table(self) -> Array:
        """What the state is compared with. (M, K, D)."""
        return self.tables["V" if self.config.factors is None else "P"]

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, NadeRows(self, context.rows(self.axis)), context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Of a row its hidden state, of a column the output weights of its levels."""
        if axis != self.axis:
            return self.output_table.reshape(len(self.output_table), -1)
        return NadeRows(self, context.rows(axis)).hidden()


class NadeRows(StateRows):
    """A CF-NADE's numbers (no copies), and the rows that it reads."""

    def __init__(self, weights: NadeWeights, rows: CsrRows) -> None:
        tables, self._config = weights.tables, weights.config
        super().__init__(rows, weights.output_table, tables["b"], shared=self._config.shared)
        self._input, self._c = weights.input_table, tables["c"]
        self._g = _ACTIVATIONS[self._config.activation]
        self._B, self._Q = tables.get("B"), tables.get("Q")  # (H, J), (J, H) if factored
        layers = range(len(self._config.hidden) - 1)
        self._deep = [(tables[f"deep_W.{n}"], tables[f"deep_c.{n}"]) for n in layers]

    def states(self, ratings: RowRatings) -> Array:
        sums = scoring.sum_ratings(ratings, self._input, shared=self.shared)  # (B, D)
        return self._states(sums, np.diff(ratings.offsets))

    def states_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        out = np.empty((len(rows), self._output.shape[2]), self.dtype)
        sums = scoring.sum_ratings(ratings, self._input, shared=self.shared)
        counts = np.diff(ratings.offsets)
        step = max(1, PIECE // self._input.shape[2])
        for first in range(0, len(out), step):
            part = slice(first, first + step)
            own = scoring.embed(columns[part], levels[part], self._input, shared=self.shared)
            out[part] = self._states(sums[rows[part]] - own, counts[rows[part]] - 1)
        return out

    def some_without(self, row: Row, left_out: IntArray, columns: IntArray) -> Array:
        """Leave pairs of ratings out of a row: `LeavesPairsOut` in readings.py. (b, n, K)."""
        level = np.zeros(len(self._bias), np.int64)
        level[row.columns] = row.levels
        embed = partial(scoring.embed, table=self._input, shared=self.shared)
        whole = scoring.sum_ratings(as_ratings([row]), self._input, shared=self.shared)
        counts = np.full(max(len(left_out), len(columns)), len(row.columns) - 2)
        # What comes before the first activation is linear in the sum, so it is computed once for
        # each rating, not for each pair.
        rest = self._before_activation(
            whole - embed(left_out, level[left_out]),
            counts[: len(left_out)],
            self._c,
            scoring.affine,
        )
        terms = self._before_activation(
            embed(columns, level[columns]),
            counts[: len(columns)],
            np.zeros_like(self._c),
            scoring.affine,
        )
        out = np.empty((len(columns), len(left_out), self._bias.shape[1]), self.dtype)
        for column, term, scores in zip(columns.tolist(), terms, out, strict=True):
            check_cancelled()
            h = self._later_layers(self._g(rest - term), scoring.affine)
            states = self._projected(h, scoring.affine)
            scores[:] = scoring.affine(states, self._output[column], self._bias[column])
        if self.shared:
            np.cumsum(out, axis=2, out=out)
        return out.swapaxes(0, 1)

    def _many_states(self, ratings: RowRatings) -> Array:
        return self._states(self._threaded_sums(ratings), np.diff(ratings.offsets), _product)

    def _many_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        own = scoring.embed(columns, levels, self._input, shared=self.shared)
        sums = self._threaded_sums(ratings)[rows] - own
        return self._states(sums, np.diff(ratings.offsets)[rows] - 1, _product)

    def _threaded_sums(self, ratings: RowRatings) -> Array:
        M, K, _ = self._input.shape
        cells, size = (ratings.rows, ratings.columns, ratings.levels), len(ratings.offsets) - 1
        context = group_by_column(*cells, n_rows=size, n_columns=M, n_levels=K)
        return context_sum(self._input, context, shared=self.shared)

    # -- rows by number: what is summed is kept, so that a rating can be taken off -------------

    def _without_column(self, column: int, rows: IntArray, levels: IntArray) -> Array:
        sums, counts = self._sums_by_number(rows)
        own = np.full(len(rows), column), levels
        return self._states(sums - scoring.embed(*own, self._input, shared=self.shared), counts - 1)

    def _by_number(self, rows: IntArray) -> Array:
        if len(self.rows) <= KEPT:
            return super()._by_number(rows)
        return self._states(*self._sums_by_number(rows))

    def _all_states(self) -> Array:
        if len(self.rows) <= KEPT:
            return super()._all_states()
        return self._by_number(np.arange(len(self.rows)))

    @locked_cached_property
    def _every_state(self) -> Array:
        return self._states(*self._every)

    def _sums_by_number(self, rows: IntArray) -> tuple[Array, IntArray]:
        """Summed contexts of rows, and how many ratings each has: (n, D) and (n,)."""
        if len(self.rows) <= KEPT:
            sums, counts = self._every
            return sums[rows], counts[rows]
        numbers, local = np.unique(rows, return_inverse=True)
        sums, counts = self._some(numbers)
        return sums[local], counts[local]

    @locked_cached_property
    def _every(self) -> tuple[Array, IntArray]:
        """Of all rows, and last of one of which nothing is known."""
        return self._some(np.append(np.arange(len(self.rows)), -1))

    def _some(self, numbers: IntArray) -> tuple[Array, IntArray]:
        data = self.rows
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        return self._threaded_sums(ratings), np.diff(ratings.offsets)

    def hidden(self) -> Array:
        """The last layer of every row. Returns (N, H)."""
        sums, counts = self._every
        return self._hidden(sums[:-1], counts[:-1], _product)

    # -- pieces -------------------------------------------------------------------------------

    def _states(self, sums: Array, counts: IntArray, affine: Affine = scoring.affine) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, S)."""
        return self._projected(self._hidden(sums, counts, affine), affine)

    def _projected(self, h: Array, affine: Affine) -> Array:
        """What meets the output table, for a last layer (B, H): (B, S)."""
        if self._Q is None:
            return h
        return affine(h, self._Q, np.zeros(len(self._Q), h.dtype))

    def _hidden(self, sums: Array, counts: IntArray, affine: Affine) -> Array:
        """The last layer for the same. Returns (B, H)."""
        h = self._g(self._before_activation(sums, counts, self._c, affine))
        return self._later_layers(h, affine)

    def _before_activation(
        self, sums: Array, counts: IntArray, bias: Array, affine: Affine
    ) -> Array:
        """What enters the first activation, linear in the sums: (B, H)."""
        # What remains of a lone rating is nothing, not a rounding error.
        sums = np.where((counts > 0)[:, None], sums, 0).astype(self._c.dtype)
        mean = self._config.mean_context
        if mean is not None:
            # √(n̄/n): a sum of n independent terms grows with √n. No ratings, no sum to scale.
            ratio = mean / np.maximum(counts, 1).astype(sums.dtype)
            sums = sums * np.sqrt(ratio, dtype=sums.dtype)[:, None]
        return bias + sums if self._B is None else affine(sums, self._B, bias)

    def _later_layers(self, h: Array, affine: Affine) -> Array:
        for W, c in self._deep:
            h = self._g(affine(h, W, c))
        return h


Affine = Callable[[Array, Array, Array], Array]
"""bias + rows @ weights.T, for rows, weights and bias."""


def _product(rows: Array, weights: Array, bias: Array) -> Array:
    """The same as request.affine of many rows: a matrix product, for which threads may help."""
    out = rows @ weights.T
    out += bias
    return out
