"""Variational factor analysis of ratings: the start of the ridge component, and a model itself.

A rating r of column i by row n is r = μ_i + a_i·z_n + ε with z_n ~ N(0, I), ε ~ N(0, s²) and
a_i ~ N(ν, diag(1/α)). The posterior of z_n is a full Gaussian given the loadings' means and
variances c_i, that of a_i a Gaussian whose diagonal is kept; α (which dimensions are needed at
all), the first dimension's mean loading and s² are learned with them. Ratings are level numbers,
and all constants are relative to the spread of a column's ratings, so any scale will do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cfnade.data.csr import CsrRows, index_sums
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.kernels.column_groups import take_rows
from cfnade.kernels.factor_analysis import (
    add_moments,
    expectation_step,
    maximization_step,
    residual_sums,
    row_moments,
)
from cfnade.kernels.posterior import lower_products
from cfnade.kernels.threads import run_parallel

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

SWEEPS = 30
ENOUGH = 10_000_000
"""Ratings: of larger data the first two thirds of the sweeps see some of the rows, evenly taken."""
LEAST_NOISE = 1e-3
"""Over the spread of a column's ratings: of data that follow a rule nothing else would be left."""
FIRST_PULL, LEAST_PULL, MOST_PULL = 2.0, 0.5, 50.0
"""Imagined ratings of a column at the mean of all, to begin with; how many they are is learned."""
_PIECE = 1 << 16  # columns of which random numbers are drawn at a time
_ROWS_AT_ONCE = 4096  # rows of which ranks exchange sums at a time
START_SHRINKAGE = 5.0
"""The same for the means that the analysis starts from."""


@dataclass(frozen=True)
class Factors:
    """A fitted analysis, in levels. M columns, D dimensions."""

    a: Floats  # (M, D) loadings
    c: Floats  # (M, D) their posterior variances
    mean: Floats  # (M,) μ
    noise: float  # s²
    importance: Floats  # (D,) λ: the mean of a², by ratings

    def turned_like(self, target: Factors, counts: npt.NDArray[Any]) -> Factors:
        """Return the factors rotated towards those of another analysis of the same columns.

        counts (M,) are the columns' ratings.
        """
        u, _, v = np.linalg.svd((self.a * counts[:, None]).T.astype(np.float64) @ target.a)
        turn = (u @ v).astype(np.float32)
        a, c = self.a @ turn, self.c @ np.square(turn)
        importance = np.average(np.square(a), axis=0, weights=counts + 1e-9).astype(np.float32)
        return replace(self, a=a, c=c, importance=np.maximum(importance, np.float32(1e-12)))


class _Sums(NamedTuple):
    """Expected moments of the rows that rated each column."""

    squares: Floats  # (M, D (D + 1) / 2) Σ z zᵀ, its lower half row by row
    products: Floats  # (M, D) Σ z r
    firsts: Floats  # (M, D) Σ z


def fit_factor_analysis(
    rows: CsrRows,
    dimensions: int,
    *,
    seed: int,
    threads: int,
    sweeps: int = SWEEPS,
    part: ColumnPartition | None = None,
) -> Factors:
    """Fit to all rows; in the end dimensions are turned so that they are uncorrelated.

    Ranks that have a part of the columns each find the loadings of their own.
    """
    if part is not None and part.group.size > 1:
        return _analysed(rows, dimensions, seed, threads, sweeps, part)
    arguments = dimensions, seed, threads, sweeps
    # Several members of a model may start from the same analysis.
    return rows.memo(("factors", *arguments), lambda: _analysed(rows, *arguments, None))


def _analysed(
    rows: CsrRows,
    dimensions: int,
    seed: int,
    threads: int,
    sweeps: int,
    part: ColumnPartition | None,
) -> Factors:
    analysis = _Analysis(rows, dimensions, seed, part)
    few = _some_rows(rows, ENOUGH, analysis.group)
    early = 0 if few is rows else sweeps * 2 // 3
    for sweep in range(sweeps):
        analysis.sweep(few if sweep < early else rows, threads)
    return analysis.turned()


def continue_factor_analysis(
    rows: CsrRows, factors: Factors, *, threads: int, sweeps: int
) -> Factors:
    """Some more sweeps from an earlier analysis: rows and ratings may have come since."""
    analysis = _Analysis(rows, factors.a.shape[1], 0, earlier=factors)
    for _ in range(sweeps):
        analysis.sweep(rows, threads)
    return analysis.turned()


