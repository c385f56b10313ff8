"""A neighborhood: a sparse correction of the other components of its member.

It relates columns that are correlated beyond all factors: items if rows are users, users if rows
are items. It is fitted in seconds and scores 0 until training has ended; then a gain is fitted to
the validation ratings (training/validation.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    ArraySpec,
    Axis,
    BoolArray,
    ComponentScorer,
    FitData,
    Member,
    Pairs,
    other_axis,
)
from cfnade.components.factor_analysis import (
    FactorComponent,
    FactorStates,
    ResidualTerms,
    residuals_of,
)
from cfnade.components.gaussian import ClosedFormComponent, reduced_rows
from cfnade.components.registry import register
from cfnade.components.row_states import ratings_of, rows_in_pieces
from cfnade.data.csr import CsrRows, index_counts, index_sums, offsets_from_counts
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels.column_groups import RowRatings, take_rows
from cfnade.kernels.neighborhood import (
    ResidualCovariance,
    correct_cells,
    correct_column,
    correct_row,
    correct_without_each,
    solve_weights,
)
from cfnade.kernels.sparse import cooccurrence
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade.models.config import NeighborhoodConfig
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled

_FACTORS = "factors."

DIMENSIONS, SWEEPS = 4, 15
"""Of the factor analysis. More dimensions explain away local structure."""
MOST_COLUMNS = 25_000
"""Covariances of all pairs are looked at, once."""
SURE: dict[Axis, float] = {"user": 3.0, "item": 4.0}
"""Standard errors from which a covariance of columns counts, by what the rows are. People are more
than films and have fewer ratings in common, so that more of them look alike by chance."""
ROWS_AT_ONCE = 20_000
"""Of which residuals are made."""
ROW_PIECE = 1 << 15
"""Values in a temporary array of leave-one-out, few enough for a cache of the processor."""
LEAST_COMMON = 20
"""Rows that two columns have in common, at least."""
DOUBT = 100.0
"""Imagined common rows without any covariance."""
COLUMN_DOUBT = 20.0
"""Imagined ratings of a column, left over as widely as all."""
LANCZOS_STEPS = 150
LEAST_DEFINITE = 0.05
"""The smallest eigenvalue of variances and covariances, relative to the variances."""


class _WeightedRows(NamedTuple):
    """Rows given by their ratings, and w of each rating."""

    ratings: RowRatings
    weights: Array

    @property
    def ragged(self) -> tuple[Array, Array]:
        return np.array(self.ratings.offsets), np.array(self.ratings.columns)


@register("user-neighborhood", axis="user")
@register("item-neighborhood", axis="item")
class NeighborhoodComponent(ClosedFormComponent):
    """A sparse Gaussian correction: pairs of columns with their covariances.

    A factor analysis of few dimensions explains what many columns have in common. What it leaves
    of a row's rating of column j, without that rating itself, is e_j = r_j - μ_j - a_j·m_{-j}.
    Such residuals of columns i and j have the covariance R_ij, which is 0 for nearly all pairs,
    and the variance v_j. Given a context C, column i is expected to be off by

        w = (R_CC + diag v)⁻¹ e_C        c_i = Σ_{j ∈ C} R_ij w_j

    which scores level k by s_k = k·(g·c_i + h): the mean moves by g·c_i + h times the variance of
    the other components' distribution. The gain g and the shift h, for components whose means are
    a little too high, are fitted to validation ratings; until then they are 0.

    Arrays: factors.* of the analysis; R by column as starts (M+1), others (P) and covariances (P);
    variances v (M); gain g and shift h. P are pairs of columns, each in both orders.
    """

    config: NeighborhoodConfig
    config_type = NeighborhoodConfig
    tunes = True
    _gains: tuple[float, float] = (0.0, 0.0)
    """Gain and shift without a validation part."""

    @classmethod
    def spec(cls, config: NeighborhoodConfig) -> dict[str, ArraySpec]:
        M, P = config.columns, config.pairs
        factors = FactorComponent.spec(config.factors)
        return {f"{_FACTORS}{name}": spec for name, spec in factors.items()} | {
            "starts": ArraySpec((M + 1,), None, "int32", trained=False),
            "others": ArraySpec((P,), None, "int32", trained=False),
            "covariances": ArraySpec((P,), None, trained=False),
            "variances": ArraySpec((M,), trained=False),
            "gain": ArraySpec((), None, trained=False),
            "shift": ArraySpec((), None, trained=False),
        }

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    def config_for(
        cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]
    ) -> NeighborhoodConfig:
        del options
        assert axis is not None
        columns = len(ratings.ids(other_axis(axis)))
        return NeighborhoodConfig(columns=columns, levels=len(ratings.scale), dimensions=DIMENSIONS)

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        from cfnade.components.variational_bayes import fit_factor_analysis

        assert axis is not None
        config, rows = cls.config_for(axis, data.dataset, options), data.dataset.rows(axis)
        if not data.preceding:
            raise TrainingError(
                f"{axis}-neighborhood corrects other components; give one before it, such as "
                f"{axis}+{axis}-neighborhood"
            )
        if config.columns > MOST_COLUMNS:
            raise TrainingError(
                f"a neighborhood of {config.columns:,} {other_axis(axis)}s is too large (at most "
                f"{MOST_COLUMNS:,}); leave out {axis}-neighborhood"
            )
        seed, threads = data.training.seed, thread_count(None)
        factors = FactorComponent(config.factors, axis=axis)
        analysis = fit_factor_analysis(rows, DIMENSIONS, seed=seed, threads=threads, sweeps=SWEEPS)
        factors.fill(0, analysis)

        def find_pairs() -> ColumnPairs:
            residuals = _all_residuals(FactorStates(factors, rows), rows)
            return pairs_of(rows, residuals, SURE[axis], threads)

        # Several members of a model may have the same neighborhood.
        pairs = rows.memo(("pairs", axis, seed, threads), find_pairs)
        new = cls(replace(config, pairs=len(pairs.others)), axis=axis)
        arrays = {f"{_FACTORS}{name}": array for name, array in factors.arrays.items()}
        for name, array in (arrays | pairs._asdict()).items():
            new.arrays[name][...] = array
        of_users, of_items, shift = options.get("gains", (0.0, 0.0, 0.0))
        new._gains = (of_users, shift) if axis == "user" else (of_items, 0.0)
        return new

    def finish(self, ratings: Dataset, member: Member) -> None:
        del ratings, member
        self.set_gain(*self._gains)

    def set_gain(self, gain: float, shift: float) -> None:
        """Set how much corrections count."""
        self.arrays["gain"][...], self.arrays["shift"][...] = gain, shift

    def take_columns(self, places: IntArray, trained: BoolArray | None = None) -> Self:
        """Return the component for other columns; a new one has no pairs."""
        now = np.full(self.config.columns, -1)
        now[places[places >= 0]] = np.flatnonzero(places >= 0)
        i = now[np.repeat(np.arange(len(now)), np.diff(self.arrays["starts"]))]
        j = now[self.arrays["others"]]
        pairs = np.flatnonzero((i >= 0) & (j >= 0))
        pairs = pairs[np.lexsort((j[pairs], i[pairs]))]
        generic = super().take_columns(places, trained).arrays
        counts = np.bincount(i[pairs], minlength=len(places))
        arrays = generic | {
            "starts": offsets_from_counts(counts).astype(np.int32),
            "others": j[pairs].astype(np.int32),
            "covariances": self.arrays["covariances"][pairs],
        }
        config = replace(self.config, columns=len(places), pairs=len(pairs))
        return type(self)(config, arrays, self.axis)

    # -- scores -------------------------------------------------------------------------------

    @property
    def factors(self) -> FactorComponent:
        """Return the factor analysis."""
        arrays = {
            name.removeprefix(_FACTORS): array
            for name, array in self.arrays.items()
            if name.startswith(_FACTORS)
        }
        return FactorComponent(self.config.factors, arrays, self.axis)

    def covariance(self) -> ResidualCovariance:
        """Return the covariances as the kernels read them."""
        starts, others = self.arrays["starts"].astype(np.int64), self.arrays["others"]
        exact = (self.arrays[name].astype(np.float64) for name in ("covariances", "variances"))
        return ResidualCovariance(starts, others, *exact)

    def scorer(self, rows: CsrRows) -> ComponentScorer:
        return NeighborhoodRows(self, rows)

    @property
    def learns(self) -> None:
        """Without pairs there is no correction, and nothing to fold in."""

    def fault(self, ratings: Dataset) -> str | None:
        starts, others = self.arrays["starts"], self.arrays["others"]
        M, P = self.config.columns, self.config.pairs
        if starts[0] != 0 or starts[-1] != P or (np.diff(starts) < 0).any():
            return f"the pairs of {self.axis}-neighborhood are not those of {M:,} columns"
        if P and not 0 <= others.min() <= others.max() < M:
            return f"the pairs of {self.axis}-neighborhood run beyond the {M:,} columns there are"
        if not (self.arrays["variances"] > 0).all() or not self.arrays["factors.noise"] > 0:
            return f"{self.axis}-neighborhood has variances that are not above 0"
        return super().fault(ratings)


class NeighborhoodRows:
    """Scores that are corrections times the level."""

    def __init__(self, component: NeighborhoodComponent, rows: CsrRows) -> None:
        arrays = component.arrays
        self.rows, self.dtype = rows, arrays["variances"].dtype
        self._covariance = component.covariance()
        self._factors = FactorStates(component.factors, rows)
        self._gain, self._shift = float(arrays["gain"]), float(arrays["shift"])
        self._k = np.arange(rows.n_levels)

    # -- pairs --------------------------------------------------------------------------------

    def score_pairs(self, pairs: Pairs) -> Array:
        out = np.zeros(len(pairs.row))

        def correct(ratings: RowRatings, rows: IntArray, places: IntArray) -> None:
            out[places] = self._corrections(ratings, rows, pairs.take(places))

        pieces = rows_in_pieces(pairs.rows, pairs.row, self.rows.n_levels)
        while batch := list(islice(pieces, 1 if pairs.serial else thread_count(None))):
            run_parallel(correct, batch)
        scores = self._scores(out)
        scores[pairs.column < 0] = 0.0  # an unknown column has no pairs
        return scores

    def _corrections(self, ratings: RowRatings, rows: IntArray, pairs: Pairs) -> Array:
        """Return the corrections of pairs, (n,)."""
        out = np.empty(len(rows))
        places = np.arange(len(rows))
        if pairs.left_out is not None:
            is_single = (pairs.left_out >= 0) & (pairs.levels < 0)
            for group in _groups(rows, pairs.column, np.flatnonzero(is_single)):
                out[group] = self._corrections_without_each(
                    ratings, rows[group[0]], pairs.take(group)
                )
            places = np.flatnonzero(~is_single)
        if len(places):
            out[places] = self._reduced_corrections(ratings, rows[places], pairs.take(places))
        return out

    def _corrections_without_each(self, ratings: RowRatings, row: int, pairs: Pairs) -> Array:
        """Return the corrections of one column for a row without each of some ratings, (n,).

        The time is linear in the number of pairs.
        """
        assert pairs.left_out is not None
        entries = slice(*ratings.offsets[row : row + 2])
        columns, near = np.array(ratings.columns[entries]), self._covariance
        left_out, out = pairs.left_out - pairs.rows.offsets[pairs.row], np.zeros(len(pairs.row))
        covariances, g = np.zeros(len(near.variances)), np.empty(len(columns))
        neighbors = slice(*near.starts[pairs.column[0] : pairs.column[0] + 2])
        covariances[near.neighbors[neighbors]] = near.covariances[neighbors]
        solve_weights(np.array([0, len(columns)]), columns, covariances[columns], near, g)
        connected = np.flatnonzero(g)  # directly or by other columns
        if not len(connected):
            return out
        places = np.full(len(columns), -1)
        places[connected] = np.arange(len(connected))
        terms = ResidualTerms.from_row(self._factors.arrays, columns, ratings.levels[entries])
        step = max(1, ROW_PIECE // len(connected))
        for first in range(0, len(out), step):
            check_cancelled()
            part = slice(first, first + step)
            residuals = terms.without_each(left_out[part], connected)
            arguments = places[left_out[part]], residuals, near, out[part]
            correct_without_each(g[connected], columns[connected], *arguments)
        return out

    def _reduced_corrections(self, ratings: RowRatings, rows: IntArray, pairs: Pairs) -> Array:
        """Return corrections; where ratings are left out, from reduced rows. (n,)."""
        if pairs.left_out is not None:
            further = np.flatnonzero(pairs.left_out >= 0)
            columns = pairs.rows.columns[pairs.left_out[further]].astype(np.int64)
            ratings, rows = reduced_rows(ratings, rows, further, columns)
        rated = np.flatnonzero(pairs.levels >= 0)
        if len(rated):
            ratings, rows = reduced_rows(ratings, rows, rated, pairs.column[rated])
        order = np.argsort(rows, kind="stable")
        weighted, out = self._weighted(ratings), np.empty(len(rows))
        cells = rows[order].astype(np.int64), np.maximum(pairs.column[order], 0).astype(np.int64)
        correct_cells(cells, weighted.ragged, weighted.weights, self._covariance, out)
        corrections = np.empty(len(rows))
        corrections[order] = out
        return corrections

    def _weighted(self, ratings: RowRatings) -> _WeightedRows:
        residuals, out = residuals_of(self._factors, ratings), np.empty(len(ratings.columns))
        ragged = np.array(ratings.offsets), np.array(ratings.columns)
        solve_weights(*ragged, residuals, self._covariance, out)
        return _WeightedRows(ratings, out)

    def _scores(self, corrections: Array) -> Array:
        """Return scores (n, K) for corrections (n,)."""
        slopes = self._gain * corrections + self._shift
        return np.asarray((slopes[:, None] * self._k).astype(self.dtype))

    def fold_in_output(self) -> None:
        """A column without pairs has no correction."""

    # -- all columns of rows, and all rows of columns ------------------------------------------

    def score_columns(self, rows: CsrRows) -> Array:
        out = np.zeros((len(rows), self.rows.n_columns))
        weighted = self._weighted(ratings_of(rows))
        for number, corrections in enumerate(out):
            part = slice(*rows.offsets[number : number + 2])
            if part.start < part.stop:
                columns, weights = weighted.ragged[1][part], weighted.weights[part]
                correct_row(columns, weights, self._covariance, corrections)
        return self._list_scores(out)

    def score_rows(self, columns: IntArray) -> Array:
        out, weighted = np.zeros((len(columns), len(self.rows))), self._all_rows
        for column, corrections in zip(columns.tolist(), out, strict=True):
            correct_column(column, weighted.ragged, weighted.weights, self._covariance, corrections)
        return self._list_scores(out)

    def _list_scores(self, corrections: Array) -> Array:
        """Return scores (B, M, K) for corrections (B, M), in memory levels before columns."""
        slopes = self._gain * corrections + self._shift
        scores = slopes[:, None] * self._k[:, None]  # (B, K, M)
        return np.asarray(scores.astype(self.dtype).transpose(0, 2, 1))

    @locked_cached_property
    def _all_rows(self) -> _WeightedRows:
        """All its rows."""
        return self._weighted(ratings_of(self.rows))


def _groups(rows: IntArray, columns: IntArray, places: IntArray) -> list[IntArray]:
    """Return the places of pairs of the same row and column, together."""
    if not len(places):
        return []
    order = places[np.lexsort((columns[places], rows[places]))]
    is_new = (np.diff(rows[order]) != 0) | (np.diff(columns[order]) != 0)
    return np.split(order, np.flatnonzero(is_new) + 1)


class ColumnPairs(NamedTuple):
    """Pairs of columns with their covariances, by name of the array."""

    starts: Array  # (M+1,)
    others: Array  # (P,)
    covariances: Array  # (P,)
    variances: Array  # (M,)


def _all_residuals(factors: FactorStates, rows: CsrRows) -> Array:
    """Return what an analysis leaves of all ratings, (n,) float32."""
    residuals = np.empty(rows.n_ratings, np.float32)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        end = min(first + ROWS_AT_ONCE, len(rows))
        ratings = take_rows(rows.offsets, rows.columns, rows.levels, np.arange(first, end))
        residuals[rows.offsets[first] : rows.offsets[end]] = residuals_of(factors, ratings)
    return residuals


def pairs_of(rows: CsrRows, residuals: Array, sure: float, threads: int) -> ColumnPairs:
    """Return the covariances of residuals of columns, those that stand out from chance, shrunken.

    Of columns with n rows in common C = Σ e_i e_j has the standard error √(n v_i v_j). Up to `sure`
    of these it counts nothing, from there on ever more: R = C/(n + DOUBT) · (1 - (sure/t)²). Only
    columns that go together count: what goes apart is mostly chance.
    """
    M, offsets, columns = rows.n_columns, np.array(rows.offsets), np.array(rows.columns)
    counts = index_counts(columns, M)
    squares = index_sums(columns, M, lambda part: np.square(residuals[part], dtype=np.float64))
    variances = (squares + COLUMN_DOUBT * residuals.var()) / (counts + COLUMN_DOUBT)
    sums = cooccurrence(offsets, columns, residuals.astype(np.float32), M, threads=threads)
    common = cooccurrence(offsets, columns, np.ones(len(residuals), np.float32), M, threads=threads)
    np.fill_diagonal(sums, 0.0)
    i, j = np.nonzero(_stand_out(sums, common, variances, sure))
    sums, common = sums[i, j].astype(np.float64), common[i, j]
    t = sums / np.sqrt(common * (variances[i] * variances[j]))
    values = sums / (common + DOUBT) * (1 - np.square(sure / t))
    values *= _definite(i, j, values / np.sqrt(variances[i] * variances[j]), M)
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=M))]).astype(np.int32)
    return ColumnPairs(
        starts, j.astype(np.int32), values.astype(np.float32), variances.astype(np.float32)
    )


def _stand_out(sums: Array, common: Array, variances: Array, sure: float) -> Array:
    """Return which pairs stand out, (M, M); row by row, as temporary tables would be large."""
    significant = np.zeros(sums.shape, bool)
    for out, covariance, n, v in zip(significant, sums, common, variances, strict=True):
        out[:] = (n >= LEAST_COMMON) & (covariance > sure * np.sqrt(n * (v * variances)))
    return significant


def _definite(i: Array, j: Array, correlations: Array, M: int) -> float:
    """What covariances are multiplied by so that, with the variances, they are one: at most 1."""
    if not len(i):
        return 1.0
    return min(1.0, (1 - LEAST_DEFINITE) / max(-_lowest(i, j, correlations, M), 1e-9))


def _lowest(i: Array, j: Array, correlations: Array, M: int) -> float:
    """Return a close lower bound of the eigenvalues, by Lanczos from a fixed start."""
    x, before, size = np.random.default_rng(0).normal(size=M), np.zeros(M), 0.0
    x /= np.linalg.norm(x)
    diagonal, off_diagonal = list[float](), list[float]()
    for _ in range(min(LANCZOS_STEPS, M)):
        ahead = np.bincount(i, correlations * x[j], M) - size * before
        diagonal.append(float(x @ ahead))
        ahead -= diagonal[-1] * x
        size = float(np.linalg.norm(ahead))
        off_diagonal.append(size)
        if size < 1e-12:
            break
        before, x = x, ahead / size
    table = np.diag(diagonal) + np.diag(off_diagonal[:-1], 1) + np.diag(off_diagonal[:-1], -1)
    values, vectors = np.linalg.eigh(table)
    return float(values[0] - off_diagonal[-1] * abs(vectors[-1, 0]))
