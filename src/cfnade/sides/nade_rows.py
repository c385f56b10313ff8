"""What a CF-NADE says about its rows and columns, from the summed contexts of its rows.

A known cell is scored from the rest of its row: its embedding is taken off the summed context, and
only the dense part of the network is computed again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cfnade.data.ratings import IntArray, Rows
from cfnade.kernels import request
from cfnade.kernels.forward import context_sum
from cfnade.kernels.grouping import RowRatings, group, ratings_of
from cfnade.models.cfnade import CFNADENetwork
from cfnade.once import once
from cfnade.sides.side import Array
from cfnade.sides.state_rows import StateRows

PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

KEPT = 1 << 16
"""Summed contexts of so many rows are kept once they are made; of more, each time what is asked."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


class NadeRows(StateRows):
    """A network's numbers as arrays (no copies), and the rows that it reads."""

    def __init__(self, network: CFNADENetwork, rows: Rows) -> None:
        output, bias = _array(network.output_table), _array(network.b)
        super().__init__(rows, output, bias, shared=network.config.shared)
        self.network, self._input, self._c = network, _array(network.input_table), _array(network.c)
        self._g = _ACTIVATIONS[network.config.activation]
        factored = network.config.factors is not None
        self._B = _array(network.B) if factored else None  # (H, J)
        self._Q = _array(network.Q) if factored else None  # (J, H)
        layers = zip(network.deep_W, network.deep_c, strict=True)
        self._deep = [(_array(W), _array(c)) for W, c in layers]

    def states(self, ratings: RowRatings) -> Array:
        return self._states(self._sums(ratings), np.diff(ratings.offsets))

    def states_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        out = np.empty((len(rows), self._output.shape[2]), self.dtype)
        sums, counts = self._sums(ratings), np.diff(ratings.offsets)
        step = max(1, PIECE // self._input.shape[2])
        for first in range(0, len(out), step):
            part = slice(first, first + step)
            own = request.embed(columns[part], levels[part], self._input, shared=self.shared)
            out[part] = self._states(sums[rows[part]] - own, counts[rows[part]] - 1)
        return out

    def _sums(self, ratings: RowRatings) -> Array:
        """The summed context of each row. Returns (B, D)."""
        return request.sum_ratings(ratings, self._input, shared=self.shared)

    def _many_states(self, ratings: RowRatings) -> Array:
        return self._by_torch(self._threaded_sums(ratings), np.diff(ratings.offsets))

    def _many_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        own = request.embed(columns, levels, self._input, shared=self.shared)
        sums = self._threaded_sums(ratings)[torch.from_numpy(rows)] - torch.from_numpy(own)
        return self._by_torch(sums, np.diff(ratings.offsets)[rows] - 1)

    @torch.no_grad()
    def _by_torch(self, sums: Tensor, counts: IntArray) -> Array:
        """As `_states`, for many rows."""
        hidden = self.network.hidden_from_sums(sums, torch.from_numpy(counts))
        return np.ascontiguousarray(self.network.output_state(hidden).numpy())

    @torch.no_grad()
    def _threaded_sums(self, ratings: RowRatings) -> Tensor:
        M, K, _ = self._input.shape
        cells, size = (ratings.rows, ratings.columns, ratings.levels), len(ratings.offsets) - 1
        context = group(*cells, size=size, n_columns=M, n_levels=K)
        return context_sum(self.network.input_table, context, shared=self.shared)

    # -- rows by number: what is summed is kept, so that a rating can be taken off -------------

    def _without_column(self, column: int, rows: IntArray, levels: IntArray) -> Array:
        sums, counts = self._sums_by_number(rows)
        own = np.full(len(rows), column), levels
        return self._states(sums - request.embed(*own, self._input, shared=self.shared), counts - 1)

    def _by_number(self, rows: IntArray) -> Array:
        if len(self.rows) <= KEPT:
            return super()._by_number(rows)
        return self._states(*self._sums_by_number(rows))

    def _all_states(self) -> Array:
        if len(self.rows) <= KEPT:
            return super()._all_states()
        return self._by_number(np.arange(len(self.rows)))

    @once
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

    @once
    def _every(self) -> tuple[Array, IntArray]:
        """Of all rows, and last of one of which nothing is known."""
        return self._some(np.append(np.arange(len(self.rows)), -1))

    def _some(self, numbers: IntArray) -> tuple[Array, IntArray]:
        data = self.rows
        ratings = ratings_of(data.offsets, data.columns, data.levels, numbers)
        return np.asarray(self._threaded_sums(ratings).numpy()), np.diff(ratings.offsets)

    def hidden(self) -> Tensor:
        """The last layer of every row. Returns (N, H)."""
        sums, counts = (torch.from_numpy(part[:-1]) for part in self._every)
        return self.network.hidden_from_sums(sums, counts)

    # -- pieces -------------------------------------------------------------------------------

    def _states(self, sums: Array, counts: IntArray) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, S)."""
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


def _array(parameter: Tensor) -> Array:
    return np.ascontiguousarray(parameter.detach().numpy())
