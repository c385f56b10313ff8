"""Variational factor analysis of ratings: where the ridge part starts, and a model by itself.

A rating r of column i by row n is r = μ_i + a_i·z_n + ε with z_n ~ N(0, I), ε ~ N(0, s²) and
a_i ~ N(ν, diag(1/α)). The posterior of z_n is a full Gaussian given the loadings' means and
variances c_i, that of a_i a Gaussian whose diagonal is kept; α (which dimensions are needed at
all), the first dimension's mean loading and s² are learned with them. Ratings are level numbers,
and all constants are relative to the spread of a column's ratings, so any scale will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cfnade.data.ratings import Rows
from cfnade.kernels.posterior import expect, lower_products, maximise
from cfnade.kernels.threads import run

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

SWEEPS = 30
MEAN_SHRINKAGE = 2.0
"""Imagined ratings of a column at the mean of all."""
START_SHRINKAGE = 5.0
"""The same for the means that the analysis starts from."""


@dataclass(frozen=True)
class Factors:
    """What was learned, in levels. M columns, D dimensions."""

    a: Floats  # (M, D) loadings
    c: Floats  # (M, D) their posterior variances
    mean: Floats  # (M,) μ
    noise: float  # s²
    importance: Floats  # (D,) λ: the mean of a², by ratings


class _Sums(NamedTuple):
    """Of what is expected of the rows that rated a column."""

    squares: Floats  # (M, D (D + 1) / 2) Σ z zᵀ, its lower half row by row
    products: Floats  # (M, D) Σ z r
    firsts: Floats  # (M, D) Σ z


def analyse(
    rows: Rows, dimensions: int, *, seed: int, threads: int, sweeps: int = SWEEPS
) -> Factors:
    """Fit to all rows; in the end dimensions are turned so that they are uncorrelated."""
    M, columns = rows.n_columns, np.array(rows.columns)
    counts = np.bincount(columns, minlength=M).astype(np.float64)
    values = rows.levels.astype(np.float32)
    overall, totals = float(values.mean()), np.bincount(columns, values, M)
    mean = (totals + START_SHRINKAGE * overall) / (counts + START_SHRINKAGE)
    spread = max(float(np.square(values - mean[columns]).mean()), 1e-6)
    a = _start(rows, values - mean[columns], counts, dimensions, spread, seed)
    c = np.full_like(a, 0.01 * spread)
    noise, centre = 0.78 * spread, np.zeros(dimensions)
    centre[0] = 0.43 * np.sqrt(spread)
    precision = np.full(dimensions, 1 / (0.052 * spread))
    for _ in range(sweeps):
        unit = np.float32(np.sqrt(noise))
        residuals = ((values - mean[columns]) / unit).astype(np.float32)
        sums = _expected(rows, residuals, a / unit, c / unit**2, threads)
        a, c = _maximised(sums, precision * noise, centre / np.sqrt(noise), threads)
        squares = np.bincount(columns, np.square(residuals), M).astype(np.float64)
        noise *= float(_squared_errors(sums, a, c, squares).sum()) / len(values)
        a, c = a * unit, c * unit**2
        fitted = (sums.firsts * a).sum(1)  # Σ a·z of each column
        mean = (totals - fitted + MEAN_SHRINKAGE * overall) / (counts + MEAN_SHRINKAGE)
        centre, precision = _relevance(a, c, counts)
    return _turned(a, c, mean.astype(np.float32), noise, counts)


def _start(
    rows: Rows, residuals: Any, counts: Doubles, dimensions: int, spread: float, seed: int
) -> Floats:
    """Loadings from the largest singular vectors of what means leave; the first is constant."""
    numbers = np.repeat(np.arange(len(rows)), rows.counts())
    own = np.bincount(numbers, residuals, len(rows)) / (rows.counts() + START_SHRINKAGE)
    left = (residuals - own[numbers]).astype(np.float32)
    a = np.zeros((rows.n_columns, dimensions), np.float32)
    a[:, 0] = 0.43 * np.sqrt(spread)
    wide = min(dimensions - 1, len(rows), rows.n_columns)
    if wide:
        vectors, sizes = _singular(rows, numbers, left, wide, seed)
        scale = 0.5 * sizes * np.sqrt(rows.n_columns / max(1, rows.n_ratings))
        a[:, 1 : 1 + wide] = vectors * scale * np.sqrt(counts / (counts + 50.0))[:, None]
    return a


def _singular(
    rows: Rows, numbers: Any, values: Floats, count: int, seed: int
) -> tuple[Doubles, Doubles]:
    """Right singular vectors (M, count) of a sparse table, and values, by random projection."""
    places = torch.from_numpy(np.stack([numbers, rows.columns.astype(np.int64)]))
    shape = (len(rows), rows.n_columns)
    table = torch.sparse_coo_tensor(
        places, torch.from_numpy(values), shape, check_invariants=False
    ).coalesce()
    turned = table.t().coalesce()
    wide = min(count + 8, *shape)
    drawn = np.random.default_rng(seed).normal(size=(shape[1], wide)).astype(np.float32)
    guess = torch.from_numpy(drawn)
    for _ in range(3):
        basis = torch.linalg.qr(torch.sparse.mm(table, guess))[0]  # (N, wide)
        guess = torch.sparse.mm(turned, basis)  # (M, wide)
    vectors, sizes, _ = torch.linalg.svd(guess, full_matrices=False)
    return vectors[:, :count].double().numpy(), sizes[:count].double().numpy()


def _expected(rows: Rows, residuals: Floats, a: Floats, c: Floats, threads: int) -> _Sums:
    """The sums of the expectation step, each thread's own added up."""
    M, D = a.shape
    lower = np.empty((M, D * (D + 1) // 2), np.float32)
    lower_products(a, c, lower)
    cuts = np.searchsorted(rows.offsets, rows.n_ratings * np.arange(1, threads) / threads)
    bounds = list(pairwise([0, *cuts.tolist(), len(rows)]))
    parts = [_Sums(*(np.zeros_like(array) for array in (lower, a, a))) for _ in bounds]
    given = (np.array(rows.offsets), np.array(rows.columns)), residuals, (a, lower)
    run(expect, [(*bound, *given, part) for bound, part in zip(bounds, parts, strict=True)])
    for part in parts[1:]:
        for into, more in zip(parts[0], part, strict=True):
            into += more
    return parts[0]


def _maximised(
    sums: _Sums, precision: Doubles, centre: Doubles, threads: int
) -> tuple[Floats, Floats]:
    M = len(sums.products)
    loadings = np.empty_like(sums.products), np.empty_like(sums.products)
    prior = precision.astype(np.float32), centre.astype(np.float32)
    cuts = pairwise([M * t // threads for t in range(threads + 1)])
    run(maximise, [(*cut, sums, *prior, loadings) for cut in cuts])
    return loadings


def _squared_errors(sums: _Sums, a: Floats, c: Floats, squares: Doubles) -> Doubles:
    """The expected squared error of each column, in units of the noise. Returns (M,)."""
    i, j = np.tril_indices(a.shape[1])
    twice = np.where(i == j, 1, 2)  # the upper half is the same
    quadratic = (sums.squares * (twice * a[:, i] * a[:, j])).sum(1)
    uncertain = (c * sums.squares[:, i == j]).sum(1)
    return np.asarray(squares - 2 * (a * sums.products).sum(1) + quadratic + uncertain)


def _relevance(a: Floats, c: Floats, counts: Doubles) -> tuple[Doubles, Doubles]:
    """Mean and precision of the loadings in each dimension; only the first has a mean."""
    seen = counts > 0
    centre = np.zeros(a.shape[1])
    centre[0] = np.average(a[seen, 0], weights=(counts / (counts + 20.0))[seen])
    return centre, 1 / np.maximum((np.square(a[seen] - centre) + c[seen]).mean(0), 1e-9)


def _turned(a: Floats, c: Floats, mean: Floats, noise: float, counts: Doubles) -> Factors:
    """Turned so that Σ n a aᵀ is diagonal: then dimensions can be told apart."""
    moments = (a * counts[:, None]).T.astype(np.float64) @ a / counts.sum()
    importance, turn = np.linalg.eigh(moments)
    return Factors(
        a=(a @ turn).astype(np.float32),
        c=(c @ np.square(turn)).astype(np.float32),
        mean=mean,
        noise=noise,
        importance=np.maximum(importance, 1e-12).astype(np.float32),
    )
