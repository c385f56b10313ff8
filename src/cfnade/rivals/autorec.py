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
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings, Rows, Side
from cfnade.errors import ModelError
from cfnade.kernels.grouping import Grouped, partition
from cfnade.kernels.threads import run, thread_count
from cfnade.rivals import autorec_kernels as kernels
from cfnade.rivals.batches import grouped, n_batches, shuffled
from cfnade.rivals.interface import Arrays, FloatArray, IntArray, require_fitted, take
from cfnade.rivals.options import at_least, one_of, positive, whole
from cfnade.rivals.seen import Seen

Floats = npt.NDArray[np.float32]
Cut = tuple[int, int]
_CHECK = 5  # epochs between looks at validation


@dataclass(frozen=True, kw_only=True)
class AutoRecOptions:
    """The net and its training."""

    side: Side = "item"
    """Whose ratings are a row: user or item."""
    hidden: int = 500
    """Hidden units."""
    regularisation: float = 200.0
    """λ, the weight of the squared weights against the squared errors of all ratings."""
    epochs: int = 30
    """Passes over all rows."""
    batch_rows: int = 256
    """Rows in a step."""
    learning_rate: float = 0.003
    """The first step size; it falls linearly to zero."""
    centre: bool = False
    """Read ratings less the mean of all, in place of ratings as they are."""

    def __post_init__(self) -> None:
        one_of(self, "side", ("user", "item"))
        whole(self, 1, "hidden", "epochs", "batch_rows")
        positive(self, "learning_rate")
        at_least(self, 0, "regularisation")
        if not isinstance(self.centre, bool):
            raise ModelError(f"centre (={self.centre!r}) must be true or false")


class Net(NamedTuple):
    """Parameters, or their gradients."""

    V: Floats  # (M, H)
    mu: Floats  # (H,)
    W: Floats  # (M, H)
    b: Floats  # (M,)


def states(net: Net, ratings: Grouped, threads: int, shift: float = 0.0) -> Floats:
    """h of every row; its inputs are the ratings' weights less `shift`. Returns (B, H)."""
    inputs = ratings.weights - np.float32(shift)
    cuts = _columns(ratings, threads)
    sums = np.empty((len(cuts), ratings.size, len(net.mu)), np.float32)
    fixed = (ratings.starts, ratings.rows, inputs, net.V)
    run(kernels.add_inputs, [(*cut, *fixed, sums[t]) for t, cut in enumerate(cuts)])
    h = np.empty(sums.shape[1:], np.float32)
    run(kernels.squash, [(*cut, sums, net.mu, h) for cut in _even(len(h), threads)])
    return h


def gradients(net: Net, ratings: Grouped, threads: int, shift: float = 0.0, *, out: Net) -> float:
    """Σ (r̂ − r)² of these rows, whose ratings are the weights; `out` gets its gradients."""
    h = states(net, ratings, threads, shift)
    cuts, fixed = _columns(ratings, threads), (ratings.starts, ratings.rows)
    d_h = np.empty((len(cuts), *h.shape), np.float32)
    tables = (ratings.weights, net.W, net.b, h, out.W, out.b)
    costs = run(
        kernels.output_gradients,
        [(*cut, *fixed, *tables, d_h[t]) for t, cut in enumerate(cuts)],
    )
    d_sums = np.empty_like(h)
    run(kernels.unsquash, [(*cut, d_h, h, d_sums) for cut in _even(len(h), threads)])
    inputs = ratings.weights - np.float32(shift)
    run(kernels.input_gradients, [(*cut, *fixed, inputs, d_sums, out.V) for cut in cuts])
    out.mu[:] = d_sums.sum(0)
    return float(sum(costs))


