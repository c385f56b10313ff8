"""What a neighbourhood says of its rows and columns: residuals, their weights, sums over pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Reading, Row, RowWeights
from cfnade.components.factor_rows import FactorRows, FactorWeights
from cfnade.components.readings import reading_of
from cfnade.components.row_states import PIECE, as_ratings, rows_in_pieces
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels.column_groups import RowRatings, lookup_levels, take_rows
from cfnade.kernels.neighborhood import (
    ResidualCovariance,
    correct_cells,
    correct_column,
    correct_row,
    solve_weights,
)
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade.models.config import NearConfig
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled

_FACTORS = "factors."


class _Weighed(NamedTuple):
    """Rows given by their ratings, and w of each rating."""

    ratings: RowRatings
    weights: Array

    @property
    def ragged(self) -> tuple[Array, Array]:
        return np.array(self.ratings.offsets), np.array(self.ratings.columns)


class NeighborhoodWeights(RowWeights):
    """By the names of models/near_network.py, which has the equations."""

    config: NearConfig
    whole_numbers = ("starts", "others")

    @staticmethod
    def config_of(fields: Mapping[str, Any]) -> NearConfig:
        return NearConfig.from_dict(fields)

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = cls.config_of(fields)
        M, P = config.columns, config.pairs
        shapes = FactorWeights.shapes(config.factors.to_dict()).items()
        factors = {f"{_FACTORS}{name}": shape for name, shape in shapes}
        tables = {"starts": (M + 1,), "others": (P,), "covariances": (P,), "variances": (M,)}
        return {**factors, **tables, "gain": (), "shift": ()}

    @property
    def factors(self) -> FactorWeights:
        """The analysis that residuals are of."""
        mine = {name: table for name, table in self.tables.items() if name.startswith(_FACTORS)}
        own = {name.removeprefix(_FACTORS): table for name, table in mine.items()}
        return FactorWeights(self.axis, self.config.factors, own)

    def nearness(self) -> ResidualCovariance:
        """The pairs as the kernels read them."""
        starts, others = self.tables["starts"].astype(np.int64), self.tables["others"]
        exact = (self.tables[name].astype(np.float64) for name in ("covariances", "variances"))
        return ResidualCovariance(starts, others, *exact)

    def reading(self, context: Dataset) -> Reading:
        reading = reading_of(self.axis, NeighborhoodRows(self, context.rows(self.axis)), context)
        reading.learns = None  # who has no pairs gets no correction, and nothing stands for it
        return reading

    def fault(self, ratings: Dataset) -> str | None:
        starts, others = self.tables["starts"], self.tables["others"]
        M, P = self.config.columns, self.config.pairs
        if starts[0] != 0 or starts[-1] != P or (np.diff(starts) < 0).any():
            return f"the pairs of {self.axis}-near are not those of {M:,} columns"
        if P and not 0 <= others.min() <= others.max() < M:
            return f"the pairs of {self.axis}-near run beyond the {M:,} columns there are"
        if not (self.tables["variances"] > 0).all() or not self.factors.tables["noise"] > 0:
            return f"{self.axis}-near has variances that are not above 0"
        return super().fault(ratings)


def residuals_of(factors: FactorRows, ratings: RowRatings) -> Array:
    """What the analysis leaves of each rating, predicted without it. Returns (C,) float64."""
    cells = ratings.rows.astype(np.int64), ratings.columns.astype(np.int64), ratings.levels
    states = factors.posteriors.states_without(ratings, *cells)  # (C, D + 1)
    a, mean = factors.loadings
    columns = cells[1]
    predicted = mean[columns] + np.einsum("cd,cd->c", a[columns], states[:, :-1])
    return np.asarray(ratings.levels - predicted.astype(np.float64))


class NeighborhoodRows:
    """A RowReading: scores that are corrections times the level."""

    def __init__(self, weights: NeighborhoodWeights, rows: CsrRows) -> None:
        self.rows, self.dtype = rows, weights.tables["variances"].dtype
        self._near, self._factors = weights.nearness(), FactorRows(weights.factors, rows)
        self._gain, self._shift = float(weights.tables["gain"]), float(weights.tables["shift"])
        self._k = np.arange(rows.n_levels)

    # -- scores of rows given by their ratings ------------------------------------------------

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        out = np.empty((len(rows), self.rows.n_levels), self.dtype)

        def score(ratings: RowRatings, which: IntArray, mine: IntArray) -> None:
            out[mine] = self._cells(ratings, which, columns[mine])

        pieces = rows_in_pieces(self.rows, rows, self.rows.n_levels)
        while some := list(islice(pieces, thread_count(None))):
            run_parallel(score, some)
        return out

    def some(self, row: Row, columns: IntArray) -> Array:
        return self._cells(as_ratings([row]), 0 * columns, columns)

    def many(self, rows: Sequence[Row], which: IntArray, columns: IntArray) -> Array:
        if not len(which):
            return self._said(np.zeros(0))
        return self._cells(as_ratings(rows), which, columns)

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        del raters  # the rows themselves say who rated the column
        return self.cells(rows, np.full(len(rows), column))

    def without_each(self, row: Row, column: int) -> Array:
        size = len(row.columns)
        out = np.empty((size, self.rows.n_levels), self.dtype)
        step = max(1, PIECE // max(1, size * (1 + self._factors.posteriors.width)))
        for first in range(0, size, step):
            rows = [row.without(int(other)) for other in row.columns[first : first + step]]
            out[first : first + step] = self.many(
                rows, np.arange(len(rows)), np.full(len(rows), column)
            )
            check_cancelled()
        return out

    def without_levels(self, row: Row, column: int) -> Array:
        kept = [row.levels != level for level in range(self.rows.n_levels)]
        rows = [Row(row.columns[keep], row.levels[keep]) for keep in kept]
        return self.many(rows, np.arange(len(rows)), np.full(len(rows), column))

    def _cells(self, ratings: RowRatings, which: IntArray, columns: IntArray) -> Array:
        """Cells of these rows; a known one of a row of its own, which lacks it. (n, K)."""
        held = lookup_levels(ratings, which, columns, self.rows.n_columns) >= 0
        mine, rows = np.flatnonzero(held), which.copy()
        if len(mine):
            rows[mine] = len(ratings.offsets) - 1 + np.arange(len(mine))
            ratings = _with_reduced(ratings, which[mine], columns[mine])
        order = np.argsort(rows, kind="stable")
        weighed, out = self._weighed(ratings), np.empty(len(rows))
        cells = rows[order].astype(np.int64), np.maximum(columns[order], 0).astype(np.int64)
        correct_cells(cells, weighed.ragged, weighed.weights, self._near, out)
        corrections = np.empty(len(rows))
        corrections[order] = out
        return self._said(corrections)

    def _weighed(self, ratings: RowRatings) -> _Weighed:
        left, out = residuals_of(self._factors, ratings), np.empty(len(ratings.columns))
        ragged = np.array(ratings.offsets), np.array(ratings.columns)
        solve_weights(*ragged, left, self._near, out)
        return _Weighed(ratings, out)

    def _said(self, corrections: Array) -> Array:
        """Scores of corrections (n,). Returns (n, K)."""
        slopes = self._gain * corrections + self._shift
        return np.asarray((slopes[:, None] * self._k).astype(self.dtype))

    # -- all columns of rows, and all rows of columns ------------------------------------------

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Array:
        out = np.zeros((len(rows), self.rows.n_columns))
        for row, own in zip(rows, out, strict=True):
            if len(row.columns):
                weighed = self._weighed(as_ratings([row]))
                correct_row(weighed.ragged[1], weighed.weights, self._near, own)
        scores = self._listed(out)
        for row, own in zip(rows, scores, strict=True):
            if leave_out and len(row.columns):
                own[row.columns] = self.some(row, row.columns.astype(np.int64))
        return scores

    def across(self, columns: IntArray, raters: Sequence[Row], *, leave_out: bool) -> Array:
        out, weighed = np.zeros((len(columns), len(self.rows))), self._every
        for column, own in zip(columns.tolist(), out, strict=True):
            correct_column(column, weighed.ragged, weighed.weights, self._near, own)
        scores = self._listed(out)
        for column, row, own in zip(columns.tolist(), raters, scores, strict=True):
            if leave_out and len(row.columns):
                own[row.columns] = self.down(column, row.columns.astype(np.int64), row)
        return scores

    def _listed(self, corrections: Array) -> Array:
        """Scores of lists (B, M). Returns (B, M, K), in memory levels before columns."""
        slopes = self._gain * corrections + self._shift
        scores = slopes[:, None] * self._k[:, None]  # (B, K, M)
        return np.asarray(scores.astype(self.dtype).transpose(0, 2, 1))

    @locked_cached_property
    def _every(self) -> _Weighed:
        """All rows of the context."""
        data = self.rows
        return self._weighed(
            take_rows(data.offsets, data.columns, data.levels, np.arange(len(data)))
        )


def _with_reduced(ratings: RowRatings, rows: IntArray, columns: IntArray) -> RowRatings:
    """These rows, and behind them some of them without a column that they have."""
    starts, ends = ratings.offsets[rows], ratings.offsets[rows + 1]
    sizes = ends - starts
    which = np.repeat(np.arange(len(rows)), sizes)
    places = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + starts[which]
    keep = ratings.columns[places] != columns[which]
    which, places = which[keep], places[keep]
    first = len(ratings.offsets) - 1
    return RowRatings(
        np.concatenate([ratings.offsets, ratings.offsets[-1] + np.cumsum(sizes - 1)]),
        np.concatenate([ratings.rows, (first + which).astype(ratings.rows.dtype)]),
        np.concatenate([ratings.columns, ratings.columns[places]]),
        np.concatenate([ratings.levels, ratings.levels[places]]),
    )
