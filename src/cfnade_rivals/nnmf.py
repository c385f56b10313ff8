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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError, TrainingError
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade_rivals.interface import (
    Arrays,
    FloatArray,
    IntArray,
    checked_cells,
    require_fitted,
    take,
)
from cfnade_rivals.options import at_least, positive, whole

_CHUNK = 1 << 14  # cells predicted at a time
_SPREAD = 0.1  # of the first vectors


@dataclass(frozen=True, kw_only=True)
class NNMFOptions:
    """Sizes of the vectors and the network, and how they are trained."""

    direct: int = 10
    """Length D of the vectors U and V that the network sees as they are."""
    product: int = 60
    """Length D' of U' and V', of which it sees the product."""
    hidden: tuple[int, ...] = (50, 50, 50)
    """Sigmoid units in each hidden layer; () is a linear network."""
    penalty: float = 20.0
    """λ, of a vector's squared length against the sum of squared errors in stars."""
    epochs: int = 10
    """Passes over the ratings; the best by validation is kept."""
    batch: int = 512
    """Ratings in a step."""
    learning_rate: float = 3e-3
    """Adam's, in the first step; it falls to zero in a straight line."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))  # recipes give lists
        whole(self, 0, "direct", "product")
        whole(self, 1, "epochs", "batch")
        at_least(self, 0, "penalty")
        positive(self, "learning_rate")
        if any(not isinstance(units, int) or units < 1 for units in self.hidden):
            raise ModelError(f"hidden (={self.hidden}) must hold whole numbers of 1 or more")
        if self.direct + self.product == 0:
            raise ModelError("direct and product are both 0, so there is nothing to learn from")


@dataclass(frozen=True)
class _Data:
    """Ratings as torch wants them. The penalty of a vector is shared out among its ratings."""

    users: Tensor  # (n,)
    items: Tensor  # (n,)
    targets: Tensor  # (n,): stars above the mean
    pull_users: Tensor  # λ / number of ratings, of all users up to the last that has some
    pull_items: Tensor  # the same of items

    @classmethod
    def of(cls, train: Ratings, mean: float, penalty: float) -> _Data:
        users, items = (torch.from_numpy(i.astype(np.int64)) for i in (train.users, train.items))
        pulls = (penalty / torch.bincount(index).clamp(min=1) for index in (users, items))
        targets = torch.from_numpy((train.values - mean).astype(np.float32))
        return cls(users, items, targets, *pulls)


@dataclass
class _Network:
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

    def loss(self, data: _Data, at: Tensor) -> Tensor:
        """Mean squared error of the ratings `at`, and their share of the penalty."""
        users, items = data.users[at], data.items[at]
        u, i = functional.embedding(users, self.users), functional.embedding(items, self.items)
        errors = (self(u, i) - data.targets[at]).square()
        pull = data.pull_users[users] @ u.square() + data.pull_items[items] @ i.square()
        return errors.mean() + pull.sum() / len(at)


def _first_network(train: Ratings, o: NNMFOptions, random: torch.Generator) -> _Network:
    width = o.direct + o.product
    users = torch.empty(train.n_users, width).normal_(0.0, _SPREAD, generator=random)
    items = torch.empty(train.n_items, width).normal_(0.0, _SPREAD, generator=random)
    sizes = [2 * o.direct + o.product, *o.hidden, 1]
    layers: list[tuple[Tensor, Tensor]] = []
    for inputs, outputs in pairwise(sizes):
        gain = 4 if len(layers) < len(o.hidden) else 1  # a sigmoid's slope is a quarter at most
        bound = gain * float(np.sqrt(6 / (inputs + outputs)))
        W = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=random)
        layers.append((W, torch.zeros(outputs)))
    return _Network(users, items, layers, o.direct)


class NNMF:
    """A network over vectors of users and items."""

    name: ClassVar[str] = "nnmf"

    def __init__(self, **options: Any) -> None:
        self.options = NNMFOptions(**options)
        self._learnt: Arrays = {}

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Train for all epochs and keep the best by validation, or the last without any."""
        if len(train) == 0:
            raise ModelError("there are no ratings to learn from; give at least one")
        random = torch.Generator().manual_seed(seed)
        network = _first_network(train, self.options, random)
        mean, best = float(train.values.mean()), np.inf
        with torch_threads(thread_count(threads)):
            for _ in _epochs(network, train, mean, self.options, random):
                before, self._learnt = self._learnt, _export(network, train, mean)
                error = np.square(self.predict(valid.users, valid.items) - valid.values).sum()
                if not np.isfinite(error):
                    rate = self.options.learning_rate
                    raise TrainingError(f"nnmf diverged; lower learning_rate (={rate})")
                if error > best:
                    self._learnt = before
                else:
                    best = error

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The network's answers, clipped to the scale. Returns (n,)."""
        require_fitted(bool(self._learnt), self.name)
        learnt = {name: torch.from_numpy(array) for name, array in self._learnt.items()}
        U, V = learnt["users"], learnt["items"]  # one row more than there are users, or items
        rows, columns = checked_cells(users, items, len(U) - 1, len(V) - 1)
        count = len(self.options.hidden) + 1
        layers = [(learnt[f"weights_{i}"], learnt[f"bias_{i}"]) for i in range(count)]
        network = _Network(U, V, layers, self.options.direct)
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            at = slice(start, start + _CHUNK)
            out[at] = network(U[rows[at]], V[columns[at]]).numpy()  # -1 is the mean vector
        scale = self._learnt["scale"]
        return np.clip(out + self._learnt["mean"], scale[0], scale[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """A squared error has no distribution."""

    def arrays(self) -> Arrays:
        """Both tables (a mean vector is their last row), the layers, the mean and the scale."""
        require_fitted(bool(self._learnt), self.name)
        return dict(self._learnt)

    def restore(self, arrays: Arrays) -> None:
        """Take them back."""
        o = self.options
        sizes = [2 * o.direct + o.product, *o.hidden, 1]
        tables = {
            name: take(arrays, name, "float32", (None, o.direct + o.product))
            for name in ("users", "items")
        }
        learnt = tables | {
            "mean": take(arrays, "mean", "float64", (1,)),
            "scale": take(arrays, "scale", "float64", (None,)),
        }
        for i, shape in enumerate(zip(sizes[1:], sizes[:-1], strict=True)):
            learnt[f"weights_{i}"] = take(arrays, f"weights_{i}", "float32", shape)
            learnt[f"bias_{i}"] = take(arrays, f"bias_{i}", "float32", shape[:1])
        self._learnt = learnt


def _epochs(
    network: _Network, train: Ratings, mean: float, o: NNMFOptions, random: torch.Generator
) -> Iterator[None]:
    """Move the network through the epochs, one a turn."""
    data = _Data.of(train, mean, o.penalty)
    parameters = [tensor.requires_grad_() for tensor in network.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=o.learning_rate)
    steps = o.epochs * -(-len(train) // o.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for _ in range(o.epochs):
        order = torch.randperm(len(train), generator=random)
        for at in torch.split(order, o.batch):
            optimiser.zero_grad()
            loss = network.loss(data, at)
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
        yield


def _export(network: _Network, train: Ratings, mean: float) -> Arrays:
    """Copies of the parameters, in which those without ratings have the others' mean vector."""
    arrays: Arrays = {"mean": np.array([mean]), "scale": train.scale.array()}
    for name, index in (("users", train.users), ("items", train.items)):
        table = getattr(network, name).detach().numpy()
        seen = np.bincount(index, minlength=len(table)) > 0
        arrays[name] = np.concatenate([table, np.zeros_like(table[:1])])
        arrays[name][:-1][~seen] = arrays[name][-1] = table[seen].mean(0)
    for i, (W, c) in enumerate(network.layers):
        arrays[f"weights_{i}"] = W.detach().numpy().copy()
        arrays[f"bias_{i}"] = c.detach().numpy().copy()
    return arrays
