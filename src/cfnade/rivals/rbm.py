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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from cfnade.data.ratings import Ratings, Rows, Side
from cfnade.errors import ModelError
from cfnade.kernels.autograd import cell_scores, context_sum
from cfnade.kernels.grouping import Grouped
from cfnade.kernels.threads import one_torch_thread, thread_count
from cfnade.rivals.batches import grouped, n_batches, shuffled
from cfnade.rivals.interface import (
    Arrays,
    FloatArray,
    IntArray,
    require_fitted,
    take,
)
from cfnade.rivals.options import at_least, one_of, positive, whole
from cfnade.rivals.seen import Seen

_CHUNK = 1 << 14  # cells predicted at a time
_SPREAD = 0.01  # of the first weights


@dataclass(frozen=True, kw_only=True)
class RBMOptions:
    """The machine and its training."""

    side: Side = "user"
    """Whose ratings are a row: user or item."""
    hidden: int = 50
    """Binary hidden units."""
    epochs: int = 10
    """Passes over all rows."""
    batch_rows: int = 64
    """Rows in a step."""
    learning_rate: float = 0.2
    """The first step size; it falls linearly to zero."""
    momentum: float = 0.9
    """How much of the last steps' direction a step keeps."""
    weight_decay: float = 0.0003
    """Pull of the weights towards zero, in the gradient of a mean row."""
    gibbs_steps: int = 1
    """T at the end of training; it grows from 1."""
    exact: bool = True
    """Sum hidden units out for predictions; else they stay at their mean given the row."""

    def __post_init__(self) -> None:
        one_of(self, "side", ("user", "item"))
        whole(self, 1, "hidden", "epochs", "batch_rows", "gibbs_steps")
        positive(self, "learning_rate")
        at_least(self, 0, "momentum", "weight_decay")
        if not self.momentum < 1:
            raise ModelError(f"momentum (={self.momentum}) must be below 1")
        if not isinstance(self.exact, bool):
            raise ModelError(f"exact (={self.exact!r}) must be true or false")


@dataclass(frozen=True)
class Machine:
    """Parameters, and what they mean."""

    W: Tensor  # (M, K, F)
    b: Tensor  # (M, K)
    c: Tensor  # (F,)

    def inputs(self, ratings: Grouped, threads: int | None = None) -> Tensor:
        """s: what the hidden units of each row get. Returns (B, F)."""
        return context_sum(self.W, ratings, shared=False, threads=threads) + self.c

    def free_energy(self, ratings: Grouped, threads: int | None = None) -> Tensor:
        """Σ over rows of F(v). Returns a scalar."""
        column = np.repeat(np.arange(ratings.n_columns), np.diff(ratings.starts))
        cells = column * self.b.shape[1] + ratings.levels
        counts = np.bincount(cells, minlength=self.b.numel()).reshape(self.b.shape)
        at_bias = (self.b * torch.from_numpy(counts)).sum()
        return -at_bias - softplus(self.inputs(ratings, threads)).sum()

    def gibbs(
        self, ratings: Grouped, steps: int, random: torch.Generator, threads: int | None = None
    ) -> Grouped:
        """The same cells with other levels: `steps` times h given v, then v given h."""
        column = np.repeat(np.arange(ratings.n_columns), np.diff(ratings.starts))
        rows, columns = torch.from_numpy(ratings.rows), torch.from_numpy(column)
        for _ in range(steps):
            chances = torch.sigmoid(self.inputs(ratings, threads))
            h = torch.bernoulli(chances, generator=random)  # (B, F)
            scores = cell_scores(h, self.W, self.b, rows, columns, shared=False, threads=threads)
            draws = torch.rand(len(rows), 1, generator=random, dtype=scores.dtype)
            below = torch.cumsum(torch.softmax(scores, 1), 1)[:, :-1] < draws  # (n, K-1)
            ratings = ratings._replace(levels=below.sum(1).to(torch.uint8).numpy())
        return ratings

    def level_scores(self, inputs: Tensor, columns: Tensor, exact: bool) -> Tensor:
        """log p(v_q = k | v) + const for cells (inputs[i], columns[i]). Returns (n, K)."""
        W = self.W[columns]  # (n, K, F)
        if exact:
            return self.b[columns] + softplus(inputs[:, None] + W).sum(2)
        return self.b[columns] + (W * torch.sigmoid(inputs)[:, None]).sum(2)


