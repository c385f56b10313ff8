"""AutoRec (Sedhain, Menon, Sanner and Xie 2015): an autoencoder of incomplete rows.

A row's ratings r are reconstructed through one hidden layer,

    r̂_m = b_m + W_m · h,   h = σ(μ + Σ_n r_n V_n)   over the columns n that the row has rated,

fitted by Adam to Σ (r̂_m − r_m)² over all training ratings + λ/2 (‖W‖² + ‖V‖²). Rows are users or
items (`side`). Only rated pairs are visited.

Rows and columns without training ratings (and -1) get the smoothed mean of the other one's ratings,
or of all ratings if neither has any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Axis, Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.base import Count, FloatArray, IntArray, NonNegative, Positive
from cfnade_baselines.row_model import (
    FAST_MATH,
    Floats,
    LevelFrequencies,
    Range,
    RatedColumns,
    RowModel,
    equal_ranges,
    equal_work,
    run_on_ranges,
)

_ONE, _TWO = np.float32(1), np.float32(2)
_EPSILON = np.float32(1e-8)


@options(ModelError)
class AutoRec(RowModel):
    """One hidden layer that encodes a row's ratings and reconstructs them."""

    name: ClassVar[str] = "autorec"

    side: Axis = "item"
    """What a row is: user or item."""
    hidden: Count = 500
    """Hidden units."""
    regularization: NonNegative = 200.0
    """λ, the weight of the squared weights against the squared errors of all ratings."""
    epochs: Count = 30
    """Passes over all rows."""
    batch_rows: Count = 256
    """Rows per step."""
    learning_rate: Positive = 0.003
    """Initial step size; it decays linearly to zero."""
    center: bool = False
    """Subtract the mean of all ratings from the input."""

    def _trainer(
        self, train: Dataset, seed: int, rng: np.random.Generator, n_threads: int
    ) -> AutoRecTrainer:
        del seed
        rows, mean = train.rows(self.side), float(train.values.mean())
        net = _initial_net(rows, mean, self.hidden, rng)
        grad, *moments = (AutoRecNet(*map(np.zeros_like, net)) for _ in range(3))
        decay = self.regularization / self._batches_per_epoch(rows)
        shift = mean if self.center else 0.0
        return AutoRecTrainer(net, grad, moments, decay, shift, n_threads)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return r̂ of the row given its training ratings, clipped to the scale. (n,)."""
        frequencies: LevelFrequencies = self.frequencies_
        rows, columns = frequencies.rows_and_columns(users, items)
        values = frequencies.level_values
        out: FloatArray = frequencies.frequencies(rows, columns) @ values  # (n,)
        is_rated = frequencies.is_rated(rows, columns)
        outputs = np.empty(np.count_nonzero(is_rated), np.float32)
        net = self.net_
        _outputs(rows[is_rated], columns[is_rated], net.W, net.b, self.states_, outputs)
        out[is_rated] = outputs
        return np.clip(out, values[0], values[-1])


class AutoRecNet(NamedTuple):
    """Parameters, or their gradients."""

    V: Floats  # (M, H)
    mu: Floats  # (H,)
    W: Floats  # (M, H)
    b: Floats  # (M,)

    def copy(self) -> AutoRecNet:
        """Return a copy that later steps do not change."""
        return AutoRecNet(*(array.copy() for array in self))


def _initial_net(rows: CsrRows, mean: float, hidden: int, rng: np.random.Generator) -> AutoRecNet:
    """Return Glorot weights; outputs start near the mean rating."""
    M = rows.n_columns
    bound = np.sqrt(6 / (M + hidden))
    V, W = rng.uniform(-bound, bound, (2, M, hidden)).astype(np.float32)
    return AutoRecNet(V, np.zeros(hidden, np.float32), W, np.full(M, mean, np.float32))


def hidden_states(
    net: AutoRecNet, ratings: RatedColumns, n_threads: int, shift: float = 0.0
) -> Floats:
    """Return h of every row; inputs are the ratings minus `shift`. (B, H)."""
    inputs = ratings.values - np.float32(shift)
    ranges = _column_ranges(ratings, n_threads)
    sums = np.empty((len(ranges), ratings.size, len(net.mu)), np.float32)
    run_on_ranges(_add_inputs, ranges, ratings.starts, ratings.rows, inputs, net.V, buffers=sums)
    h = np.empty(sums.shape[1:], np.float32)
    run_on_ranges(_activate, equal_ranges(len(h), n_threads), sums, net.mu, h)
    return h


def gradients(
    net: AutoRecNet, ratings: RatedColumns, n_threads: int, shift: float = 0.0, *, out: AutoRecNet
) -> float:
    """Return Σ (r̂ − r)² of these rows; write its gradients to `out`."""
    h = hidden_states(net, ratings, n_threads, shift)
    ranges, pairs = _column_ranges(ratings, n_threads), (ratings.starts, ratings.rows)
    d_h = np.empty((len(ranges), *h.shape), np.float32)
    arrays = (*pairs, ratings.values, net.W, net.b, h, out.W, out.b)
    costs = run_on_ranges(_output_gradients, ranges, *arrays, buffers=d_h)
    d_sums = np.empty_like(h)
    run_on_ranges(_activation_gradients, equal_ranges(len(h), n_threads), d_h, h, d_sums)
    inputs = ratings.values - np.float32(shift)
    run_on_ranges(_input_gradients, ranges, *pairs, inputs, d_sums, out.V)
    out.mu[:] = d_sums.sum(0)
    return float(sum(costs))


def _column_ranges(ratings: RatedColumns, n_threads: int) -> list[Range]:
    return equal_work(ratings.starts, n_threads, row_cost=4.0)


@dataclass
class AutoRecTrainer:
    """The net with Adam's moments; weights decay and biases do not."""

    net: AutoRecNet
    grad: AutoRecNet
    moments: list[AutoRecNet]
    decay: float
    shift: float
    n_threads: int
    n_steps: int = 0

    def step(self, ratings: RatedColumns, rate: float, epoch: int) -> None:
        """Take a step of Adam."""
        del epoch
        gradients(self.net, ratings, self.n_threads, self.shift, out=self.grad)
        self.n_steps += 1
        corrections = [1 / (1 - beta**self.n_steps) for beta in (0.9, 0.999)]
        for name, *arrays in zip(self.net._fields, self.net, self.grad, *self.moments, strict=True):
            flat = [array.reshape(-1) for array in arrays]
            decay = np.float32(self.decay if name in "VW" else 0)
            run_on_ranges(
                _adam,
                equal_ranges(len(flat[0]), self.n_threads),
                *(*flat, decay, np.float32(rate), np.array(corrections, np.float32)),
            )

    def learned(self, ratings: RatedColumns) -> dict[str, Any]:
        """Return a copy of the net and the hidden states of all rows."""
        states = hidden_states(self.net, ratings, self.n_threads, self.shift)
        return {"net_": self.net.copy(), "states_": states}


