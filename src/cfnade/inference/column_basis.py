"""A basis for columns without weights: the mean of trained columns, and a few directions.

In these directions the weights of trained columns differ most: a prior for those of a new column.

Weights that multiply a row's state count by what they do to scores of rows as they come, so that
the distance of two columns is the mean square of the difference of their steps between levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import THIN, Array, ComponentScorer, Pairs
from cfnade.components.row_states import RowStates, leaves_out
from cfnade.kernels import scoring
from cfnade.utils.caching import locked_cached_property

MOST = 24
SHARE = 0.95
"""So many directions, or those that explain this share of the variance if they are fewer."""

COLUMNS = 3_072
"""Of more columns, so many are looked at."""

SAMPLE = 2_048
"""Of more rows, so many say how states are spread."""

KEPT = 1 << 15
"""Features of so many rows are kept once they are computed."""

FEW = 16
"""Rows of so few users are read by themselves."""

_SPARE, _SWEEPS = 10, 4  # of the search for the directions


class ColumnBasis:
    """Scores by the mean column and by each direction, for rows of a component: features.

    The column of a pair only says which rating is left out.
    """

    def __init__(self, states: RowStates, found: Directions) -> None:
        self._states, self.variances = states, found.variances
        self._shape = found.bias.shape
        self._table = found.table.reshape(-1, found.table.shape[2])
        self._bias = found.bias.reshape(-1)

    def features(self, pairs: Pairs) -> Array:
        """Return the features of pairs, (n, K, 1 + D)."""
        if self._reads_all(pairs):
            features = self._every[pairs.row]
            held = np.flatnonzero(leaves_out(pairs))
            if len(held):
                features[held] = self._of(self._states.reduced_states(pairs.take(held)))
            return features
        out = np.empty((len(pairs.row), *self._shape), self._bias.dtype)
        for places, states, which in self._states.pair_states(pairs):
            out[places] = self._of(states)[which]
        return out

    def _reads_all(self, pairs: Pairs) -> bool:
        rows = self._states.rows
        if pairs.rows is not rows or len(rows) > KEPT:
            return False
        return self._states.reads_all(pairs) or len(np.unique(pairs.row)) > FEW

    @locked_cached_property
    def _every(self) -> Array:
        return self._of(self._states.states_of(np.arange(len(self._states.rows))))

    def _of(self, states: Array) -> Array:
        return scoring.affine(states, self._table, self._bias).reshape(-1, *self._shape)


def column_basis(
    scorer: ComponentScorer, counts: IntArray, *, mean_only: bool
) -> ColumnBasis | None:
    """Return the basis of a component's columns; None: it has none, or too few were trained.

    Args:
        scorer: The component's scores.
        counts: Training ratings of each column, (M,).
        mean_only: Find no directions, which is quick and enough where no rating is known.
    """
    folded = scorer.fold_in_output()
    if folded is None:
        return None
    states, (table, bias, shared) = folded
    if mean_only:
        mean = mean_column(table, bias, counts, shared=shared)
        return None if mean is None else ColumnBasis(states, mean)
    ratings = states.rows.counts()
    rated = np.flatnonzero(ratings)
    rated = rated[:: max(1, -(-len(rated) // SAMPLE))]
    if not len(rated):
        return None
    spread = gram(states.states_of(rated), ratings[rated])
    found = directions(table, bias, counts, spread, shared=shared)
    return None if found is None else ColumnBasis(states, found)


class Directions(NamedTuple):
    """The mean column, then those directions, as columns of an output table that adds no levels."""

    table: Array  # (K, 1 + D, width)
    bias: Array  # (K, 1 + D)
    variances: Array  # (D,)


def gram(states: Array, ratings: IntArray) -> Array:
    """The mean of h·hᵀ over states (n, width), a row counting as often as it was rated."""
    exact = states.astype(np.float64)
    return np.asarray((exact * (ratings / ratings.sum())[:, None]).T @ exact)


def directions(
    table: Array, bias: Array, counts: IntArray, metric: Array, *, shared: bool
) -> Directions | None:
    """From an output table (M, K, width), its bias (M, K) and the columns' training ratings (M,).

    None if all trained columns say the same, or fewer than two were trained.
    """
    columns, weights = _looked_at(counts)
    if len(columns) < 2:
        return None
    steps, first = _steps(table[columns], shared), _steps(bias[columns], shared)
    mean, offset = (_weighted_mean(part, weights) for part in (steps, first))
    if _alike(steps, mean) and _alike(first, offset):
        return None
    size = np.sqrt(weights / weights.mean()).astype(table.dtype)
    steps, first = (steps - mean) * size[:, None, None], (first - offset) * size[:, None]
    flat = steps.reshape(-1, len(metric)) @ _root(metric, table)  # one product, not n of them
    measured = np.concatenate([flat.reshape(len(steps), -1), first], 1)
    left, lengths = _leading(measured)  # (n, D), (D,)
    shares = (left / lengths).astype(table.dtype)
    rows = np.concatenate([mean[None], np.tensordot(shares.T, steps, 1)])  # (1+D, K-1, width)
    biases = np.concatenate([offset[None], shares.T @ first])
    return Directions(
        _cumulated(rows).astype(table.dtype),
        _cumulated(biases).astype(table.dtype),
        np.square(lengths) / len(columns),
    )


def mean_column(table: Array, bias: Array, counts: IntArray, *, shared: bool) -> Directions | None:
    """The mean column alone, as `directions` has it; None where that finds none."""
    columns, weights = _looked_at(counts)
    if len(columns) < 2:
        return None
    parts = (_steps(part[columns], shared) for part in (table, bias))
    mean, offset = (_cumulated(_weighted_mean(part, weights)[None]) for part in parts)
    return Directions(mean.astype(table.dtype), offset.astype(table.dtype), np.empty(0))


def _looked_at(counts: IntArray) -> tuple[IntArray, Array]:
    """Some of the trained columns, and what each counts."""
    columns = np.flatnonzero(counts)
    columns = columns[:: max(1, -(-len(columns) // COLUMNS))]
    return columns, counts[columns] / (counts[columns] + THIN)


def _steps(levels: Array, shared: bool) -> Array:
    """What each level adds to the one below, (n, K - 1, …): the lowest is nothing to a softmax."""
    return levels[:, 1:] if shared else np.diff(levels, axis=1)


def _cumulated(steps: Array) -> Array:
    """Scores of levels from steps (1 + D, K - 1, …). Returns (K, 1 + D, …)."""
    whole = np.concatenate([np.zeros_like(steps[:, :1]), steps.cumsum(1)], axis=1)
    return np.ascontiguousarray(whole.swapaxes(0, 1))


def _weighted_mean(values: Array, weights: Array) -> Array:
    return np.asarray(np.tensordot((weights / weights.sum()).astype(values.dtype), values, 1))


def _alike(values: Array, mean: Array) -> bool:
    """Whether all are the mean, but for rounding."""
    return float(np.abs(values - mean).max()) <= 1e-6 * float(np.abs(mean).max())


def _root(metric: Array, like: Array) -> Array:
    """A square root, up to a rotation. Returns (width, width)."""
    least = 1e-9 * np.trace(metric) + 1e-12
    return np.linalg.cholesky(metric + least * np.eye(len(metric))).astype(like.dtype)


def _leading(rows: Array) -> tuple[Array, Array]:
    """Left singular vectors (n, D) and singular values (D,) of rows, the largest ones.

    By a few sweeps over a random subspace: the whole decomposition would take seconds.
    """
    width = min(MOST + _SPARE, *rows.shape)
    base = np.random.default_rng(0).standard_normal((rows.shape[1], width)).astype(rows.dtype)
    for _ in range(_SWEEPS):
        base = rows.T @ (rows @ _orthonormal(base))
    base = _orthonormal(base)  # (columns of rows, ≤ width)
    projected = rows @ base
    squares, turn = np.linalg.eigh(_squares(projected))
    left, squares = projected @ turn[:, ::-1], np.maximum(squares[::-1], 0.0)
    everything = float(np.square(rows).sum())
    enough = int(np.searchsorted(np.cumsum(squares), SHARE * everything)) + 1
    kept = min(MOST, enough, int((squares > 1e-9 * everything).sum()))
    lengths = np.sqrt(squares[:kept])
    return left[:, :kept] / lengths, lengths


def _orthonormal(columns: Array) -> Array:
    """A basis of what the columns span. It is products alone: LAPACK's takes ten times as long."""
    squares, turn = np.linalg.eigh(_squares(columns))
    some = squares > 1e-12 * squares[-1]
    return np.asarray(columns @ (turn[:, some] / np.sqrt(squares[some])).astype(columns.dtype))


def _squares(columns: Array) -> Array:
    """Their products with each other, in double precision."""
    exact = columns.astype(np.float64)
    return np.asarray(exact.T @ exact)