class RBM:
    """Softmax ratings and binary hidden units, by contrastive divergence."""

    name: ClassVar[str] = "rbm"

    def __init__(self, **options: Any) -> None:
        self.options = RBMOptions(**options)
        self._machine: Machine | None = None

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Train for all epochs, keep the weights that predicted `valid` best (else the last)."""
        if len(train) == 0:
            raise ModelError("there are no ratings to learn from; give at least one")
        rows, count = train.rows(self.options.side), thread_count(threads)
        self._seen, self._values = Seen.of(rows), train.scale.array()
        with one_torch_thread():  # its workers would compete with the kernels'
            self._fit(rows, valid, seed, count)

    def _fit(self, rows: Rows, valid: Ratings, seed: int, threads: int) -> None:
        machine = _first_machine(self._seen, self.options.hidden, seed)
        everything = grouped(rows, np.arange(len(rows)))
        best, kept = np.inf, None
        for _ in _train(machine, rows, self.options, seed, threads):
            self._machine = _copy(machine)
            self._inputs = self._machine.inputs(everything, threads)
            if len(valid) == 0:
                continue
            score = float(np.square(self.predict(valid.users, valid.items) - valid.values).mean())
            if score < best:
                best, kept = score, (self._machine, self._inputs)
        if kept is not None:
            self._machine, self._inputs = kept

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of `probabilities`. Returns (n,)."""
        return self.probabilities(users, items) @ self._values

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """p(v_q | the row's training ratings). Returns (n, K)."""
        require_fitted(self._machine is not None, self.name)
        assert self._machine is not None
        rows, columns = self._seen.cells(users, items, self.options.side)
        out = self._seen.frequencies(rows, columns)  # (n, K)
        known = np.flatnonzero(self._seen.known(rows, columns))
        for at in np.array_split(known, len(known) // _CHUNK + 1):
            inputs = self._inputs[torch.from_numpy(rows[at])]
            columns_at = torch.from_numpy(columns[at])
            scores = self._machine.level_scores(inputs, columns_at, self.options.exact)
            out[at] = torch.softmax(scores.double(), 1).numpy()
        return out

    def arrays(self) -> Arrays:
        """Weights, biases, every row's hidden inputs, level counts and the scale."""
        require_fitted(self._machine is not None, self.name)
        assert self._machine is not None
        tensors = {**vars(self._machine), "inputs": self._inputs}
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        return {**arrays, **self._seen.arrays(), "scale": self._values}

    def restore(self, arrays: Arrays) -> None:
        """Take them back."""
        self._values = take(arrays, "scale", "float64", (None,))
        K, F = len(self._values), self.options.hidden
        self._seen = Seen.restore(arrays, K)
        N, M = len(self._seen.rows), len(self._seen.columns)
        shapes: dict[str, tuple[int, ...]] = {"W": (M, K, F), "b": (M, K), "c": (F,)}
        shapes["inputs"] = (N, F)
        taken = {n: torch.from_numpy(take(arrays, n, "float32", s)) for n, s in shapes.items()}
        self._inputs = taken.pop("inputs")
        self._machine = Machine(**taken)


def _first_machine(seen: Seen, hidden: int, seed: int) -> Machine:
    """Small random weights; biases say how often each column has each level."""
    random = torch.Generator().manual_seed(seed)
    M, K = seen.columns.shape
    W = torch.randn(M, K, hidden, generator=random) * _SPREAD
    nobody = np.full(M, -1)
    b = np.log(seen.frequencies(nobody, np.arange(M))).astype(np.float32)
    return Machine(W, torch.from_numpy(b), torch.zeros(hidden))


def _train(
    machine: Machine, rows: Rows, options: RBMOptions, seed: int, threads: int
) -> Iterator[None]:
    """Move the machine's parameters in place; returns to the caller after every epoch."""
    order, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed + 1)
    parameters = [tensor.requires_grad_() for tensor in vars(machine).values()]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:1]},
        {"params": parameters[1:], "weight_decay": 0.0},  # biases say how common levels are
    ]
    optimiser = SGD(
        groups,
        lr=options.learning_rate,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
    )
    shares = torch.softmax(machine.b.detach(), 1)  # (M, K): the levels' frequencies
    steps = options.epochs * n_batches(rows, options.batch_rows)
    falling = LambdaLR(optimiser, lambda step: 1 - step / steps)
    for epoch in range(options.epochs):
        gibbs_steps = 1 + epoch * options.gibbs_steps // options.epochs
        for which in shuffled(rows, options.batch_rows, order):
            data = grouped(rows, which)
            with torch.no_grad():
                sample = machine.gibbs(data, gibbs_steps, random, threads)
            cost = machine.free_energy(data, threads) - machine.free_energy(sample, threads)
            optimiser.zero_grad()
            torch.autograd.backward(cost / len(which))
            _centre_gradients(machine)
            optimiser.step()
            falling.step()
            _centre_weights(machine, shares)
        with torch.no_grad():
            yield
    for tensor in parameters:
        tensor.requires_grad_(False)


@torch.no_grad()
def _centre_gradients(machine: Machine) -> None:
    """Gradients as if scores were b + W·(h − σ(c)): else every change of W shifts all scores."""
    h = torch.sigmoid(machine.c)
    assert machine.W.grad is not None
    assert machine.b.grad is not None
    machine.W.grad.addcmul_(machine.b.grad[..., None], h, value=-1.0)
    machine.b.grad.sub_(machine.W.grad @ h)


@torch.no_grad()
def _centre_weights(machine: Machine, shares: Tensor) -> None:
    """Take each column's mean vector away, so that average ratings leave hidden units at σ(c).

    Scores do not change (a softmax ignores what all levels share), and a row's inputs no longer
    drift with the number of its ratings.
    """
    machine.W.sub_(torch.einsum("mk,mkf->mf", shares, machine.W)[:, None])


def _copy(machine: Machine) -> Machine:
    return Machine(*(tensor.detach().clone() for tensor in vars(machine).values()))
