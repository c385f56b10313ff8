"""Restricted Boltzmann machine for ratings (Salakhutdinov, Mnih and Hinton 2007).

A row's ratings v are softmax units over K levels, one for each rated column, tied to binary hidden
units h. With s_j = c_j + Σ_m W[m, v_m, j] over the row's ratings,

    p(h_j = 1 | v) = σ(s_j),   p(v_m = k | h) ∝ exp(b[m, k] + Σ_j h_j W[m, k, j]),
    F(v) = −Σ_m b[m, v_m] − Σ_j log(1 + exp s_j)

Contrastive divergence follows the gradient of F(data) − F(reconstruction). A reconstruction starts
at the data and T times samples h and replaces the ratings by the probabilities of the levels given
h, in the columns that the row has rated; T grows during training. Rows are users or items (`side`).

A softmax is invariant to a term that all levels of a column share; hidden units are not, so that
they also see which columns were rated, as in the paper's conditional RBM.

Rows and columns without training ratings (and -1) get the level frequencies of the other one, or of
all ratings if neither has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from numba import njit
from torch import Tensor
from torch.nn.functional import softplus

from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Axis, Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    FloatArray,
    IntArray,
    NonNegative,
    Positive,
    RatingPredictor,
)
from cfnade_baselines.level_frequencies import LevelFrequencies
from cfnade_baselines.row_batches import (
    Floats,
    RatedColumns,
    equal_ranges,
    equal_work,
    gather_ratings,
    n_batches,
    shuffled_batches,
)
from cfnade_baselines.selection import EVALUATE_EVERY, select_by_validation

_FAST = {"reassoc", "contract", "nsz"}  # vectorizes sums; infinities stay infinities
_CHUNK = 1 << 14  # pairs predicted at a time
_INIT_STD = 0.01  # of the initial weights


@options(ModelError)
class RBM(RatingPredictor):
    """Softmax ratings and binary hidden units, by contrastive divergence."""

    name: ClassVar[str] = "rbm"

    side: Axis = "user"
    """What a row is: user or item."""
    hidden: Count = 50
    """Binary hidden units."""
    epochs: Count = 10
    """Passes over all rows."""
    batch_rows: Count = 64
    """Rows per step."""
    learning_rate: Positive = 0.2
    """Initial step size; it decays linearly to zero."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Momentum of the steps."""
    weight_decay: NonNegative = 0.0003
    """L2 penalty of the weights, in the gradient of a mean row."""
    gibbs_steps: Count = 1
    """T at the end of training; it grows from 1."""
    exact: bool = True
    """Sum over hidden units for predictions; else use their mean given the row."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Train for all epochs and keep the parameters that are best on `valid`."""
        rows, count = train.rows(self.side), thread_count(n_threads)
        frequencies = LevelFrequencies.count(train, self.side)
        ratings = gather_ratings(rows, np.arange(len(rows)), frequencies.level_values)

        def states() -> Iterator[dict[str, Any]]:
            for parameters in self._train(rows, frequencies, seed, count):
                inputs = parameters.inputs(ratings, count)  # (N, F)
                copy = parameters.copy()
                yield {"parameters_": copy, "inputs_": inputs, "frequencies_": frequencies}

        remedy = f"lower learning_rate (={self.learning_rate})"
        with single_torch_thread():  # its workers would compete with the kernels'
            select_by_validation(self, states(), valid, remedy=remedy)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the mean of `predict_proba`, (n,)."""
        means: FloatArray = self.predict_proba(users, items) @ self.frequencies_.level_values
        return means

    def predict_proba(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return p(v_q | the row's training ratings), (n, K)."""
        frequencies: LevelFrequencies = self.frequencies_
        parameters: RBMParameters = self.parameters_
        rows, columns = frequencies.rows_and_columns(users, items)
        out = frequencies.frequencies(rows, columns)  # (n, K)
        rated = np.flatnonzero(frequencies.is_rated(rows, columns))
        for chunk in np.array_split(rated, len(rated) // _CHUNK + 1):
            inputs = self.inputs_[torch.from_numpy(rows[chunk])]
            scores = parameters.level_scores(inputs, torch.from_numpy(columns[chunk]), self.exact)
            out[chunk] = torch.softmax(scores.double(), 1).numpy()
        return out

    def _train(
        self, rows: CsrRows, frequencies: LevelFrequencies, seed: int, n_threads: int
    ) -> Iterator[RBMParameters]:
        """Yield the parameters, which later steps change in place, at each evaluation."""
        parameters = _initial_parameters(frequencies, self.hidden, seed)
        grad, velocity = parameters.zeros(), parameters.zeros()
        rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed + 1)
        step, steps = 0, self.epochs * n_batches(rows, self.batch_rows)
        for epoch in range(self.epochs):
            gibbs_steps = 1 + epoch * self.gibbs_steps // self.epochs
            for index in shuffled_batches(rows, self.batch_rows, rng):
                data = gather_ratings(rows, index, frequencies.level_values)
                inputs = parameters.inputs(data, n_threads)
                probabilities, reconstructed = parameters.reconstruct(
                    data, inputs, gibbs_steps, generator, n_threads
                )
                parameters.gradients(data, probabilities, (inputs, reconstructed), grad, n_threads)
                rate = self.learning_rate * (1 - step / steps)
                self._update(parameters, grad, velocity, len(index), rate, n_threads)
                step += 1
            if (epoch + 1) % EVALUATE_EVERY == 0 or epoch + 1 == self.epochs:
                yield parameters

    def _update(
        self,
        parameters: RBMParameters,
        grad: RBMParameters,
        velocity: RBMParameters,
        n_rows: int,
        rate: float,
        n_threads: int,
    ) -> None:
        """Step along the gradient of a mean row; biases do not decay."""
        for name, w in vars(parameters).items():
            decay = self.weight_decay if name == "W" else 0.0
            scalars = map(np.float32, (1 / n_rows, decay, self.momentum, rate))
            buffers = (vars(table)[name].numpy().reshape(-1) for table in (grad, velocity))
            arrays = (w.numpy().reshape(-1), *buffers, *scalars)
            spans = equal_ranges(w.numel(), n_threads)
            run_parallel(_momentum_step, [(*span, *arrays) for span in spans])