# -- compiled loops over columns or rows [lo, hi) -------------------------------------------------
#
# Threads take disjoint ranges of columns, so that each table row has one writer. Sums over a row's
# ratings go to a buffer per thread; the buffers are added in a fixed order.


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _add_inputs(lo: int, hi: int, starts: Any, rows: Any, inputs: Any, V: Any, sums: Any) -> None:
    """Fill sums (B, H) with Σ input · V[column] over the row's ratings in these columns."""
    sums[:] = 0
    for c in range(lo, hi):
        vector = V[c]
        for p in range(starts[c], starts[c + 1]):
            out, x = sums[rows[p]], inputs[p]
            for i in range(len(vector)):
                out[i] += x * vector[i]


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _activate(lo: int, hi: int, sums: Any, mu: Any, h: Any) -> None:
    """Fill h (B, H) with σ(the threads' sums (T, B, H) + mu)."""
    for row in range(lo, hi):
        for i in range(len(mu)):
            z = mu[i]
            for t in range(len(sums)):
                z += sums[t, row, i]
            h[row, i] = _ONE / (_ONE + np.exp(-z))


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _output_gradients(
    lo: int,
    hi: int,
    starts: Any,
    rows: Any,
    targets: Any,
    W: Any,
    b: Any,
    h: Any,
    d_W: Any,
    d_b: Any,
    d_h: Any,
) -> float:
    """Return Σ (b + W·h − target)² over these columns; write its gradients. d_h is per thread."""
    d_h[:] = 0
    cost = 0.0
    for c in range(lo, hi):
        weights, d_weights = W[c], d_W[c]
        d_weights[:] = 0
        slopes = np.float32(0)
        for p in range(starts[c], starts[c + 1]):
            state, d_state = h[rows[p]], d_h[rows[p]]
            error = b[c] - targets[p]
            for i in range(len(weights)):
                error += weights[i] * state[i]
            cost += error * error
            slope = _TWO * error
            slopes += slope
            for i in range(len(weights)):
                d_weights[i] += slope * state[i]
                d_state[i] += slope * weights[i]
        d_b[c] = slopes
    return cost


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _activation_gradients(lo: int, hi: int, d_h: Any, h: Any, d_sums: Any) -> None:
    """Fill d_sums (B, H) from the threads' d_h (T, B, H)."""
    for row in range(lo, hi):
        for i in range(h.shape[1]):
            slope = np.float32(0)
            for t in range(len(d_h)):
                slope += d_h[t, row, i]
            d_sums[row, i] = slope * h[row, i] * (_ONE - h[row, i])


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _input_gradients(
    lo: int, hi: int, starts: Any, rows: Any, inputs: Any, d_sums: Any, d_V: Any
) -> None:
    """Fill d_V (M, H) with Σ input · d_sums[row] over the columns' ratings."""
    for c in range(lo, hi):
        d_vector = d_V[c]
        d_vector[:] = 0
        for p in range(starts[c], starts[c + 1]):
            slope, x = d_sums[rows[p]], inputs[p]
            for i in range(len(d_vector)):
                d_vector[i] += x * slope[i]


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _adam(
    lo: int, hi: int, w: Any, grad: Any, m: Any, v: Any, l2: Any, rate: Any, corrections: Any
) -> None:
    """Step of Adam (0.9, 0.999) on the gradient + l2·w; `corrections` are those of the moments."""
    beta_1, beta_2 = np.float32(0.9), np.float32(0.999)
    for i in range(lo, hi):
        slope = grad[i] + l2 * w[i]
        m[i] = beta_1 * m[i] + (_ONE - beta_1) * slope
        v[i] = beta_2 * v[i] + (_ONE - beta_2) * slope * slope
        w[i] -= rate * corrections[0] * m[i] / (np.sqrt(corrections[1] * v[i]) + _EPSILON)


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _outputs(rows: Any, columns: Any, W: Any, b: Any, h: Any, out: Any) -> None:
    """Fill out (n,) with b + W·h of the given pairs."""
    for p in range(len(rows)):
        weights, state = W[columns[p]], h[rows[p]]
        y = b[columns[p]]
        for i in range(len(weights)):
            y += weights[i] * state[i]
        out[p] = y
