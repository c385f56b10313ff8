"""NNMF (Dziugaite and Roy 2015): matrix factorisation whose inner product is a learnt network.

A rating is f(U_u, V_i, U'_u ∘ V'_i): vectors of the user and the item, the elementwise product of
two more, and a feed-forward network f with sigmoid units. The sum of squared errors and λ times the
squared length of all vectors (not of the network) is minimised: everybody is pulled alike, so that
those with few ratings stay close to zero. Where the paper turns between network and vectors with
full gradients, here Adam moves both on shuffled batches, at a rate that falls to zero. The network
works on stars above the training mean.

Users and items without training ratings (and -1) get the mean vector of those who have some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    Fitted,
    FloatArray,
    IntArray,
    NotNegative,
    Positive,
    Rival,
    checked_cells,
)
from cfnade_baselines.choosing import best_by_validation

_CHUNK = 1 << 14  # cells predicted at a time
_SPREAD = 0.1  # of the first vectors


@dataclass(frozen=True)
class TrainingCells:
    """Ratings as torch wants them. The penalty of a vector is shared out among its ratings."""

    users: Tensor  # (n,)
    items: Tensor  # (n,)
    targets: Tensor  # (n,): stars above the mean
    pull_users: Tensor  # λ / number of ratings, of all users up to the last that has some
    pull_items: Tensor  # the same of items

    @classmethod
    def of(cls, train: Dataset, mean: float, penalty: float) -> TrainingCells:
        users, items = (torch.from_numpy(i.astype(np.int64)) for i in (train.users, train.items))
        pulls = (penalty / torch.bincount(index).clamp(min=1) for index in (users, items))
        targets = torch.from_numpy((train.values - mean).astype(np.float32))
        return cls(users, items, targets, *pulls)


@dataclass
class NNMFNetwork:
    """All parameters; the vectors of a side are one table, direct part first."""

    users: Tensor  # (N, D + D')
    items: Tensor  # (M, D + D')
    layers: list[tuple[Tensor, Tensor]]  # weights (out, in) and bias (out,)
    direct: int

    def __call__(self, users: Tensor, items: Tensor) -> Tensor:
        """Stars above the mean for rows of both tables. Returns (n,)."""
        parts = users[:, : self.direct], items[:, : self.direct]
        x = torch.cat([*parts, users[:, self.direct :] * items[:, self.direct :]], 1)  # (n, 2D+D')
        for W, c in self.layers[:-1]:
            x = torch.sigmoid(functional.linear(x, W, c))
        W, c = self.layers[-1]
        return functional.linear(x, W, c)[:, 0]

    def parameters(self) -> list[Tensor]:
        return [self.users, self.items, *(tensor for layer in self.layers for tensor in layer)]

    def loss(self, data: TrainingCells, which: Tensor) -> Tensor:
        """Mean squared error of these ratings, and their share of the penalty."""
        users, items = data.users[which], data.items[which]
        u, i = functional.embedding(users, self.users), functional.embedding(items, self.items)
        errors = (self(u, i) - data.targets[which]).square()
        pull = data.pull_users[users] @ u.square() + data.pull_items[items] @ i.square()
        return errors.mean() + pull.sum() / len(which)


def _first_network(train: Dataset, options: NNMF, random: torch.Generator) -> NNMFNetwork:
    width = options.direct + options.product
    users = torch.empty(train.n_users, width).normal_(0.0, _SPREAD, generator=random)
    items = torch.empty(train.n_items, width).normal_(0.0, _SPREAD, generator=random)
    sizes = [2 * options.direct + options.product, *options.hidden, 1]
    layers: list[tuple[Tensor, Tensor]] = []
    for inputs, outputs in pairwise(sizes):
        # A sigmoid's slope is a quarter at most.
        gain = 4 if len(layers) < len(options.hidden) else 1
        bound = gain * float(np.sqrt(6 / (inputs + outputs)))
        W = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=random)
        layers.append((W, torch.zeros(outputs)))
    return NNMFNetwork(users, items, layers, options.direct)


@dataclass(frozen=True)
class FittedNNMF(Fitted):
    """A network whose tables have one row more: the mean vector, for -1."""

    network: NNMFNetwork
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, network: NNMFNetwork, train: Dataset, mean: float) -> FittedNNMF:
        """With copies, in which those without ratings have the others' mean vector."""
        users = _with_mean(network.users, train.users)
        items = _with_mean(network.items, train.items)
        layers = [(W.detach().clone(), c.detach().clone()) for W, c in network.layers]
        stars = train.scale.values
        return cls(NNMFNetwork(users, items, layers, network.direct), mean, stars[0], stars[-1])

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The network's answers, clipped to the scale. Returns (n,)."""
        U, V = self.network.users, self.network.items
        rows, columns = checked_cells(users, items, len(U) - 1, len(V) - 1)
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = self.network(U[rows[part]], V[columns[part]]).numpy()  # -1: the last row
        return np.clip(out + self.mean, self.low, self.high)


def _with_mean(table: Tensor, index: IntArray) -> Tensor:
    seen = torch.from_numpy(np.bincount(index, minlength=len(table)) > 0)
    mean = table.detach()[seen].mean(0)
    vectors = torch.where(seen[:, None], table.detach(), mean)
    return torch.cat([vectors, mean[None]])


@options(ModelError)
class NNMF(Rival[FittedNNMF]):
    """Sizes of the vectors and the network, and how they are trained."""

    name: ClassVar[str] = "nnmf"

    direct: Annotated[int, Ge(0)] = 10
    """Length D of the vectors U and V that the network sees as they are."""
    product: Annotated[int, Ge(0)] = 60
    """Length D' of U' and V', of which it sees the product."""
    hidden: tuple[Annotated[int, Ge(1)], ...] = (50, 50, 50)
    """Sigmoid units in each hidden layer; () is a linear network."""
    penalty: NotNegative = 20.0
    """λ, of a vector's squared length against the sum of squared errors in stars."""
    epochs: Count = 10
    """Passes over the ratings; the best by validation is kept."""
    batch: Count = 512
    """Ratings in a step."""
    learning_rate: Positive = 3e-3
    """Adam's, in the first step; it falls to zero in a straight line."""

    def __post_init__(self) -> None:
        if self.direct + self.product == 0:
            raise ModelError("direct and product are both 0, so there is nothing to learn from")

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedNNMF:
        """Train for all epochs and keep the best by validation, or the last without any."""
        mean = float(train.values.mean())

        def fits() -> Iterator[FittedNNMF]:
            for network in self._train(train, mean, seed):
                yield FittedNNMF.of(network, train, mean)

        cure = f"lower learning_rate (={self.learning_rate})"
        with torch_threads(thread_count(threads)):
            return best_by_validation(fits(), valid, cure=cure)

    def _train(self, train: Dataset, mean: float, seed: int) -> Iterator[NNMFNetwork]:
        """The network, moved in place, after every epoch."""
        random = torch.Generator().manual_seed(seed)
        network = _first_network(train, self, random)
        cells = TrainingCells.of(train, mean, self.penalty)
        parameters = [tensor.requires_grad_() for tensor in network.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=self.learning_rate)
        steps = self.epochs * -(-len(train) // self.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
        for _ in range(self.epochs):
            order = torch.randperm(len(train), generator=random)
            for which in torch.split(order, self.batch):
                optimiser.zero_grad()
                torch.autograd.backward(network.loss(cells, which))
                optimiser.step()
                schedule.step()
            yield network