@dataclass(frozen=True)
class RBMParameters:
    """Parameters, with the conditional distributions that they define."""

    W: Tensor  # (M, K, F)
    b: Tensor  # (M, K)
    c: Tensor  # (F,)

    def inputs(self, ratings: RatedColumns, n_threads: int = 1) -> Tensor:
        """Return s, the input of each row's hidden units. (B, F)."""
        return self._inputs(_add_weights, ratings, ratings.levels, n_threads)

    def reconstruct(
        self,
        ratings: RatedColumns,
        inputs: Tensor,
        steps: int,
        random: torch.Generator,
        n_threads: int = 1,
    ) -> tuple[Floats, Tensor]:
        """Return level probabilities after `steps` Gibbs steps from hidden inputs `inputs`, and the
        hidden inputs that they give. (n, K), (B, F)."""
        for _ in range(steps):
            h = torch.bernoulli(torch.sigmoid(inputs), generator=random)  # (B, F)
            probabilities = self._level_probabilities(h, ratings, n_threads)
            inputs = self._inputs(_add_mean_weights, ratings, probabilities, n_threads)
        return probabilities, inputs

    def _inputs(
        self, kernel: Callable[..., None], ratings: RatedColumns, values: Any, n_threads: int
    ) -> Tensor:
        ranges = equal_work(ratings.starts, n_threads)
        sums = np.empty((len(ranges), ratings.size, len(self.c)), np.float32)
        arrays = (ratings.starts, ratings.rows, values, self.W.numpy())
        run_parallel(kernel, [(*span, *arrays, sums[t]) for t, span in enumerate(ranges)])
        return torch.from_numpy(sums.sum(0)) + self.c

    def _level_probabilities(self, h: Tensor, ratings: RatedColumns, n_threads: int) -> Floats:
        """Return p(v_m = k | h) of the rated pairs, (n, K)."""
        out = np.empty((len(ratings.rows), self.b.shape[1]), np.float32)
        arrays = (ratings.starts, ratings.rows, self.W.numpy(), self.b.numpy(), h.numpy(), out)
        run_parallel(
            _level_scores, [(*span, *arrays) for span in equal_work(ratings.starts, n_threads)]
        )
        return torch.softmax(torch.from_numpy(out), 1).numpy()

    def gradients(
        self,
        data: RatedColumns,
        probabilities: Floats,
        inputs: tuple[Tensor, Tensor],
        out: RBMParameters,
        n_threads: int = 1,
    ) -> None:
        """Write the gradient of Σ F(data) − F(probabilities) to `out`; `inputs` are of both.

        The gradient of F is −Σ σ(s) of the rows that rated m at k for W[m, k], minus their number
        for b[m, k], and −Σ σ(s) for c.
        """
        h, h_mean = map(torch.sigmoid, inputs)
        ratings = (data.starts, data.rows, data.levels, probabilities)
        arrays = (*ratings, h.numpy(), h_mean.numpy(), out.W.numpy(), out.b.numpy())
        run_parallel(
            _free_energy_gradients,
            [(*span, *arrays) for span in equal_work(data.starts, n_threads)],
        )
        torch.sub(h_mean.sum(0), h.sum(0), out=out.c)

    def level_scores(self, inputs: Tensor, columns: Tensor, exact: bool) -> Tensor:
        """Return log p(v_q = k | v) + const for pairs (inputs[i], columns[i]). (n, K)."""
        W = self.W[columns]  # (n, K, F)
        if exact:
            return self.b[columns] + softplus(inputs[:, None] + W).sum(2)
        return self.b[columns] + (W * torch.sigmoid(inputs)[:, None]).sum(2)

    def copy(self) -> RBMParameters:
        """Return a copy that later steps do not change."""
        return RBMParameters(*(tensor.clone() for tensor in vars(self).values()))

    def zeros(self) -> RBMParameters:
        """Return zeros of the same shapes."""
        return RBMParameters(*(torch.zeros_like(tensor) for tensor in vars(self).values()))