class _Analysis:
    """The state of the fit."""

    def __init__(
        self,
        rows: CsrRows,
        dimensions: int,
        seed: int,
        part: ColumnPartition | None = None,
        earlier: Factors | None = None,
    ) -> None:
        M, group = rows.n_columns, SINGLE_PROCESS if part is None else part.group
        self.group = group
        self._overall = float(_mean(rows.levels, group))
        counts, totals = _counted(rows)
        shrunken = START_SHRINKAGE * self._overall + totals
        self._mean = (shrunken / (counts + START_SHRINKAGE)).astype(np.float32)  # (M,)
        spread = max(float(_mean(np.square(_deviations(rows, self._mean)), group)), 1e-6)
        self._counts = counts
        self._least, self._pull = LEAST_NOISE * spread, FIRST_PULL
        if earlier is not None:
            self._go_on(earlier)
            return
        few = _some_rows(rows, ENOUGH, group)
        self._a = _start(few, self._mean, dimensions, spread, seed, part)  # (M, D)
        self._c = np.full((M, dimensions), 0.01 * spread, np.float32)
        self._noise, self._centre = 0.78 * spread, np.zeros(dimensions)
        self._centre[0] = 0.43 * np.sqrt(spread)
        self._precision = np.full(dimensions, 1 / (0.052 * spread))

    def _go_on(self, earlier: Factors) -> None:
        """From an earlier analysis, turned back so that the mean loading is in the first dimension
        again: that of no other has a prior mean."""
        weights = self._counts / (self._counts + 20.0)
        towards = np.average(earlier.a, axis=0, weights=weights + 1e-9)
        turn, _ = np.linalg.qr(np.column_stack([towards, np.eye(len(towards))]))
        turn *= np.sign(towards @ turn[:, 0])
        self._a = (earlier.a @ turn).astype(np.float32)
        self._c = (earlier.c @ np.square(turn)).astype(np.float32)
        self._mean, self._noise = earlier.mean.copy(), earlier.noise
        self._pull = self._pulled(self._counts)
        self._centre, self._precision = _relevance(self._a, self._c, self._counts, self.group)

    def sweep(self, rows: CsrRows, threads: int) -> None:
        """One expectation and one maximisation step."""
        unit = np.float32(np.sqrt(self._noise))
        residuals = _deviations(rows, self._mean) / unit
        tables = rows, residuals, self._a / unit, self._c / unit**2
        sums = _expected(*tables, threads, self.group)
        prior = self._precision * self._noise, self._centre / np.sqrt(self._noise)
        a, c = _maximised(sums, *prior, threads)
        squares = index_sums(rows.columns, rows.n_columns, lambda part: np.square(residuals[part]))
        errors = _squared_errors(sums, a, c, squares)
        total = self.group.total
        left_over = total(float(errors.sum())) / total(rows.n_ratings)
        self._noise = max(self._noise * left_over, self._least)
        self._a, self._c = a * unit, c * unit**2
        counts, totals = _counted(rows)
        unexplained = totals - (sums.firsts * self._a).sum(1) + self._pull * self._overall
        self._mean = (unexplained / (counts + self._pull)).astype(np.float32)
        self._pull = self._pulled(counts)
        self._centre, self._precision = _relevance(self._a, self._c, counts, self.group)

    def _pulled(self, counts: Doubles) -> float:
        """Imagined ratings of a column at the mean of all: noise over the spread of true means."""
        seen = counts > 0
        unsure = self._noise / (counts[seen] + self._pull)
        spread = float(_mean(np.square(self._mean[seen] - self._overall) + unsure, self.group))
        return min(max(self._noise / spread, LEAST_PULL), MOST_PULL)

    def turned(self) -> Factors:
        """Turned so that Σ n a aᵀ is diagonal: then dimensions can be told apart."""
        weighted = (self._a * self._counts[:, None]).T.astype(np.float64)
        products = self.group.all_reduce(np.ascontiguousarray(weighted @ self._a))
        importance, turn = np.linalg.eigh(products / self.group.total(self._counts.sum()))
        return Factors(
            a=(self._a @ turn).astype(np.float32),
            c=(self._c @ np.square(turn)).astype(np.float32),
            mean=self._mean,
            noise=self._noise,
            importance=np.maximum(importance, 1e-12).astype(np.float32),
        )


