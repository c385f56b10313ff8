"""Restricted Boltzmann machine for ratings (Salakhutdinov, Mnih and Hinton 2007).

A row's ratings v are softmax units over K levels, one for each rated column, tied to binary hidden
units h. With s_j = c_j + Σ_m W[m, v_m, j] over the row's ratings,

    p(h_j = 1 | v) = σ(s_j),   p(v_m = k | h) ∝ exp(b[m, k] + Σ_j h_j W[m, k, j]),
    F(v) = −Σ_m b[m, v_m] − Σ_j log(1 + exp s_j)

Contrastive divergence follows the gradient of F(data) − F(reconstruction). A reconstruction starts
at the data and T times draws h and takes the chances of the levels given h in their place, in the
columns that the row has rated; T grows while training goes on. Rows are users, or items (`side`).

A softmax ignores what the weights of all levels of a column share; hidden units do not, so that
they also see which columns were rated, as in the paper's conditional machine.

Rows and columns without training ratings (and -1): the level frequencies of the other one, or of
all ratings if neither is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor
from torch.nn.functional import softplus

from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Axis, Dataset
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade_baselines import rbm_kernels as kernels
from cfnade_baselines.base import (
    Count,
    Fitted,
    FloatArray,
    IntArray,
    NotNegative,
    Positive,
    Rival,
)
from cfnade_baselines.choosing import LOOK, best_by_validation
from cfnade_baselines.level_frequencies import Seen
from cfnade_baselines.row_batches import (
    Floats,
    RatedColumns,
    by_column,
    equal_ranges,
    equal_work,
    n_batches,
    shuffled,
)

_CHUNK = 1 << 14  # cells predicted at a time
_SPREAD = 0.01  # of the first weights


@dataclass(frozen=True)
class Machine:
    """Parameters, and what they mean."""

    W: Tensor  # (M, K, F)
    b: Tensor  # (M, K)
    c: Tensor  # (F,)

    def inputs(self, ratings: RatedColumns, threads: int = 1) -> Tensor:
        """s: what the hidden units of each row get. Returns (B, F)."""
        return self._inputs(kernels.add_weights, ratings, ratings.levels, threads)

    def reconstruct(
        self,
        ratings: RatedColumns,
        inputs: Tensor,
        steps: int,
        random: torch.Generator,
        threads: int = 1,
    ) -> tuple[Floats, Tensor]:
        """From ratings that give `inputs`: chances of the levels after `steps`, and what hidden
        units get from them. Returns (n, K), (B, F)."""
        for _ in range(steps):
            h = torch.bernoulli(torch.sigmoid(inputs), generator=random)  # (B, F)
            chances = self._chances(h, ratings, threads)
            inputs = self._inputs(kernels.add_mean_weights, ratings, chances, threads)
        return chances, inputs

    def _inputs(
        self, kernel: Callable[..., None], ratings: RatedColumns, given: Any, threads: int
    ) -> Tensor:
        ranges = equal_work(ratings.starts, threads)
        sums = np.empty((len(ranges), ratings.size, len(self.c)), np.float32)
        rest = (ratings.starts, ratings.rows, given, self.W.numpy())
        run_parallel(kernel, [(*part, *rest, sums[t]) for t, part in enumerate(ranges)])
        return torch.from_numpy(sums.sum(0)) + self.c

    def _chances(self, h: Tensor, ratings: RatedColumns, threads: int) -> Floats:
        """p(v_m = k | h) of the rated cells. Returns (n, K)."""
        out = np.empty((len(ratings.rows), self.b.shape[1]), np.float32)
        rest = (ratings.starts, ratings.rows, self.W.numpy(), self.b.numpy(), h.numpy(), out)
        run_parallel(
            kernels.level_scores, [(*p, *rest) for p in equal_work(ratings.starts, threads)]
        )
        return torch.softmax(torch.from_numpy(out), 1).numpy()

    def slopes(
        self,
        data: RatedColumns,
        chances: Floats,
        inputs: tuple[Tensor, Tensor],
        out: Machine,
        threads: int = 1,
    ) -> None:
        """Into `out` the gradient of Σ F(data) − F(chances) over rows; `inputs` are of both.

        Of F itself it is, for W[m, k], −Σ σ(s) of the rows that rated m at k, for b[m, k] minus
        their number, for c −Σ σ(s).
        """
        h, h_mean = map(torch.sigmoid, inputs)
        cells = (data.starts, data.rows, data.levels, chances, h.numpy(), h_mean.numpy())
        rest = (*cells, out.W.numpy(), out.b.numpy())
        run_parallel(kernels.slopes, [(*p, *rest) for p in equal_work(data.starts, threads)])
        torch.sub(h_mean.sum(0), h.sum(0), out=out.c)

    def level_scores(self, inputs: Tensor, columns: Tensor, exact: bool) -> Tensor:
        """log p(v_q = k | v) + const for cells (inputs[i], columns[i]). Returns (n, K)."""
        W = self.W[columns]  # (n, K, F)
        if exact:
            return self.b[columns] + softplus(inputs[:, None] + W).sum(2)
        return self.b[columns] + (W * torch.sigmoid(inputs)[:, None]).sum(2)

    def copy(self) -> Machine:
        """The same numbers, which no step moves any more."""
        return Machine(*(tensor.clone() for tensor in vars(self).values()))

    def zeros(self) -> Machine:
        """Tables of the same sizes for what belongs to the parameters."""
        return Machine(*(torch.zeros_like(tensor) for tensor in vars(self).values()))


@dataclass(frozen=True)
class FittedRBM(Fitted):
    """The machine and what its hidden units get from every row's training ratings."""

    machine: Machine
    inputs: Tensor  # (N, F)
    exact: bool
    seen: Seen

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of `probabilities`. Returns (n,)."""
        return self.probabilities(users, items) @ self.seen.stars

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """p(v_q | the row's training ratings). Returns (n, K)."""
        rows, columns = self.seen.cells(users, items)
        out = self.seen.frequencies(rows, columns)  # (n, K)
        both = np.flatnonzero(self.seen.both(rows, columns))
        for part in np.array_split(both, len(both) // _CHUNK + 1):
            inputs = self.inputs[torch.from_numpy(rows[part])]
            scores = self.machine.level_scores(inputs, torch.from_numpy(columns[part]), self.exact)
            out[part] = torch.softmax(scores.double(), 1).numpy()
        return out


@dataclass(frozen=True, kw_only=True)
class RBM(Rival[FittedRBM]):
    """Softmax ratings and binary hidden units, by contrastive divergence."""

    name: ClassVar[str] = "rbm"

    side: Axis = "user"
    """Whose ratings are a row: user or item."""
    hidden: Count = 50
    """Binary hidden units."""
    epochs: Count = 10
    """Passes over all rows."""
    batch_rows: Count = 64
    """Rows in a step."""
    learning_rate: Positive = 0.2
    """The first step size; it falls linearly to zero."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """How much of the last steps' direction a step keeps."""
    weight_decay: NotNegative = 0.0003
    """Pull of the weights towards zero, in the gradient of a mean row."""
    gibbs_steps: Count = 1
    """T at the end of training; it grows from 1."""
    exact: bool = True
    """Sum hidden units out for predictions; else they stay at their mean given the row."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedRBM:
        """Train for all epochs, keep the weights that predict `valid` best."""
        rows, count, seen = train.rows(self.side), thread_count(threads), Seen.of(train, self.side)
        everything = by_column(rows, np.arange(len(rows)), seen.stars)

        def fits() -> Iterator[FittedRBM]:
            for machine in self._train(rows, seen, seed, count):
                inputs = machine.inputs(everything, count)
                yield FittedRBM(machine.copy(), inputs, self.exact, seen)

        cure = f"lower learning_rate (={self.learning_rate})"
        with single_torch_thread():  # its workers would compete with the kernels'
            return best_by_validation(fits(), valid, cure=cure)

    def _train(self, rows: CsrRows, seen: Seen, seed: int, threads: int) -> Iterator[Machine]:
        """The machine, moved in place, after every few epochs and after the last."""
        machine = _first_machine(seen, self.hidden, seed)
        slopes, speeds = machine.zeros(), machine.zeros()
        order, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed + 1)
        step, steps = 0, self.epochs * n_batches(rows, self.batch_rows)
        for epoch in range(self.epochs):
            gibbs_steps = 1 + epoch * self.gibbs_steps // self.epochs
            for which in shuffled(rows, self.batch_rows, order):
                data = by_column(rows, which, seen.stars)
                inputs = machine.inputs(data, threads)
                chances, rebuilt = machine.reconstruct(data, inputs, gibbs_steps, random, threads)
                machine.slopes(data, chances, (inputs, rebuilt), slopes, threads)
                rate = self.learning_rate * (1 - step / steps)
                self._move(machine, slopes, speeds, len(which), rate, threads)
                step += 1
            if (epoch + 1) % LOOK == 0 or epoch + 1 == self.epochs:
                yield machine

    def _move(
        self,
        machine: Machine,
        slopes: Machine,
        speeds: Machine,
        rows: int,
        rate: float,
        threads: int,
    ) -> None:
        """A step by the gradient of a mean row; biases, which say how common levels are, do not
        decay."""
        for name, w in vars(machine).items():
            decay = self.weight_decay if name == "W" else 0.0
            scalars = map(np.float32, (1 / rows, decay, self.momentum, rate))
            arrays = (vars(part)[name].numpy().reshape(-1) for part in (slopes, speeds))
            rest = (w.numpy().reshape(-1), *arrays, *scalars)
            run_parallel(
                kernels.momentum_step, [(*p, *rest) for p in equal_ranges(w.numel(), threads)]
            )


def _first_machine(seen: Seen, hidden: int, seed: int) -> Machine:
    """Small random weights; biases say how often each column has each level."""
    random = torch.Generator().manual_seed(seed)
    M, K = seen.columns.shape
    W = torch.randn(M, K, hidden, generator=random) * _SPREAD
    nobody = np.full(M, -1)
    b = np.log(seen.frequencies(nobody, np.arange(M))).astype(np.float32)
    return Machine(W, torch.from_numpy(b), torch.zeros(hidden))
