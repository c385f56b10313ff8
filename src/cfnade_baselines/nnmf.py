"""NNMF (Dziugaite and Roy 2015): matrix factorization with a learned inner product.

A rating is f(U_u, V_i, U'_u ∘ V'_i): vectors of the user and the item, the elementwise product of
two more, and a feed-forward network f with sigmoid units. The loss is the sum of squared errors
plus λ times the squared length of all vectors (not of the network): every vector has the same
penalty, so that those with few ratings stay close to zero. Where the paper alternates between
network and vectors with full gradients, Adam updates both on shuffled batches here, at a rate that
decays to zero. The network predicts ratings minus the training mean.

Users and items without training ratings (and -1) get the mean vector of those with some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar

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
    FloatArray,
    IntArray,
    NonNegative,
    Positive,
    RatingPredictor,
    check_pairs,
    select_by_validation,
)

_CHUNK = 1 << 14  # pairs predicted at a time
_INIT_STD = 0.1  # of the initial vectors


@options(ModelError)
class NNMF(RatingPredictor):
    """Sizes of the vectors and the network, and how they are trained."""

    name: ClassVar[str] = "nnmf"

    direct: Annotated[int, Ge(0)] = 10
    """Length D of the vectors U and V that enter the network directly."""
    product: Annotated[int, Ge(0)] = 60
    """Length D' of U' and V', whose product enters."""
    hidden: tuple[Annotated[int, Ge(1)], ...] = (50, 50, 50)
    """Sigmoid units in each hidden layer; () is a linear network."""
    penalty: NonNegative = 20.0
    """λ, of a vector's squared length against the sum of squared errors."""
    epochs: Count = 10
    """Passes over the ratings; the best by validation is kept."""
    batch: Count = 512
    """Ratings per step."""
    learning_rate: Positive = 3e-3
    """Adam's initial step size; it decays linearly to zero."""

    def __post_init__(self) -> None:
        if self.direct + self.product == 0:
            raise ModelError("direct and product are both 0, so there is nothing to learn from")

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Train for all epochs and keep the best by validation, or the last without any."""
        mean = float(train.values.mean())

        def states() -> Iterator[dict[str, Any]]:
            for network in self._train(train, mean, seed):
                yield {"network_": _snapshot(network, train)}

        self._set(mean_=mean, range_=(train.scale.values[0], train.scale.values[-1]))
        remedy = f"lower learning_rate (={self.learning_rate})"
        with torch_threads(thread_count(n_threads)):
            select_by_validation(self, states(), valid, remedy=remedy)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the network's outputs, clipped to the scale. (n,)."""
        network: NNMFNetwork = self.network_
        U, V = network.users, network.items
        rows, columns = check_pairs(users, items, len(U) - 1, len(V) - 1)
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            out[chunk] = network(U[rows[chunk]], V[columns[chunk]]).numpy()  # -1: the last row
        low, high = self.range_
        ratings: FloatArray = np.clip(out + self.mean_, low, high)
        return ratings

    def _train(self, train: Dataset, mean: float, seed: int) -> Iterator[NNMFNetwork]:
        """Yield the network, which later steps change in place, after every epoch."""
        generator = torch.Generator().manual_seed(seed)
        network = _initial_network(train, self, generator)
        ratings = TrainingRatings.prepare(train, mean, self.penalty)
        parameters = [tensor.requires_grad_() for tensor in network.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        steps = self.epochs * -(-len(train) // self.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        for _ in range(self.epochs):
            order = torch.randperm(len(train), generator=generator)
            for index in torch.split(order, self.batch):
                optimizer.zero_grad()
                torch.autograd.backward(network.loss(ratings, index))
                optimizer.step()
                schedule.step()
            yield network


@dataclass(frozen=True)
class TrainingRatings:
    """Ratings as tensors; the penalty of a vector is divided among its ratings."""

    users: Tensor  # (n,)
    items: Tensor  # (n,)
    targets: Tensor  # (n,) ratings minus the mean
    user_penalties: Tensor  # λ / number of ratings, up to the last user with ratings
    item_penalties: Tensor  # the same of items

    @classmethod
    def prepare(cls, train: Dataset, mean: float, penalty: float) -> TrainingRatings:
        users, items = (torch.from_numpy(i.astype(np.int64)) for i in (train.users, train.items))
        penalties = (penalty / torch.bincount(index).clamp(min=1) for index in (users, items))
        targets = torch.from_numpy((train.values - mean).astype(np.float32))
        return cls(users, items, targets, *penalties)


@dataclass
class NNMFNetwork:
    """All parameters; the vectors of users and of items are one table each, direct part first."""

    users: Tensor  # (N, D + D')
    items: Tensor  # (M, D + D')
    layers: list[tuple[Tensor, Tensor]]  # weights (out, in) and bias (out,)
    direct: int

    def __call__(self, users: Tensor, items: Tensor) -> Tensor:
        """Return ratings minus the mean for rows of both tables, (n,)."""
        parts = users[:, : self.direct], items[:, : self.direct]
        x = torch.cat([*parts, users[:, self.direct :] * items[:, self.direct :]], 1)  # (n, 2D+D')
        for W, c in self.layers[:-1]:
            x = torch.sigmoid(functional.linear(x, W, c))
        W, c = self.layers[-1]
        return functional.linear(x, W, c)[:, 0]

    def parameters(self) -> list[Tensor]:
        return [self.users, self.items, *(tensor for layer in self.layers for tensor in layer)]

    def loss(self, data: TrainingRatings, index: Tensor) -> Tensor:
        """Return the mean squared error of the ratings of this index plus their penalty."""
        users, items = data.users[index], data.items[index]
        u, i = functional.embedding(users, self.users), functional.embedding(items, self.items)
        errors = (self(u, i) - data.targets[index]).square()
        user_penalty = data.user_penalties[users] @ u.square()
        penalty = user_penalty + data.item_penalties[items] @ i.square()
        return errors.mean() + penalty.sum() / len(index)


def _initial_network(train: Dataset, options: NNMF, generator: torch.Generator) -> NNMFNetwork:
    width = options.direct + options.product
    users = torch.empty(train.n_users, width).normal_(0.0, _INIT_STD, generator=generator)
    items = torch.empty(train.n_items, width).normal_(0.0, _INIT_STD, generator=generator)
    sizes = [2 * options.direct + options.product, *options.hidden, 1]
    layers: list[tuple[Tensor, Tensor]] = []
    for inputs, outputs in pairwise(sizes):
        # The derivative of a sigmoid is at most a quarter.
        gain = 4 if len(layers) < len(options.hidden) else 1
        bound = gain * float(np.sqrt(6 / (inputs + outputs)))
        W = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        layers.append((W, torch.zeros(outputs)))
    return NNMFNetwork(users, items, layers, options.direct)


def _snapshot(network: NNMFNetwork, train: Dataset) -> NNMFNetwork:
    """Return a copy whose tables have one row more: the mean vector, for -1."""
    users = _fill_mean(network.users, train.users)
    items = _fill_mean(network.items, train.items)
    layers = [(W.detach().clone(), c.detach().clone()) for W, c in network.layers]
    return NNMFNetwork(users, items, layers, network.direct)


def _fill_mean(table: Tensor, index: IntArray) -> Tensor:
    """Replace the vectors of those without ratings by the mean of the others; append the mean."""
    is_rated = torch.from_numpy(np.bincount(index, minlength=len(table)) > 0)
    mean = table.detach()[is_rated].mean(0)
    vectors = torch.where(is_rated[:, None], table.detach(), mean)
    return torch.cat([vectors, mean[None]])
