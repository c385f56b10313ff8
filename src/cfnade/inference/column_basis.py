"""Bases for columns without weights: the mean of the trained columns, and principal directions.

The weights of trained columns differ most along these directions, so their variances there are the
prior of a new column. Weights that multiply a row's state are measured by their effect on scores:
the squared distance of two columns is the mean square, over states, of the difference between their
steps from level to level.

Shapes: n pairs, M columns, K levels, D directions, S width of states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import THIN, Array, ComponentScorer, Pairs
from cfnade.components.row_states import RowStates, leaves_out
from cfnade.kernels import scoring
from cfnade.utils.caching import locked_cached_property

MAX_DIRECTIONS = 24
EXPLAINED = 0.95
"""Fraction of the variance at which fewer directions suffice."""

MAX_COLUMNS, MAX_ROWS = 3_072, 2_048
"""Trained columns, and rows with states, that directions are computed from; of more, a sample."""

MAX_CACHED_ROWS = 1 << 15
"""Features of all rows are cached if there are at most so many."""

FEW_ROWS = 16
"""Features of so few rows are computed for these rows alone."""

_OVERSAMPLING, _ITERATIONS = 10, 4  # of the randomized search for directions


class ColumnBasis:
    """Features of a component's rows: scores of the mean column, and along each direction.

    The column of a pair matters only for the rating that it leaves out.
    """

    def __init__(self, states: RowStates, directions: Directions) -> None:
        self._states, self.variances = states, directions.variances
        self._shape = directions.bias.shape
        self._table = directions.table.reshape(-1, directions.table.shape[2])
        self._bias = directions.bias.reshape(-1)

    def features(self, pairs: Pairs) -> Array:
        """Return the features of pairs, (n, K, 1 + D)."""
        if self._uses_all_rows(pairs):
            features = self._all_features[pairs.row]
            held = np.flatnonzero(leaves_out(pairs))
            if len(held):
                features[held] = self._state_features(self._states.reduced_states(pairs.take(held)))
            return features
        out = np.empty((len(pairs.row), *self._shape), self._bias.dtype)
        for places, states, numbers in self._states.pair_states(pairs):
            out[places] = self._state_features(states)[numbers]
        return out

    def _uses_all_rows(self, pairs: Pairs) -> bool:
        rows = self._states.rows
        if pairs.rows is not rows or len(rows) > MAX_CACHED_ROWS:
            return False
        return self._states.reads_all(pairs) or len(np.unique(pairs.row)) > FEW_ROWS

    @locked_cached_property
    def _all_features(self) -> Array:
        return self._state_features(self._states.states_of(np.arange(len(self._states.rows))))

    def _state_features(self, states: Array) -> Array:
        return scoring.affine(states, self._table, self._bias).reshape(-1, *self._shape)


def column_basis(
    scorer: ComponentScorer, counts: IntArray, *, mean_only: bool
) -> ColumnBasis | None:
    """Return the basis of a component's columns; None: it has none, or too few were trained.

    Args:
        scorer: The component's scores.
        counts: Training ratings of each column, (M,).
        mean_only: Find no directions, which is fast and enough without known ratings.
    """
    folded = scorer.fold_in_output()
    if folded is None:
        return None
    states, (table, bias, shared) = folded
    if mean_only:
        mean = mean_column(table, bias, counts, shared=shared)
        return None if mean is None else ColumnBasis(states, mean)
    n_ratings = states.rows.counts()
    rows = _sample(np.flatnonzero(n_ratings), MAX_ROWS)
    if not len(rows):
        return None
    metric = gram(states.states_of(rows), n_ratings[rows])
    directions = principal_directions(table, bias, counts, metric, shared=shared)
    return None if directions is None else ColumnBasis(states, directions)


class Directions(NamedTuple):
    """The mean column, then the directions, as columns of an output table."""

    table: Array  # (K, 1 + D, S)
    bias: Array  # (K, 1 + D)
    variances: Array  # (D,)


def gram(states: Array, n_ratings: IntArray) -> Array:
    """Return the mean of h·hᵀ over states (n, S), weighted by the ratings of each row."""
    exact = states.astype(np.float64)
    return np.asarray((exact * (n_ratings / n_ratings.sum())[:, None]).T @ exact)


def principal_directions(
    table: Array, bias: Array, counts: IntArray, metric: Array, *, shared: bool
) -> Directions | None:
    """Return the directions; None if fewer than two columns are trained, or all are equal.

    Args:
        table: Output weights, (M, K, S).
        bias: Output biases, (M, K).
        counts: Training ratings of each column, (M,).
        metric: Mean of h·hᵀ over states, (S, S).
        shared: Whether the weights of a level are added to those of the levels below.
    """
    columns, weights = _sample_columns(counts)
    if len(columns) < 2:
        return None
    steps, bias_steps = _steps(table[columns], shared), _steps(bias[columns], shared)
    mean, bias_mean = (_weighted_mean(part, weights) for part in (steps, bias_steps))
    if _are_equal(steps, mean) and _are_equal(bias_steps, bias_mean):
        return None
    size = np.sqrt(weights / weights.mean()).astype(table.dtype)
    steps, bias_steps = (
        (steps - mean) * size[:, None, None],
        (bias_steps - bias_mean) * size[:, None],
    )
    measured = steps.reshape(-1, len(metric)) @ _square_root(metric, table)
    measured = np.concatenate([measured.reshape(len(steps), -1), bias_steps], 1)
    vectors, lengths = _leading_singular_vectors(measured)  # (n, D), (D,)
    scaled = (vectors / lengths).astype(table.dtype)
    rows = np.concatenate([mean[None], np.tensordot(scaled.T, steps, 1)])  # (1+D, K-1, S)
    biases = np.concatenate([bias_mean[None], scaled.T @ bias_steps])
    return Directions(
        _add_steps(rows).astype(table.dtype),
        _add_steps(biases).astype(table.dtype),
        np.square(lengths) / len(columns),
    )


def mean_column(table: Array, bias: Array, counts: IntArray, *, shared: bool) -> Directions | None:
    """Return the mean column without directions; None if fewer than two columns are trained."""
    columns, weights = _sample_columns(counts)
    if len(columns) < 2:
        return None
    parts = (_steps(part[columns], shared) for part in (table, bias))
    mean, bias_mean = (_add_steps(_weighted_mean(part, weights)[None]) for part in parts)
    return Directions(mean.astype(table.dtype), bias_mean.astype(table.dtype), np.empty(0))


def _sample(indices: IntArray, limit: int) -> IntArray:
    """Return at most `limit` indices at even distances."""
    return indices[:: max(1, -(-len(indices) // limit))]


def _sample_columns(counts: IntArray) -> tuple[IntArray, Array]:
    """Return trained columns, and their weights: less for columns with few ratings."""
    columns = _sample(np.flatnonzero(counts), MAX_COLUMNS)
    return columns, counts[columns] / (counts[columns] + THIN)


def _steps(levels: Array, shared: bool) -> Array:
    """Return what each level adds to the one below, (n, K - 1, …)."""
    return levels[:, 1:] if shared else np.diff(levels, axis=1)


def _add_steps(steps: Array) -> Array:
    """Return the scores of levels from steps (1 + D, K - 1, …): (K, 1 + D, …)."""
    levels = np.concatenate([np.zeros_like(steps[:, :1]), steps.cumsum(1)], axis=1)
    return np.ascontiguousarray(levels.swapaxes(0, 1))


def _weighted_mean(values: Array, weights: Array) -> Array:
    return np.asarray(np.tensordot((weights / weights.sum()).astype(values.dtype), values, 1))


def _are_equal(values: Array, mean: Array) -> bool:
    """Return whether all values equal their mean, up to rounding."""
    return float(np.abs(values - mean).max()) <= 1e-6 * float(np.abs(mean).max())


def _square_root(metric: Array, like: Array) -> Array:
    """Return a square root up to a rotation, (S, S), in the type of another array."""
    jitter = 1e-9 * np.trace(metric) + 1e-12
    return np.linalg.cholesky(metric + jitter * np.eye(len(metric))).astype(like.dtype)


def _leading_singular_vectors(rows: Array) -> tuple[Array, Array]:
    """Return the left singular vectors (n, D) and singular values (D,), the largest ones.

    Subspace iteration from a random start: a full decomposition would take seconds.
    """
    width = min(MAX_DIRECTIONS + _OVERSAMPLING, *rows.shape)
    base = np.random.default_rng(0).standard_normal((rows.shape[1], width)).astype(rows.dtype)
    for _ in range(_ITERATIONS):
        base = rows.T @ (rows @ _orthonormalize(base))
    base = _orthonormalize(base)  # (columns of rows, ≤ width)
    projected = rows @ base
    squares, rotation = np.linalg.eigh(_products(projected))
    vectors, squares = projected @ rotation[:, ::-1], np.maximum(squares[::-1], 0.0)
    total = float(np.square(rows).sum())
    enough = int(np.searchsorted(np.cumsum(squares), EXPLAINED * total)) + 1
    n_directions = min(MAX_DIRECTIONS, enough, int((squares > 1e-9 * total).sum()))
    lengths = np.sqrt(squares[:n_directions])
    return vectors[:, :n_directions] / lengths, lengths


def _orthonormalize(columns: Array) -> Array:
    """Return an orthonormal basis of the columns' span.

    It takes only products; LAPACK's takes ten times as long.
    """
    squares, rotation = np.linalg.eigh(_products(columns))
    keep = squares > 1e-12 * squares[-1]
    scaled = rotation[:, keep] / np.sqrt(squares[keep])
    return np.asarray(columns @ scaled.astype(columns.dtype))


def _products(columns: Array) -> Array:
    """Return the products of columns with each other, in double precision."""
    exact = columns.astype(np.float64)
    return np.asarray(exact.T @ exact)
