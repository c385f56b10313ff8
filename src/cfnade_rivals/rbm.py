"""Restricted Boltzmann machine for ratings (Salakhutdinov, Mnih and Hinton 2007).

A row's ratings v are softmax units over K levels, one for each rated column, tied to binary hidden
units h. With s_j = c_j + Σ_m W[m, v_m, j] over the row's ratings,

    p(h_j = 1 | v) = σ(s_j),   p(v_m = k | h) ∝ exp(b[m, k] + Σ_j h_j W[m, k, j]),
    F(v) = −Σ_m b[m, v_m] − Σ_j log(1 + exp s_j)

Contrastive divergence follows the gradient of F(data) − F(sample), where the sample comes from
T steps of Gibbs sampling that start at the data, in the columns that the row has rated; T grows
while training goes on. Rows are users, or items (`side`).

Rows and columns without training ratings (and -1): the level frequencies of the other one, or of
all ratings if neither is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from cfnade.data.ratings import Ratings, Rows, Side
from cfnade.errors import ModelError
from cfnade.kernels.threads import one_torch_thread, run, thread_count
from cfnade.options import TRUE_OR_FALSE, check_fields, number, one_of
from cfnade_rivals import rbm_kernels as kernels
from cfnade_rivals.batches import RatedColumns, by_column, equal_work, n_batches, shuffled
from cfnade_rivals.choosing import best_by_validation
from cfnade_rivals.interface import (
    Count,
    FloatArray,
    IntArray,
    NotNegative,
    Positive,
    require_ratings,
)
from cfnade_rivals.seen import Seen

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
        ranges = equal_work(ratings.starts, threads)
        sums = np.empty((len(ranges), ratings.size, len(self.c)), np.float32)
        rest = (ratings.starts, ratings.rows, ratings.levels, self.W.numpy())
        run(kernels.add_weights, [(*part, *rest, sums[t]) for t, part in enumerate(ranges)])
        return torch.from_numpy(sums.sum(0)) + self.c

    def gibbs(
        self, ratings: RatedColumns, steps: int, random: torch.Generator, threads: int = 1
    ) -> RatedColumns:
        """The same cells with other levels: `steps` times h given v, then v given h."""
        for _ in range(steps):
            chances = torch.sigmoid(self.inputs(ratings, threads))
            h = torch.bernoulli(chances, generator=random)  # (B, F)
            scores = self._scores_of_rated(h, ratings, threads)
            draws = torch.rand(len(scores), 1, generator=random)
            below = torch.cumsum(torch.softmax(scores, 1), 1)[:, :-1] < draws  # (n, K-1)
            ratings = ratings._replace(levels=below.sum(1).to(torch.uint8).numpy())
        return ratings

    def _scores_of_rated(self, h: Tensor, ratings: RatedColumns, threads: int) -> Tensor:
        out = np.empty((len(ratings.rows), self.b.shape[1]), np.float32)
        tables = (self.W.numpy(), self.b.numpy(), h.numpy(), out)
        rest = (ratings.starts, ratings.rows, *tables)
        run(kernels.level_scores, [(*p, *rest) for p in equal_work(ratings.starts, threads)])
        return torch.from_numpy(out)

    def slopes(self, data: RatedColumns, sample: RatedColumns, threads: int = 1) -> Machine:
        """The gradient of Σ F(data) − F(sample) over rows: of F itself it is, for W[m, k],
        −Σ σ(s) of the rows that rated m at k, for b[m, k] minus their number, for c −Σ σ(s)."""
        d_W, d_b, d_c = (torch.zeros_like(tensor) for tensor in vars(self).values())
        for ratings, sign in ((data, -1.0), (sample, 1.0)):
            h = torch.sigmoid(self.inputs(ratings, threads))
            cells = (ratings.starts, ratings.rows, ratings.levels)
            rest = (*cells, h.numpy(), np.float32(sign), d_W.numpy())
            run(kernels.add_states, [(*p, *rest) for p in equal_work(ratings.starts, threads)])
            d_b += sign * torch.from_numpy(ratings.counts(self.b.shape[1]))
            d_c += sign * h.sum(0)
        return Machine(d_W, d_b, d_c)

    def level_scores(self, inputs: Tensor, columns: Tensor, exact: bool) -> Tensor:
        """log p(v_q = k | v) + const for cells (inputs[i], columns[i]). Returns (n, K)."""
        W = self.W[columns]  # (n, K, F)
        if exact:
            return self.b[columns] + softplus(inputs[:, None] + W).sum(2)
        return self.b[columns] + (W * torch.sigmoid(inputs)[:, None]).sum(2)

    def copy(self) -> Machine:
        """The same numbers, which no step moves any more."""
        return Machine(*(tensor.clone() for tensor in vars(self).values()))


@dataclass(frozen=True)
class FittedRBM:
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
class RBM:
    """Softmax ratings and binary hidden units, by contrastive divergence."""

    name: ClassVar[str] = "rbm"

    side: Annotated[Side, one_of("user", "item")] = "user"
    """Whose ratings are a row: user or item."""
    hidden: Count = 50
    """Binary hidden units."""
    epochs: Count = 10
    """Passes over all rows."""
    batch_rows: Count = 64
    """Rows in a step."""
    learning_rate: Positive = 0.2
    """The first step size; it falls linearly to zero."""
    momentum: Annotated[float, number(0, below=1)] = 0.9
    """How much of the last steps' direction a step keeps."""
    weight_decay: NotNegative = 0.0003
    """Pull of the weights towards zero, in the gradient of a mean row."""
    gibbs_steps: Count = 1
    """T at the end of training; it grows from 1."""
    exact: Annotated[bool, TRUE_OR_FALSE] = True
    """Sum hidden units out for predictions; else they stay at their mean given the row."""

    def __post_init__(self) -> None:
        check_fields(self, ModelError)

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> FittedRBM:
        """Train for all epochs, keep the weights that predict `valid` best."""
        require_ratings(train)
        rows, count, seen = train.rows(self.side), thread_count(threads), Seen.of(train, self.side)
        everything = by_column(rows, np.arange(len(rows)), seen.stars)

        def fits() -> Iterator[FittedRBM]:
            for machine in self._train(rows, seen, seed, count):
                inputs = machine.inputs(everything, count)
                yield FittedRBM(machine.copy(), inputs, self.exact, seen)

        cure = f"lower learning_rate (={self.learning_rate})"
        with one_torch_thread():  # its workers would compete with the kernels'
            return best_by_validation(fits(), valid, cure=cure)

    def _train(self, rows: Rows, seen: Seen, seed: int, threads: int) -> Iterator[Machine]:
        """The machine, moved in place, after every epoch."""
        machine = _first_machine(seen, self.hidden, seed)
        order, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed + 1)
        optimiser, falling = self._optimiser(machine, n_batches(rows, self.batch_rows))
        shares = torch.softmax(machine.b, 1)  # (M, K): the levels' frequencies
        for epoch in range(self.epochs):
            gibbs_steps = 1 + epoch * self.gibbs_steps // self.epochs
            for which in shuffled(rows, self.batch_rows, order):
                data = by_column(rows, which, seen.stars)
                sample = machine.gibbs(data, gibbs_steps, random, threads)
                _give_gradients(machine, machine.slopes(data, sample, threads), len(which))
                optimiser.step()
                falling.step()
                _centre_weights(machine, shares)
            yield machine

    def _optimiser(self, machine: Machine, batches: int) -> tuple[SGD, LambdaLR]:
        groups: list[dict[str, Any]] = [
            {"params": [machine.W]},
            {"params": [machine.b, machine.c], "weight_decay": 0.0},  # b: how common levels are
        ]
        optimiser = SGD(
            groups,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        steps = self.epochs * batches
        return optimiser, LambdaLR(optimiser, lambda step: 1 - step / steps)


def _first_machine(seen: Seen, hidden: int, seed: int) -> Machine:
    """Small random weights; biases say how often each column has each level."""
    random = torch.Generator().manual_seed(seed)
    M, K = seen.columns.shape
    W = torch.randn(M, K, hidden, generator=random) * _SPREAD
    nobody = np.full(M, -1)
    b = np.log(seen.frequencies(nobody, np.arange(M))).astype(np.float32)
    return Machine(W, torch.from_numpy(b), torch.zeros(hidden))


def _give_gradients(machine: Machine, slopes: Machine, rows: int) -> None:
    """Those of a mean row, as if scores were b + W·(h − σ(c)): else each change of W shifts all."""
    h = torch.sigmoid(machine.c)
    d_W, d_b, d_c = (tensor / rows for tensor in vars(slopes).values())
    d_W.addcmul_(d_b[..., None], h, value=-1.0)
    machine.W.grad, machine.b.grad, machine.c.grad = d_W, d_b - d_W @ h, d_c


def _centre_weights(machine: Machine, shares: Tensor) -> None:
    """Take each column's mean vector away, so that average ratings leave hidden units at σ(c).

    Scores do not change (a softmax ignores what all levels share), and a row's inputs no longer
    drift with the number of its ratings.
    """
    machine.W.sub_(torch.einsum("mk,mkf->mf", shares, machine.W)[:, None])