def _mean(values: Any, group: ProcessGroup) -> Any:
    """The mean over the first axis of what all ranks have."""
    if group.size == 1:
        return values.mean(0)
    sums = group.all_reduce(np.atleast_1d(values.sum(0, dtype=np.float64)))
    return (sums if values.ndim > 1 else sums[0]) / group.total(len(values))


def _some_rows(rows: CsrRows, most: int, group: ProcessGroup) -> CsrRows:
    """All rows, or every so many-th if they have more ratings than that."""
    step = -(-int(group.total(rows.n_ratings)) // most)
    if step <= 1:
        return rows
    numbers = np.arange(0, len(rows), step)
    sample = take_rows(rows.offsets, rows.columns, rows.levels, numbers)
    return replace(rows, offsets=sample.offsets, columns=sample.columns, levels=sample.levels)


def _counted(rows: CsrRows) -> tuple[Doubles, Doubles]:
    """How many ratings each column has, and their sum. Both (M,)."""
    columns, M = rows.columns, rows.n_columns
    return index_sums(columns, M, lambda _: None), index_sums(
        columns, M, lambda part: rows.levels[part]
    )


def _deviations(rows: CsrRows, mean: Floats) -> Floats:
    """Ratings minus their column's mean. Returns (n,)."""
    return rows.levels.astype(np.float32) - mean[rows.columns]


def _start(
    rows: CsrRows,
    mean: Floats,
    dimensions: int,
    spread: float,
    seed: int,
    part: ColumnPartition | None,
) -> Floats:
    """Loadings from the largest singular vectors of what means leave; the first is constant."""
    group = SINGLE_PROCESS if part is None else part.group
    numbers, residuals = np.repeat(np.arange(len(rows)), rows.counts()), _deviations(rows, mean)
    sums, sizes_of = np.bincount(numbers, residuals, len(rows)), np.array(rows.counts())
    row_means = group.all_reduce(sums) / (group.all_reduce(sizes_of) + START_SHRINKAGE)
    deviations = (residuals - row_means[numbers]).astype(np.float32)
    a = np.zeros((rows.n_columns, dimensions), np.float32)
    a[:, 0] = 0.43 * np.sqrt(spread)
    columns = rows.n_columns if part is None else part.n_columns
    ratings = int(group.total(rows.n_ratings))
    wide = min(dimensions - 1, len(rows), columns)
    if wide:
        counts, _ = _counted(rows)
        vectors, sizes = _singular(rows, numbers, deviations, wide, seed, part)
        scale = 0.5 * sizes * np.sqrt(columns / max(1, ratings))
        a[:, 1 : 1 + wide] = vectors * scale * np.sqrt(counts / (counts + 50.0))[:, None]
    return a


def _singular(
    rows: CsrRows, numbers: Any, values: Floats, count: int, seed: int, part: ColumnPartition | None
) -> tuple[Doubles, Doubles]:
    """Right singular vectors (M, count) of a sparse table, and values, by random projection."""
    group, columns = (
        (SINGLE_PROCESS, rows.n_columns) if part is None else (part.group, part.n_columns)
    )
    places = torch.from_numpy(np.stack([numbers, rows.columns.astype(np.int64)]))
    shape = (len(rows), rows.n_columns)
    table = torch.sparse_coo_tensor(
        places, torch.from_numpy(values), shape, check_invariants=False
    ).coalesce()
    turned = table.t().coalesce()
    wide = min(count + 8, shape[0], columns)
    guess = torch.from_numpy(_random_normal(seed, (rows.n_columns, wide), part))
    for _ in range(3):
        seen = torch.sparse.mm(table, guess)  # (N, wide)
        group.all_reduce(seen.numpy())
        basis = torch.linalg.qr(seen)[0]
        guess = torch.sparse.mm(turned, basis)  # (M, wide)
    if group.size > 1:
        return _tall_singular(guess.double().numpy(), count, group)
    vectors, sizes, _ = torch.linalg.svd(guess, full_matrices=False)
    return vectors[:, :count].double().numpy(), sizes[:count].double().numpy()


def _random_normal(seed: int, shape: tuple[int, int], part: ColumnPartition | None) -> Floats:
    """Normal numbers; a rank draws those of all columns, and keeps its own."""
    rng = np.random.default_rng(seed)
    if part is None:
        return rng.normal(size=shape).astype(np.float32)
    out = np.zeros(shape, np.float32)
    for first in range(0, part.n_columns, _PIECE):
        normal = rng.normal(size=(min(_PIECE, part.n_columns - first), shape[1]))
        lo, hi = np.searchsorted(part.columns, (first, first + len(normal)))
        out[lo:hi] = normal[part.columns[lo:hi] - first]
    return out


def _tall_singular(table: Doubles, count: int, group: ProcessGroup) -> tuple[Doubles, Doubles]:
    """The largest left singular vectors of a table whose rows ranks share, and values."""
    squares, turn = np.linalg.eigh(group.all_reduce(np.ascontiguousarray(table.T @ table)))
    sizes = np.sqrt(np.maximum(squares[::-1][:count], 1e-12))
    return table @ turn[:, ::-1][:, :count] / sizes, sizes


def _expected(
    rows: CsrRows, residuals: Floats, a: Floats, c: Floats, threads: int, group: ProcessGroup
) -> _Sums:
    """Return the sums of the expectation step."""
    lower = np.empty((len(a), a.shape[1] * (a.shape[1] + 1) // 2), np.float32)
    lower_products(a, c, lower)
    # Plain tuples: a NamedTuple would be another type, for which kernels are compiled again.
    entries = np.array(rows.offsets), np.array(rows.columns)
    if group.size > 1:
        return _expected_by_ranks(entries, residuals, a, lower, group)
    cuts = np.searchsorted(rows.offsets, rows.n_ratings * np.arange(1, threads) / threads)
    bounds = list(pairwise([0, *cuts.tolist(), len(rows)]))
    parts = [tuple(np.zeros_like(array) for array in (lower, a, a)) for _ in bounds]
    tables = entries, residuals, (a, lower)
    run_parallel(
        expectation_step,
        [(*bound, *tables, part) for bound, part in zip(bounds, parts, strict=True)],
    )
    for part in parts[1:]:
        for total, more in zip(parts[0], part, strict=True):
            total += more
    return _Sums(*parts[0])


def _expected_by_ranks(
    entries: tuple[Any, Any], residuals: Floats, a: Floats, lower: Floats, group: ProcessGroup
) -> _Sums:
    """Do the same for the own columns; each rank solves its share of the rows."""
    totals = np.zeros_like(lower), np.zeros_like(a), np.zeros_like(a)
    n_rows, width, prior = len(entries[0]) - 1, lower.shape[1] + a.shape[1], np.ones(a.shape[1])
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        sums = np.empty((min(_ROWS_AT_ONCE, n_rows - first), width), np.float32)
        residual_sums(first, entries, residuals, (a, lower), sums)
        shared = torch.from_numpy(sums)
        group.reduce_scatter_rows(shared)
        row_moments(*group.row_range(len(sums)), sums, prior.astype(np.float32))
        group.all_gather_rows(shared)
        add_moments(first, entries, residuals, sums, totals)
    return _Sums(*totals)


def _maximised(
    sums: _Sums, precision: Doubles, centre: Doubles, threads: int
) -> tuple[Floats, Floats]:
    M = len(sums.products)
    loadings = np.empty_like(sums.products), np.empty_like(sums.products)
    prior = precision.astype(np.float32), centre.astype(np.float32)
    cuts = pairwise([M * t // threads for t in range(threads + 1)])
    run_parallel(maximization_step, [(*cut, tuple(sums), *prior, loadings) for cut in cuts])
    return loadings


def _squared_errors(sums: _Sums, a: Floats, c: Floats, squares: Doubles) -> Doubles:
    """The expected squared error of each column, in units of the noise. Returns (M,)."""
    i, j = np.tril_indices(a.shape[1])
    twice = np.where(i == j, 1, 2)  # the upper half is the same
    quadratic = (sums.squares * (twice * a[:, i] * a[:, j])).sum(1)
    uncertain = (c * sums.squares[:, i == j]).sum(1)
    return np.asarray(squares - 2 * (a * sums.products).sum(1) + quadratic + uncertain)


def _relevance(
    a: Floats, c: Floats, counts: Doubles, group: ProcessGroup
) -> tuple[Doubles, Doubles]:
    """Mean and precision of the loadings in each dimension; only the first has a mean."""
    seen = counts > 0
    centre = np.zeros(a.shape[1])
    weights = (counts / (counts + 20.0))[seen]
    if group.size == 1:
        centre[0] = np.average(a[seen, 0], weights=weights)
    else:
        centre[0] = group.total(float(weights @ a[seen, 0])) / group.total(float(weights.sum()))
    return centre, 1 / np.maximum(_mean(np.square(a[seen] - centre) + c[seen], group), 1e-9)
