"""Factor analysis by sampling: what is uncertain is drawn, not set to its most probable value.

A rating r of column i by row n is r = m + b_n + c_i + x_n·y_i + ε. Biases and tastes are Gaussian
with means and precisions of their own in every dimension, which are unknown too, as is the noise
(Bayesian probabilistic matrix factorisation, Salakhutdinov & Mnih, 2008). A Gibbs sampler draws all
of them in turn. Of some of its rounds are kept, not the columns' draws, but their posteriors given
the rows' draws: so few are enough. Each is a factor analysis (factors.py), and their mean is what
is said. On small data, variational Bayes switches off tastes that are there; this does not.
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
"""Rounds before the first that is kept, and from one to the next."""
IMAGINED = 1.0
"""Vectors of length 1 that a precision is learnt from beside the real ones."""


class _Vectors:
    """What is known of all rows, or of all columns: a bias, then the taste."""

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
        self, others: _Vectors, noise: float, random: np.random.Generator, threads: int
    ) -> float:
        """New vectors, given the others'. Returns the sum of squared errors."""
        unit = np.float32(np.sqrt(noise))
        vectors = others.draws / unit
        vectors[:, 0] = 1 / unit  # of the own bias
        lower = np.empty((len(vectors), vectors.shape[1] * (vectors.shape[1] + 1) // 2), np.float32)
        lower_products(vectors, np.zeros_like(vectors), lower)
        residuals = (self._levels - others.draws[self._index[1], 0]) / unit
        prior = self.precision.astype(np.float32), self.centre.astype(np.float32)
        normal = random.standard_normal(self.draws.shape, np.float32)
        out = self.draws, self.means, self.variances, self.errors
        offsets = self._index[0]
        cuts = np.searchsorted(offsets, offsets[-1] * np.arange(1, threads) / threads)
        bounds = pairwise([0, *cuts.tolist(), len(self.draws)])
        how = self._index, residuals, (vectors, lower), prior, normal, out
        run_parallel(gibbs_step, [(*bound, *how) for bound in bounds])
        return float(self.errors.sum(dtype=np.float64)) * noise

    def draw_prior(self, random: np.random.Generator, *, bias: bool) -> None:
        """New precisions and means of vectors; a mean bias on one side is enough."""
        some = self.draws[self._counts > 0].astype(np.float64)
        away = np.square(some - self.centre).sum(0)
        count = len(some) + IMAGINED
        self.precision = random.gamma(count / 2, 2 / (away + IMAGINED))
        means = some.sum(0) / count
        self.centre = means + random.standard_normal(len(means)) / np.sqrt(self.precision * count)
        if not bias:
            self.centre[0] = 0.0


@dataclass(frozen=True)
class _Scale:
    """Levels are drawn as (level - middle) / unit."""

    middle: float
    unit: float


def sample_factor_analysis(
    rows: CsrRows, columns: CsrRows, dimensions: int, *, count: int, seed: int, threads: int
) -> list[Factors]:
    """So many factor analyses of the same ratings, given by row and by column.

    `dimensions` are those of the result; the first is a row's bias.
    """
    D, random = dimensions - 1, np.random.default_rng((seed, 17))
    scale = _Scale(float(rows.levels.mean()), max(float(rows.levels.std()), 1e-3))
    starts = [0.1 * random.standard_normal((len(one), D), np.float32) for one in (rows, columns)]
    row, column = (
        _Vectors(one, _scaled(one, scale), D, start)
        for one, start in zip((rows, columns), starts, strict=True)
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
