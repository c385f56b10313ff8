"""Batches for Eq. 19: a random part of each row is known, the rest is to be predicted.

One update learns every conditional that shares the context, for all orders of the rest at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade.models.batch import Batch, Context, Targets
from cfnade.models.checks import require, require_one_of
from cfnade.models.config import TARGET_WEIGHTS

Array = npt.NDArray[Any]


def draw_batch(
    offsets: Array,
    columns: Array,
    levels: Array,
    rows: Array,
    rng: np.random.Generator,
    *,
    target_weight: str = "paper",
    rate: tuple[float, float] | None = None,
) -> Batch:
    """Split the chosen rows of a ragged data set at random, as Eq. 19 says.

    Of a row with D ratings, i-1 (drawn evenly from 0..D-1) in random choice become the context and
    the other D-i+1 the targets, each weighing D/(D-i+1) ("paper") or 1 ("unit"). A row without
    ratings has neither, and still counts in the mean over rows, as in the authors' code.

    With `rate` (low, high) a row draws a rate from that range instead, and each of its ratings is
    context with it; a row may then be left without targets.
    """
    require_one_of("target_weight", target_weight, TARGET_WEIGHTS)
    rows = np.asarray(rows)
    _check(offsets, columns, levels, rows)
    starts = offsets[rows]  # (B,)
    D = offsets[rows + 1] - starts  # (B,)
    row, cell = ragged_cells(starts, D)  # (n,), (n,)
    in_context = _split_points(row, D, rng) if rate is None else _by_rate(row, D, rate, rng)
    known = np.bincount(row[in_context], minlength=rows.size)  # i-1

    context, target = cell[in_context], cell[~in_context]
    target_row = row[~in_context]
    weight = D / np.maximum(D - known, 1) if target_weight == "paper" else np.ones(rows.size)
    return Batch(
        Context(
            torch.from_numpy(np.concatenate([[0], np.cumsum(known)])),
            _integers(columns[context]),
            _integers(levels[context]),
        ),
        Targets(
            torch.from_numpy(target_row),
            _integers(columns[target]),
            _integers(levels[target]),
            torch.from_numpy(weight[target_row]),
        ),
    )


def _split_points(row: Array, D: Array, rng: np.random.Generator) -> Array:
    """Which ratings are context: in each row a random choice of 0..D-1 of them. Returns (n,)."""
    known = np.minimum((rng.random(D.size) * D).astype(np.int64), np.maximum(D - 1, 0))  # i-1
    # Rank the ratings of each row by a random key; the first i-1 are the context.
    shuffled = np.lexsort((rng.random(row.size), row))
    first = np.cumsum(D) - D  # where each row begins among the n
    in_context = np.empty(row.size, dtype=bool)
    in_context[shuffled] = np.arange(row.size) - first[row] < known[row]
    return in_context


def _by_rate(row: Array, D: Array, rate: tuple[float, float], rng: np.random.Generator) -> Array:
    low, high = rate
    rates = low + (high - low) * rng.random(D.size)
    return rng.random(row.size) < rates[row]


def ragged_cells(starts: Array, counts: Array) -> tuple[Array, Array]:
    """For rows that begin at starts and hold counts entries: (number of the row, entry), (n,)."""
    row = np.repeat(np.arange(counts.size), counts)
    first = np.cumsum(counts) - counts
    return row, np.arange(row.size) + (starts - first)[row]


def _check(offsets: Array, columns: Array, levels: Array, rows: Array) -> None:
    entries = columns.size
    require(
        offsets.ndim == 1 and offsets.size > 0 and offsets[0] == 0 and offsets[-1] == entries,
        f"offsets of shape {offsets.shape} must rise from 0 to the number of entries, {entries}",
    )
    require(
        levels.shape == columns.shape,
        f"levels have shape {levels.shape}; they must have the shape of columns, {columns.shape}",
    )
    count = offsets.size - 1
    require(
        rows.ndim == 1 and (rows.size == 0 or (rows.min() >= 0 and rows.max() < count)),
        f"rows (={np.array2string(rows, threshold=6)}) must be one-dimensional and lie in "
        f"0..{count - 1} (rows = {count})",
    )


def _integers(values: Array) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))
