"""Models that learn from rows of ratings: batches, training, fallback for rows without ratings.

A row has the ratings of a user or of an item, by the option `side` of the model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cfnade.data.csr import CsrRows, row_offsets, stable_order
from cfnade.data.dataset import OTHER_AXIS, Axis, Dataset
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade_baselines.base import (
    FloatArray,
    IntArray,
    RatingPredictor,
    check_pairs,
    select_by_validation,
)

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Range = tuple[int, int]

FAST_MATH = {"reassoc", "contract", "nsz"}
"""Flags of the compiled loops: sums are vectorized, and infinities stay infinities."""

_EVALUATE_EVERY = 5  # epochs; an evaluation costs as much as an epoch


# -- training --------------------------------------------------------------------------------------


class RowTrainer(Protocol):
    """Parameters of a row model during training."""

    def step(self, ratings: RatedColumns, rate: float, epoch: int) -> None:
        """Update the parameters with the ratings of a batch of rows; epochs count from 0."""

    def learned(self, ratings: RatedColumns) -> dict[str, Any]:
        """Return learned attributes, given all rows; later steps do not change them."""


class RowModel(RatingPredictor):
    """Takes gradient steps on shuffled batches of rows; validation chooses the epoch.

    The step size decays linearly to zero. Rows and columns without ratings are predicted by their
    `LevelFrequencies`.
    """

    side: Axis
    epochs: int
    batch_rows: int
    learning_rate: float

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Train for all epochs and keep the parameters that are best on `valid`."""
        self._set(frequencies_=LevelFrequencies.count(train, self.side))
        states = self._train(train, seed, thread_count(n_threads))
        remedy = f"lower learning_rate (={self.learning_rate})"
        select_by_validation(self, states, valid, remedy=remedy)

    @abstractmethod
    def _trainer(
        self, train: Dataset, seed: int, rng: np.random.Generator, n_threads: int
    ) -> RowTrainer:
        """Return initial parameters; `rng` also shuffles the rows afterwards."""

    def _train(self, train: Dataset, seed: int, n_threads: int) -> Iterator[dict[str, Any]]:
        """Yield the learned attributes at each evaluation."""
        rows, level_values = train.rows(self.side), train.scale.array()
        rng = np.random.default_rng(seed)
        trainer = self._trainer(train, seed, rng, n_threads)
        all_ratings = gather_ratings(rows, np.arange(len(rows)), level_values)
        step, n_steps = 0, self.epochs * self._batches_per_epoch(rows)
        for epoch in range(self.epochs):
            order = rng.permutation(len(rows))
            for index in np.array_split(order, self._batches_per_epoch(rows)):
                rate = self.learning_rate * (1 - step / n_steps)
                trainer.step(gather_ratings(rows, index, level_values), rate, epoch)
                step += 1
            if (epoch + 1) % _EVALUATE_EVERY == 0 or epoch + 1 == self.epochs:
                yield trainer.learned(all_ratings)

    def _batches_per_epoch(self, rows: CsrRows) -> int:
        return max(1, round(len(rows) / self.batch_rows))


# -- batches ---------------------------------------------------------------------------------------


class RatedColumns(NamedTuple):
    """Ratings of `size` rows; column c has those from starts[c] to starts[c+1]."""

    size: int
    starts: npt.NDArray[np.int64]  # (M+1,)
    rows: npt.NDArray[np.int32]  # (n,) index of the row in the batch
    levels: npt.NDArray[np.uint8]  # (n,)
    values: Floats  # (n,) ratings


def gather_ratings(rows: CsrRows, index: IntArray, level_values: npt.NDArray[Any]) -> RatedColumns:
    """Return the ratings of the rows of this index, grouped by column."""
    counts = rows.counts()[index]
    ends = np.cumsum(counts)
    positions = np.repeat(rows.offsets[index] - ends + counts, counts) + np.arange(ends[-1])
    columns = rows.columns[positions]
    order = stable_order(columns, rows.n_columns)
    if order is None:
        order = np.arange(len(positions))
    batch_index = np.repeat(np.arange(len(index), dtype=np.int32), counts)
    levels = rows.levels[positions[order]]
    values = level_values.astype(np.float32)[levels]
    starts = row_offsets(columns, rows.n_columns)
    return RatedColumns(len(index), starts, batch_index[order], levels, values)


# -- threads ---------------------------------------------------------------------------------------


def equal_work(offsets: IntArray, n_threads: int, row_cost: float = 0.0) -> list[Range]:
    """Return one range of rows (or columns) per thread; the ranges cost about the same.

    A rating costs 1, and a row costs `row_cost` in addition.
    """
    work = offsets + row_cost * np.arange(len(offsets))
    bounds = np.linspace(0, work[-1], n_threads + 1)[1:-1]
    return list(pairwise([0, *np.searchsorted(work, bounds).tolist(), len(work) - 1]))


def equal_ranges(size: int, n_threads: int) -> list[Range]:
    """Return one range per thread, of equal size."""
    return list(pairwise([size * t // n_threads for t in range(n_threads + 1)]))


def run_on_ranges(
    kernel: Callable[..., Any], ranges: list[Range], *arguments: Any, buffers: Any = None
) -> list[Any]:
    """Call kernel(first, last, *arguments) for each range, in parallel, and return the results.

    `buffers` has an array per range, which its call gets as the last argument.
    """
    parts = [(*span, *arguments) for span in ranges]
    if buffers is not None:
        parts = [(*part, buffer) for part, buffer in zip(parts, buffers, strict=True)]
    return run_parallel(kernel, parts)


# -- fallback --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LevelFrequencies:
    """How often each row and each column has each level in training."""

    side: Axis
    rows: Counts  # (N, K)
    columns: Counts  # (M, K)
    level_values: FloatArray  # (K,)

    @staticmethod
    def count(train: Dataset, side: Axis) -> LevelFrequencies:
        """Count the training ratings; `side` is the axis of the rows."""
        counts = train.level_counts(side), train.level_counts(OTHER_AXIS[side])
        return LevelFrequencies(side, *counts, train.scale.array())

    def rows_and_columns(self, users: IntArray, items: IntArray) -> tuple[IntArray, IntArray]:
        """Return checked pairs as rows and columns, (n,), (n,)."""
        if self.side == "user":
            return check_pairs(users, items, len(self.rows), len(self.columns))
        columns, rows = check_pairs(users, items, len(self.columns), len(self.rows))
        return rows, columns

    def is_rated(self, rows: IntArray, columns: IntArray) -> Mask:
        """Return where both the row and the column have training ratings, (n,)."""
        return _has_ratings(self.rows, rows) & _has_ratings(self.columns, columns)

    def frequencies(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return the level frequencies of the row, else of the column, else of all. (n, K).

        One pseudo-rating with the frequencies of all ratings keeps every probability above zero,
        except for levels that never occur.
        """
        total = self.rows.sum(0) + 1e-3  # (K,)
        prior = total / total.sum()
        out = np.tile(prior, (len(rows), 1))  # (n, K)
        for counts, index in ((self.columns, columns), (self.rows, rows)):
            has = _has_ratings(counts, index)
            smoothed = counts[index[has]] + prior
            out[has] = smoothed / smoothed.sum(1, keepdims=True)
        return out


def _has_ratings(counts: Counts, index: IntArray) -> Mask:
    has: Mask = (index >= 0) & (counts.sum(1) > 0)[index]
    return has
