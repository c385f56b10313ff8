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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from numba import njit
from torch import Tensor
from torch.nn.functional import softplus

from cfnade.data.dataset import Axis, Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import single_torch_thread
from cfnade.utils.validation import options
from cfnade_baselines.base import Count, FloatArray, IntArray, NonNegative, Positive
from cfnade_baselines.row_model import (
    FAST_MATH,
    Floats,
    LevelFrequencies,
    RatedColumns,
    RowModel,
    equal_ranges,
    equal_work,
    run_on_ranges,
)

_CHUNK = 1 << 14  # pairs predicted at a time
_INIT_STD = 0.01  # of the initial weights


@options(ModelError)
class RBM(RowModel):
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
        with single_torch_thread():  # its workers would compete with the kernels'
            super()._fit(train, valid, seed, n_threads)

    def _trainer(
        self, train: Dataset, seed: int, rng: np.random.Generator, n_threads: int
    ) -> RBMTrainer:
        del train, rng
        parameters = _initial_parameters(self.frequencies_, self.hidden, seed)
        generator = torch.Generator().manual_seed(seed + 1)
        zeros = parameters.zeros(), parameters.zeros()
        return RBMTrainer(self, parameters, *zeros, generator, n_threads)

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


@dataclass
class RBMTrainer:
    """Parameters with their velocity; biases do not decay."""

    model: RBM
    parameters: RBMParameters
    grad: RBMParameters
    velocity: RBMParameters
    generator: torch.Generator
    n_threads: int

    def step(self, ratings: RatedColumns, rate: float, epoch: int) -> None:
        """Take a step of contrastive divergence."""
        gibbs_steps = 1 + epoch * self.model.gibbs_steps // self.model.epochs
        inputs = self.parameters.inputs(ratings, self.n_threads)
        probabilities, reconstructed = self.parameters.reconstruct(
            ratings, inputs, gibbs_steps, self.generator, self.n_threads
        )
        hidden_inputs = inputs, reconstructed
        self.parameters.gradients(ratings, probabilities, hidden_inputs, self.grad, self.n_threads)
        self.update(ratings.size, rate)

    def update(self, n_rows: int, rate: float) -> None:
        """Step along the gradient of a mean row."""
        for name, w in vars(self.parameters).items():
            decay = self.model.weight_decay if name == "W" else 0.0
            scalars = map(np.float32, (1 / n_rows, decay, self.model.momentum, rate))
            tables = w, vars(self.grad)[name], vars(self.velocity)[name]
            flat = (table.numpy().reshape(-1) for table in tables)
            spans = equal_ranges(w.numel(), self.n_threads)
            run_on_ranges(_momentum_step, spans, *flat, *scalars)

    def learned(self, ratings: RatedColumns) -> dict[str, Any]:
        """Return a copy of the parameters and the hidden inputs of all rows."""
        inputs = self.parameters.inputs(ratings, self.n_threads)  # (N, F)
        return {"parameters_": self.parameters.copy(), "inputs_": inputs}


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
        run_on_ranges(kernel, ranges, *arrays, buffers=sums)
        return torch.from_numpy(sums.sum(0)) + self.c

    def _level_probabilities(self, h: Tensor, ratings: RatedColumns, n_threads: int) -> Floats:
        """Return p(v_m = k | h) of the rated pairs, (n, K)."""
        out = np.empty((len(ratings.rows), self.b.shape[1]), np.float32)
        arrays = (ratings.starts, ratings.rows, self.W.numpy(), self.b.numpy(), h.numpy(), out)
        run_on_ranges(_level_scores, equal_work(ratings.starts, n_threads), *arrays)
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
        run_on_ranges(_free_energy_gradients, equal_work(data.starts, n_threads), *arrays)
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


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _add_weights(lo: int, hi: int, starts: Any, rows: Any, levels: Any, W: Any, sums: Any) -> None:
    """Fill sums (B, F) with Σ W[column, level] over the row's ratings in these columns."""
    sums[:] = 0
    for c in range(lo, hi):
        for p in range(starts[c], starts[c + 1]):
            vector, out = W[c, levels[p]], sums[rows[p]]
            for i in range(len(vector)):
                out[i] += vector[i]


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
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


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
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


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
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


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _momentum_step(
    lo: int,
    hi: int,
    w: Any,
    grad: Any,
    velocity: Any,
    row_weight: Any,
    decay: Any,
    momentum: Any,
    rate: Any,
) -> None:
    """Step along row_weight · grad + decay · w with momentum; `velocity` accumulates the steps."""
    for i in range(lo, hi):
        velocity[i] = momentum * velocity[i] + row_weight * grad[i] + decay * w[i]
        w[i] -= rate * velocity[i]
