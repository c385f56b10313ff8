"""Bayesian factor analysis by Gibbs sampling.

A rating r of column i by row n is r = m + b_n + c_i + x_n·y_i + ε. Biases and tastes are Gaussian
with means and precisions of their own in every dimension, which are unknown too, as is the noise
(Bayesian probabilistic matrix factorisation, Salakhutdinov & Mnih, 2008). A Gibbs sampler draws all
of them in turn. A sample consists of the columns' posteriors given the rows' draws, so that few
samples suffice. Each is a factor analysis (variational_bayes.py), and predictions are their mean.
On small data, variational Bayes switches off dimensions that exist; sampling does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cfnade.components.variational_bayes import Doubles, Factors, Floats
from cfnade.data.csr import CsrRows
from cfnade.kernels.factor_analysis import gibbs_step
from cfnade.kernels.posterior import lower_products
from cfnade.kernels.threads import run_parallel

BURN_IN, BETWEEN = 40, 10
"""Rounds before the first sample, and from one to the next."""
IMAGINED = 1.0
"""Weight of the prior of a precision, in vectors of length 1."""


class _Vectors:
    """The vectors of all rows, or of all columns: a bias, then factors."""

    def __init__(self, rows: CsrRows, levels: Floats, dimensions: int, start: Floats) -> None:
        self._index = np.array(rows.offsets), np.array(rows.columns)
        self._levels, self._counts = levels, rows.counts()
        count = len(rows)
        self.draws = np.concatenate([np.zeros((count, 1), np.float32), start], 1)  # (N, 1 + D)
        self.means, self.variances = np.empty_like(self.draws), np.empty_like(self.draws)
        self.errors = np.empty(count, np.float32)
        self.precision = np.full(1 + dimensions, 10.0)
        self.centre = np.zeros(1 + dimensions)

    def draw(
        self, given: _Vectors, noise: float, random: np.random.Generator, threads: int
    ) -> float:
        """Draw new vectors, given those of the other axis; return the sum of squared errors."""
        unit = np.float32(np.sqrt(noise))
        vectors = given.draws / unit
        vectors[:, 0] = 1 / unit  # of the own bias
        lower = np.empty((len(vectors), vectors.shape[1] * (vectors.shape[1] + 1) // 2), np.float32)
        lower_products(vectors, np.zeros_like(vectors), lower)
        residuals = (self._levels - given.draws[self._index[1], 0]) / unit
        prior = self.precision.astype(np.float32), self.centre.astype(np.float32)
        normal = random.standard_normal(self.draws.shape, np.float32)
        out = self.draws, self.means, self.variances, self.errors
        offsets = self._index[0]
        cuts = np.searchsorted(offsets, offsets[-1] * np.arange(1, threads) / threads)
        bounds = pairwise([0, *cuts.tolist(), len(self.draws)])
        arguments = self._index, residuals, (vectors, lower), prior, normal, out
        run_parallel(gibbs_step, [(*bound, *arguments) for bound in bounds])
        return float(self.errors.sum(dtype=np.float64)) * noise

    def draw_prior(self, random: np.random.Generator, *, bias: bool) -> None:
        """Draw precisions and means of vectors; a mean bias of one axis suffices."""
        draws = self.draws[self._counts > 0].astype(np.float64)
        squares = np.square(draws - self.centre).sum(0)
        count = len(draws) + IMAGINED
        self.precision = random.gamma(count / 2, 2 / (squares + IMAGINED))
        means = draws.sum(0) / count
        self.centre = means + random.standard_normal(len(means)) / np.sqrt(self.precision * count)
        if not bias:
            self.centre[0] = 0.0


@dataclass(frozen=True)
class _Scale:
    """Levels are scaled to (level - middle) / unit."""

    middle: float
    unit: float


def sample_factor_analysis(
    rows: CsrRows, columns: CsrRows, dimensions: int, *, count: int, seed: int, threads: int
) -> list[Factors]:
    """Return `count` factor analyses of the same ratings, given by row and by column.

    `dimensions` are those of the result; the first is a row's bias.
    """
    D, random = dimensions - 1, np.random.default_rng((seed, 17))
    scale = _Scale(float(rows.levels.mean()), max(float(rows.levels.std()), 1e-3))
    sides = rows, columns
    starts = [0.1 * random.standard_normal((len(side), D), np.float32) for side in sides]
    row, column = (
        _Vectors(side, _scaled(side, scale), D, start)
        for side, start in zip(sides, starts, strict=True)
    )
    noise, samples = 0.7, list[Factors]()
    for number in range(BURN_IN + BETWEEN * (count - 1) + 1):
        row.draw(column, noise, random, threads)
        errors = column.draw(row, noise, random, threads)
        if number >= BURN_IN and (number - BURN_IN) % BETWEEN == 0:
            samples.append(_factors(row, column, noise, scale))
        noise = (errors + IMAGINED) / random.chisquare(rows.n_ratings + IMAGINED)
        row.draw_prior(random, bias=False)
        column.draw_prior(random, bias=True)
    return samples


def _scaled(rows: CsrRows, scale: _Scale) -> Floats:
    return ((rows.levels - np.float32(scale.middle)) / np.float32(scale.unit)).astype(np.float32)


def _factors(row: _Vectors, column: _Vectors, noise: float, scale: _Scale) -> Factors:
    """Rows as z ~ N(0, I): what their prior was goes into loadings and means."""
    spread: Doubles = scale.unit / np.sqrt(row.precision)  # of a row's vector, (1 + D)
    a, c = column.means * spread, column.variances * np.square(spread)
    a[:, 0], c[:, 0] = spread[0], 0.0
    tastes = column.means[:, 1:] @ row.centre[1:]
    return Factors(
        a=a.astype(np.float32),
        c=c.astype(np.float32),
        mean=(scale.middle + scale.unit * (column.means[:, 0] + tastes)).astype(np.float32),
        noise=noise * scale.unit**2,
        importance=np.square(a).mean(0).astype(np.float32),
    )