def _initial_parameters(frequencies: LevelFrequencies, hidden: int, seed: int) -> RBMParameters:
    """Return small random weights; biases are the log frequencies of each column's levels."""
    generator = torch.Generator().manual_seed(seed)
    M, K = frequencies.columns.shape
    W = torch.randn(M, K, hidden, generator=generator) * _INIT_STD
    no_rows = np.full(M, -1)
    b = np.log(frequencies.frequencies(no_rows, np.arange(M))).astype(np.float32)
    return RBMParameters(W, torch.from_numpy(b), torch.zeros(hidden))


# -- compiled loops over columns [lo, hi), which threads share ------------------------------------


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_weights(lo: int, hi: int, starts: Any, rows: Any, levels: Any, W: Any, sums: Any) -> None:
    """Fill sums (B, F) with Σ W[column, level] over the row's ratings in these columns."""
    sums[:] = 0
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            vector, out = W[c, levels[p]], sums[rows[p]]
            for i in range(len(vector)):
                out[i] += vector[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_mean_weights(
    lo: int, hi: int, starts: Any, rows: Any, probabilities: Any, W: Any, sums: Any
) -> None:
    """Do the same where a rating is given by the probabilities (n, K) of its levels."""
    sums[:] = 0
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            out = sums[rows[p]]
            for k in range(W.shape[1]):
                vector, probability = W[c, k], probabilities[p, k]
                for i in range(len(vector)):
                    out[i] += probability * vector[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _level_scores(
    lo: int, hi: int, starts: Any, rows: Any, W: Any, b: Any, h: Any, out: Any
) -> None:
    """Fill out (n, K) with b[column] + W[column] · h[row] of every rated pair."""
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            state = h[rows[p]]
            for k in range(W.shape[1]):
                vector, score = W[c, k], b[c, k]
                for i in range(len(vector)):
                    score += vector[i] * state[i]
                out[p, k] = score


@njit(nogil=True, cache=True, fastmath=_FAST)
def _free_energy_gradients(
    lo: int,
    hi: int,
    starts: Any,
    rows: Any,
    levels: Any,
    probabilities: Any,
    h: Any,
    h_mean: Any,
    d_W: Any,
    d_b: Any,
) -> None:
    """Fill these columns of d_W (M, K, F) and d_b (M, K).

    d_W is Σ probability · h_mean − [level] · h over the column's ratings; d_b the same without h.
    """
    for c in range(lo, hi):
        d_W[c] = 0
        d_b[c] = 0
        for p in range(starts[c], starts[c + 1]):
            total, state, mean = d_W[c, levels[p]], h[rows[p]], h_mean[rows[p]]
            d_b[c, levels[p]] -= 1
            for i in range(len(state)):
                total[i] -= state[i]
            for k in range(d_W.shape[1]):
                total, probability = d_W[c, k], probabilities[p, k]
                d_b[c, k] += probability
                for i in range(len(mean)):
                    total[i] += probability * mean[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _momentum_step(
    lo: int,
    hi: int,
    w: Any,
    grad: Any,
    velocity: Any,
    share: Any,
    decay: Any,
    momentum: Any,
    rate: Any,
) -> None:
    """Step along share · grad + decay · w with momentum; `velocity` accumulates the steps."""
    for i in range(lo, hi):
        velocity[i] = momentum * velocity[i] + share * grad[i] + decay * w[i]
        w[i] -= rate * velocity[i]
