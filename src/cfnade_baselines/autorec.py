"""AutoRec (Sedhain, Menon, Sanner and Xie 2015): an autoencoder of rows with holes.

A row's ratings r are read and written through one hidden layer,

    r̂_m = b_m + W_m · h,   h = σ(μ + Σ_n r_n V_n)   over the columns n that the row has rated,

fitted by Adam to Σ (r̂_m − r_m)² over all training ratings + λ/2 (‖W‖² + ‖V‖²). Rows are users, or
items (`side`). Only rated cells are ever visited.

Rows and columns without training ratings (and -1): the mean of the other one's ratings, a little
shrunk, or of all ratings if neither is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Axis, Dataset
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade_baselines import autorec_kernels as kernels
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
    Range,
    RatedColumns,
    by_column,
    equal_ranges,
    equal_work,
    n_batches,
    shuffled,
)


class AutoRecNet(NamedTuple):
    """Parameters, or their gradients."""

    V: Floats  # (M, H)
    mu: Floats  # (H,)
    W: Floats  # (M, H)
    b: Floats  # (M,)

    def copy(self) -> AutoRecNet:
        """The same numbers, which no step moves any more."""
        return AutoRecNet(*(array.copy() for array in self))


def states(net: AutoRecNet, ratings: RatedColumns, threads: int, shift: float = 0.0) -> Floats:
    """h of every row; its inputs are the ratings less `shift`. Returns (B, H)."""
    inputs = ratings.values - np.float32(shift)
    ranges = _columns(ratings, threads)
    sums = np.empty((len(ranges), ratings.size, len(net.mu)), np.float32)
    rest = (ratings.starts, ratings.rows, inputs, net.V)
    run_parallel(kernels.add_inputs, [(*part, *rest, sums[t]) for t, part in enumerate(ranges)])
    h = np.empty(sums.shape[1:], np.float32)
    run_parallel(
        kernels.squash, [(*part, sums, net.mu, h) for part in equal_ranges(len(h), threads)]
    )
    return h


def gradients(
    net: AutoRecNet, ratings: RatedColumns, threads: int, shift: float = 0.0, *, out: AutoRecNet
) -> float:
    """Σ (r̂ − r)² of these rows; `out` gets its gradients."""
    h = states(net, ratings, threads, shift)
    ranges, cells = _columns(ratings, threads), (ratings.starts, ratings.rows)
    d_h = np.empty((len(ranges), *h.shape), np.float32)
    rest = (*cells, ratings.values, net.W, net.b, h, out.W, out.b)
    costs = run_parallel(
        kernels.output_gradients, [(*part, *rest, d_h[t]) for t, part in enumerate(ranges)]
    )
    d_sums = np.empty_like(h)
    run_parallel(
        kernels.unsquash, [(*part, d_h, h, d_sums) for part in equal_ranges(len(h), threads)]
    )
    inputs = ratings.values - np.float32(shift)
    run_parallel(
        kernels.input_gradients, [(*part, *cells, inputs, d_sums, out.V) for part in ranges]
    )
    out.mu[:] = d_sums.sum(0)
    return float(sum(costs))


def _columns(ratings: RatedColumns, threads: int) -> list[Range]:
    return equal_work(ratings.starts, threads, each=4.0)


@dataclass(frozen=True)
class FittedAutoRec(Fitted):
    """The net and what it makes of every row's training ratings."""

    net: AutoRecNet
    states: Floats  # (N, H)
    seen: Seen

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """r̂ of the row given its training ratings, clipped to the scale. Returns (n,)."""
        rows, columns = self.seen.cells(users, items)
        scale = self.seen.stars
        out: FloatArray = self.seen.frequencies(rows, columns) @ scale  # (n,)
        both = self.seen.both(rows, columns)
        stars = np.empty(np.count_nonzero(both), np.float32)
        kernels.outputs(rows[both], columns[both], self.net.W, self.net.b, self.states, stars)
        out[both] = stars
        return np.clip(out, scale[0], scale[-1])


@dataclass(frozen=True, kw_only=True)
class AutoRec(Rival[FittedAutoRec]):
    """One hidden layer that reads a row's ratings and writes them all."""

    name: ClassVar[str] = "autorec"

    side: Axis = "item"
    """Whose ratings are a row: user or item."""
    hidden: Count = 500
    """Hidden units."""
    regularisation: NotNegative = 200.0
    """λ, the weight of the squared weights against the squared errors of all ratings."""
    epochs: Count = 30
    """Passes over all rows."""
    batch_rows: Count = 256
    """Rows in a step."""
    learning_rate: Positive = 0.003
    """The first step size; it falls linearly to zero."""
    centre: bool = False
    """Read ratings less the mean of all, in place of ratings as they are."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedAutoRec:
        """Train for all epochs, keep the weights that predict `valid` best."""
        rows, count = train.rows(self.side), thread_count(threads)
        everything = by_column(rows, np.arange(len(rows)), train.scale.array())
        mean, seen = float(train.values.mean()), Seen.of(train, self.side)
        shift = mean if self.centre else 0.0

        def fits() -> Iterator[FittedAutoRec]:
            for net in self._train(rows, seen.stars, mean, seed, count):
                yield FittedAutoRec(net.copy(), states(net, everything, count, shift), seen)

        return best_by_validation(
            fits(), valid, cure=f"lower learning_rate (={self.learning_rate})"
        )

    def _train(
        self, rows: CsrRows, stars: FloatArray, mean: float, seed: int, threads: int
    ) -> Iterator[AutoRecNet]:
        """The net, moved in place, after every few epochs and after the last."""
        random = np.random.default_rng(seed)
        net, shift = _first_net(rows, mean, self.hidden, random), mean if self.centre else 0.0
        slopes, *moments = (AutoRecNet(*map(np.zeros_like, net)) for _ in range(3))
        batches, step = n_batches(rows, self.batch_rows), 0
        for epoch in range(1, self.epochs + 1):
            for which in shuffled(rows, self.batch_rows, random):
                gradients(net, by_column(rows, which, stars), threads, shift, out=slopes)
                rate = self.learning_rate * (1 - step / (self.epochs * batches))
                step += 1
                decay = self.regularisation / batches  # a batch's share
                _adam_step(net, slopes, moments, decay, rate, step, threads)
            if epoch % LOOK == 0 or epoch == self.epochs:
                yield net


def _adam_step(
    net: AutoRecNet,
    slopes: AutoRecNet,
    moments: list[AutoRecNet],
    decay: float,
    rate: float,
    step: int,
    threads: int,
) -> None:
    """Move the net in place; weights decay and biases do not."""
    scales = np.array([1 / (1 - 0.9**step), 1 / (1 - 0.999**step)], np.float32)
    for name, *arrays in zip(net._fields, net, slopes, *moments, strict=True):
        flat = [array.reshape(-1) for array in arrays]
        rest = (*flat, np.float32(decay if name in "VW" else 0), np.float32(rate), scales)
        run_parallel(kernels.adam, [(*part, *rest) for part in equal_ranges(len(flat[0]), threads)])


def _first_net(rows: CsrRows, mean: float, hidden: int, random: np.random.Generator) -> AutoRecNet:
    """Weights of the usual width for such layers; outputs start near the mean rating."""
    M = rows.n_columns
    width = np.sqrt(6 / (M + hidden))
    V, W = random.uniform(-width, width, (2, M, hidden)).astype(np.float32)
    return AutoRecNet(V, np.zeros(hidden, np.float32), W, np.full(M, mean, np.float32))