class AutoRec:
    """One hidden layer that reads a row's ratings and writes them all."""

    name: ClassVar[str] = "autorec"

    def __init__(self, **options: Any) -> None:
        self.options = AutoRecOptions(**options)
        self._net: Net | None = None

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Train for all epochs, keep the weights that predicted `valid` best (else the last)."""
        if len(train) == 0:
            raise ModelError("there are no ratings to learn from; give at least one")
        rows, count = train.rows(self.options.side), thread_count(threads)
        self._seen, self._values = Seen.of(rows), train.scale.array()
        stars = self._values.astype(np.float32)[rows.levels]  # (n,)
        shift = float(stars.mean(dtype=np.float64)) if self.options.centre else 0.0
        everything = grouped(rows, np.arange(len(rows)), stars)
        best = np.inf
        for net in _train(rows, stars, shift, self.options, seed, count):
            self._net, self._states = net, states(net, everything, count, shift)
            if len(valid) > 0:
                error = self.predict(valid.users, valid.items) - valid.values
                score = float(np.square(error).mean())
                if score < best:
                    best = score
                    kept = Net(*(array.copy() for array in net)), self._states
        if best < np.inf:
            self._net, self._states = kept

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """r̂ of the row given its training ratings, clipped to the scale. Returns (n,)."""
        require_fitted(self._net is not None, self.name)
        assert self._net is not None
        rows, columns = self._seen.cells(users, items, self.options.side)
        out: FloatArray = self._seen.frequencies(rows, columns) @ self._values  # (n,)
        known = self._seen.known(rows, columns)
        stars = np.empty(np.count_nonzero(known), np.float32)
        kernels.outputs(rows[known], columns[known], self._net.W, self._net.b, self._states, stars)
        out[known] = stars
        return np.clip(out, self._values[0], self._values[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """AutoRec has no distribution."""

    def arrays(self) -> Arrays:
        """Weights, biases, every row's hidden state, level counts and the scale."""
        require_fitted(self._net is not None, self.name)
        assert self._net is not None
        learnt = {**self._net._asdict(), "states": self._states, **self._seen.arrays()}
        return {**learnt, "scale": self._values}

    def restore(self, arrays: Arrays) -> None:
        """Take them back."""
        self._values = take(arrays, "scale", "float64", (None,))
        self._seen = Seen.restore(arrays, len(self._values))
        N, M, H = len(self._seen.rows), len(self._seen.columns), self.options.hidden
        self._states = take(arrays, "states", "float32", (N, H))
        shapes = {"V": (M, H), "mu": (H,), "W": (M, H), "b": (M,)}
        self._net = Net(**{n: take(arrays, n, "float32", shape) for n, shape in shapes.items()})


def _first_net(rows: Rows, mean: float, hidden: int, random: np.random.Generator) -> Net:
    """Weights of the usual width for such layers; outputs start near the mean rating."""
    M = rows.n_columns
    width = np.sqrt(6 / (M + hidden))
    V, W = random.uniform(-width, width, (2, M, hidden)).astype(np.float32)
    return Net(V, np.zeros(hidden, np.float32), W, np.full(M, mean, np.float32))


def _train(
    rows: Rows, stars: Floats, shift: float, options: AutoRecOptions, seed: int, threads: int
) -> Iterator[Net]:
    """The net, moved in place, after every few epochs and after the last."""
    random = np.random.default_rng(seed)
    net = _first_net(rows, float(stars.mean(dtype=np.float64)), options.hidden, random)
    slopes, first, second = (Net(*map(np.zeros_like, net)) for _ in range(3))
    batches = n_batches(rows, options.batch_rows)
    steps, step = options.epochs * batches, 0
    decay = {"V": options.regularisation / batches, "W": options.regularisation / batches}
    for epoch in range(1, options.epochs + 1):
        for which in shuffled(rows, options.batch_rows, random):
            gradients(net, grouped(rows, which, stars), threads, shift, out=slopes)
            rate = np.float32(options.learning_rate * (1 - step / steps))
            step += 1
            scales = np.array([1 / (1 - 0.9**step), 1 / (1 - 0.999**step)], np.float32)
            for name, *arrays in zip(Net._fields, net, slopes, first, second, strict=True):
                flat = [array.reshape(-1) for array in arrays]
                given = (*flat, np.float32(decay.get(name, 0)), rate, scales)
                run(kernels.adam, [(*cut, *given) for cut in _even(len(flat[0]), threads)])
        if epoch % _CHECK == 0 or epoch == options.epochs:
            yield net


def _columns(ratings: Grouped, threads: int) -> list[Cut]:
    """Ranges of columns, one a thread, that cost about the same."""
    every = np.arange(ratings.n_columns, dtype=np.int32)
    return list(pairwise(partition(every, ratings.starts, 4.0, threads).tolist()))


def _even(size: int, threads: int) -> list[Cut]:
    """Equal ranges, one a thread."""
    return list(pairwise([size * t // threads for t in range(threads + 1)]))
