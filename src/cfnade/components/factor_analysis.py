"""Bayesian factor analysis as a component: fitted in seconds, good on data of any size.

Its mean is that of the analysis, which on small data no gradient improves; the shape of its
distributions is found on training ratings, each left out of its own prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    Arrays,
    ArraySpec,
    Axis,
    FitData,
    OutputTable,
    Pairs,
    other_axis,
)
from cfnade.components.gaussian import ClosedFormComponent, GaussianStates
from cfnade.components.mean_link import MeanLink
from cfnade.components.registry import register
from cfnade.components.row_states import RowStates
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels.column_groups import RowRatings
from cfnade.kernels.posterior import Evidence, lower_products
from cfnade.kernels.threads import thread_count
from cfnade.models.config import FactorConfig

if TYPE_CHECKING:
    from cfnade.components.variational_bayes import Factors

DIMENSIONS, SAMPLED_DIMENSIONS = 20, 7
"""Dimensions of a single analysis, and of each of several samples."""
SAMPLED_PRIOR = 3.0
"""Ensemble weight of samples relative to other members, where validation cannot decide."""
SAMPLE = 10_000
"""Training ratings that the shape of distributions is found on."""
MORE_SWEEPS = 2
"""Sweeps that continue the analysis after ratings have been added."""
ROUNDS = 20
"""Rounds of fitting the levels' weights to their frequencies."""
MIN_EXPECTED = 1e-300
"""Lower limit of an expected frequency."""


@register("user-factors", axis="user")
@register("item-factors", axis="item")
class FactorComponent(ClosedFormComponent):
    """Loadings of columns; a row is its posterior.

    With the option `samples` the loadings are sampled (gibbs.py) instead of optimized
    (variational_bayes.py), which is better where ratings are few. Each sample is an analysis.

        Λ = I + Σ_C (a aᵀ + diag c) / s²      m = Λ⁻¹ Σ_C a (r - μ) / s²
        η = μ_i + a_i·m                       the expected rating of column i
        ω = Σ_d λ_d (Λ⁻¹)_dd / Σ_d λ_d        the share that is still unknown

    Arrays: a, c (M, S D), mean μ (M, S), importance λ (S D), noise s² (S); of the link from (η, ω)
    to levels log_weights (K) and variances where all and where nothing is known of a row.
    """

    config: FactorConfig
    config_type = FactorConfig
    starts_well = True

    @classmethod
    def spec(cls, config: FactorConfig) -> dict[str, ArraySpec]:
        M, K, S = config.columns, config.levels, config.samples
        D = S * config.dimensions
        columns = {"a": (M, D), "c": (M, D), "mean": (M, S)}
        replicated = {"importance": (D,), "noise": (S,), "log_weights": (K,), "variances": (2,)}
        return {name: ArraySpec(shape, trained=False) for name, shape in columns.items()} | {
            name: ArraySpec(shape, None, trained=False) for name, shape in replicated.items()
        }

    def _zeros(self) -> dict[str, Array]:
        arrays = super()._zeros()
        arrays["variances"][...] = 1.0  # a link exists before its variances are fitted
        return arrays

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    def config_for(
        cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]
    ) -> FactorConfig:
        assert axis is not None
        samples = options.get("samples") or 1
        default = DIMENSIONS if samples == 1 else SAMPLED_DIMENSIONS
        return FactorConfig(
            columns=len(ratings.ids(other_axis(axis))),
            levels=len(ratings.scale),
            dimensions=options.get("ridge") or default,
            samples=samples,
        )

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        assert axis is not None
        new = cls(cls.config_for(axis, data.dataset, options), axis=axis)
        new._analyze(data.dataset, data.training.seed)
        return new

    def update(self, data: FitData, counts: IntArray) -> None:
        from cfnade.components.variational_bayes import Factors, continue_factor_analysis

        del counts
        if self.config.samples > 1:
            self._analyze(data.dataset, seed=0)
            return
        earlier = Factors(
            **{name: self.arrays[name] for name in ("a", "c", "importance")},
            mean=self.arrays["mean"][:, 0],
            noise=float(self.arrays["noise"][0]),
        )
        rows, threads = data.dataset.rows(self.axis), thread_count(None)
        self.fill(0, continue_factor_analysis(rows, earlier, threads=threads, sweeps=MORE_SWEEPS))
        self._fit_link(data.dataset)

    def _analyze(self, ratings: Dataset, seed: int) -> None:
        """Fit all samples from the start."""
        from cfnade.components.gibbs import sample_factor_analysis
        from cfnade.components.variational_bayes import fit_factor_analysis

        rows, D, threads = ratings.rows(self.axis), self.config.dimensions, thread_count(None)
        if self.config.samples == 1:
            samples = [fit_factor_analysis(rows, D, seed=seed, threads=threads)]
        else:
            columns = ratings.rows(other_axis(self.axis))
            samples = sample_factor_analysis(
                rows, columns, D, count=self.config.samples, seed=seed, threads=threads
            )
        for number, factors in enumerate(samples):
            self.fill(number, factors)
        self._fit_link(ratings)

    def fill(self, number: int, factors: Factors) -> None:
        """Make a fitted analysis one of the samples."""
        dimensions = self._dimensions(number)
        for name in ("a", "c"):
            self.arrays[name][:, dimensions] = getattr(factors, name)
        self.arrays["mean"][:, number] = factors.mean
        self.arrays["importance"][dimensions] = factors.importance
        self.arrays["noise"][number] = factors.noise

    def _dimensions(self, number: int) -> slice:
        D = self.config.dimensions
        return slice(number * D, (number + 1) * D)

    def _fit_link(self, ratings: Dataset) -> None:
        """Fit variances and the levels' weights to training ratings, each left out of its row."""
        rows = ratings.rows(self.axis)
        places = np.arange(rows.n_ratings)[:: -(-rows.n_ratings // SAMPLE)]
        numbers = np.searchsorted(rows.offsets, places, side="right") - 1
        columns, levels = rows.columns[places].astype(np.int64), rows.levels[places]
        pairs = Pairs(rows, numbers, columns, numbers, levels.astype(np.int64))
        predicted = FactorStates(self, rows).predict_pairs(pairs)
        means = self.arrays["mean"].mean(1)[columns]
        spread = float(np.square(levels - means).mean())
        error = float(np.square(levels - predicted[:, 0]).mean())
        # error = v at the mean ω, and v goes from the noise to the spread.
        unknown = min(float(predicted[:, 1].mean()), 0.9)
        noise = max((error - unknown * spread) / (1 - unknown), 0.05 * spread, 1e-3)
        self.arrays["variances"][...] = noise, max(spread, noise)
        frequencies = np.bincount(levels, minlength=self.config.levels) + 0.5
        variances = self.arrays["variances"].tolist()
        self.arrays["log_weights"][...] = _fit_weights(predicted, frequencies, *variances)

    @property
    def prior_weight(self) -> float:
        return SAMPLED_PRIOR if self.config.samples > 1 else 1.0

    # -- scores -------------------------------------------------------------------------------

    def sample_evidence(self, number: int) -> Evidence:
        """Return the evidence of ratings in one sample."""
        D, arrays, dimensions = self.config.dimensions, self.arrays, self._dimensions(number)
        a, c = (np.ascontiguousarray(arrays[name][:, dimensions]) for name in ("a", "c"))
        mean, noise = arrays["mean"][:, number], arrays["noise"][number]
        k = np.arange(self.config.levels, dtype=a.dtype)
        products = np.empty((len(a), D * (D + 1) // 2), a.dtype)
        lower_products(a / np.sqrt(noise), c / noise, products)
        by_level = a[:, None] * ((k - mean[:, None]) / noise)[:, :, None]  # (M, K, D)
        importance = np.ascontiguousarray(arrays["importance"][dimensions])
        return Evidence(a, products, by_level, np.ones(D, a.dtype), importance)

    def evidence(self) -> Evidence:
        return self.sample_evidence(0)  # of several samples, each is one answer

    def link(self) -> MeanLink:
        """Return the link from (η, ω) to scores with the present weights and variances."""
        noise, spread = self.arrays["variances"].tolist()
        return MeanLink(self.arrays["log_weights"], noise, spread)

    def scorer(self, rows: CsrRows) -> FactorStates:
        return FactorStates(self, rows)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Return the state (m, ω) of each row, or the loadings of each column."""
        if axis != self.axis:
            return self.arrays["a"]
        return self.scorer(context.rows(axis)).all_states()


class FactorStates(GaussianStates):
    """Rows whose states give (η, ω) of each column, which the link turns into scores."""

    def __init__(self, component: FactorComponent, rows: CsrRows) -> None:
        arrays, S = component.arrays, component.config.samples
        self.arrays, self._link = arrays, component.link()
        self.loadings, self.means = arrays["a"] / S, arrays["mean"].mean(1)
        M, D = self.loadings.shape
        table = np.zeros((M, 2, D + 1), self.loadings.dtype)  # of (m, ω)
        table[:, 0, :D], table[:, 1, D] = self.loadings, 1.0
        bias = np.stack([self.means, np.zeros_like(self.means)], 1)
        evidence = [component.sample_evidence(number) for number in range(S)]
        super().__init__(component.axis, rows, evidence, OutputTable(table, bias, False))

    def predict_pairs(self, pairs: Pairs) -> Array:
        """Return (η, ω) of pairs, (n, 2)."""
        return super().score_pairs(pairs)

    def score_pairs(self, pairs: Pairs) -> Array:
        return self._scores(self.predict_pairs(pairs))

    def score_columns(self, rows: CsrRows) -> Array:
        return self._list_scores(super().score_columns(rows))

    def score_rows(self, columns: IntArray) -> Array:
        return self._list_scores(super().score_rows(columns))

    def _scores(self, predicted: Array) -> Array:
        return self._link.scores(predicted).astype(self.dtype)

    def _list_scores(self, predicted: Array) -> Array:
        """Return scores (B, M, K) for (η, ω) as (B, M, 2), in memory levels before columns."""
        B, M, _ = predicted.shape
        scores = self._scores(predicted.reshape(-1, 2)).reshape(B, M, self.rows.n_levels)
        return np.ascontiguousarray(scores.transpose(0, 2, 1)).transpose(0, 2, 1)

    def fold_in_output(self) -> tuple[RowStates, OutputTable]:
        """Return bells that are not tilted, whose scores are linear in the loadings."""
        k, variance = np.arange(self.rows.n_levels), float(self.arrays["variances"][0])
        M, D = self.loadings.shape
        table = np.zeros((M, len(k), D + 1), self.dtype)
        table[:, :, :D] = self.loadings[:, None] * (k / variance)[:, None]
        bells = -np.square(k - self.means[:, None]) / (2 * variance)
        bias = self.arrays["log_weights"] + bells
        return self, OutputTable(table, bias.astype(self.dtype), False)


def _fit_weights(predicted: Array, frequencies: Array, noise: float, spread: float) -> Array:
    """Return log w (K,) with which the expected frequencies of levels are the observed ones."""
    weights, observed = np.zeros(len(frequencies)), np.log(frequencies / frequencies.sum())
    for _ in range(ROUNDS):
        scores = MeanLink(weights, noise, spread).scores(predicted)
        probabilities = np.exp(scores - scores.max(1, keepdims=True))
        expected = (probabilities / probabilities.sum(1, keepdims=True)).mean(0)
        # Where all ratings are equal, far levels have a smaller probability than a float holds.
        weights += observed - np.log(np.maximum(expected, MIN_EXPECTED))
    return weights


# -- residuals ------------------------------------------------------------------------------------


def residuals_of(factors: FactorStates, ratings: RowRatings) -> Array:
    """Return what the analysis leaves of each rating, predicted without it, (C,) float64."""
    cells = ratings.rows.astype(np.int64), ratings.columns.astype(np.int64), ratings.levels
    states = factors.states_without(ratings, *cells)  # (C, D + 1)
    a, mean = factors.loadings, factors.means
    columns = cells[1]
    predicted = mean[columns] + np.einsum("cd,cd->c", a[columns], states[:, :-1])
    return np.asarray(ratings.levels - predicted.astype(np.float64))


class ResidualTerms(NamedTuple):
    """What each of the n ratings of a row adds to the posterior of the analysis, and the sums.

    Symmetric matrices are lists of their lower triangles, row by row: (L, n), L = D (D + 1) / 2.
    """

    loadings: Array  # (D, n)
    errors: Array  # (n,) r - μ
    precision: Array  # (L, n)
    evidence: Array  # (D, n)
    total_precision: Array  # (L, 1), with the prior
    total_evidence: Array  # (D, 1)

    @classmethod
    def from_row(cls, arrays: Arrays, columns: IntArray, levels: IntArray) -> ResidualTerms:
        a, c, mean = (arrays[name][columns].T.astype(np.float64) for name in ("a", "c", "mean"))
        errors, noise = levels - mean[0], float(arrays["noise"][0])
        i, j = np.tril_indices(len(a))
        precision = (a[i] * a[j] + np.where(i == j, 1, 0)[:, None] * c[i]) / noise
        prior = np.where(i == j, 1.0, 0.0)[:, None]
        evidence = a * errors / noise
        sums = prior + precision.sum(1, keepdims=True), evidence.sum(1, keepdims=True)
        return cls(a, errors, precision, evidence, *sums)

    def without_each(self, left_out: IntArray, ratings: IntArray) -> Array:
        """Return what the analysis leaves of ratings without them and without another, (T, n).

        Cholesky's method, for all pairs of ratings at once.
        """
        precision = self.total_precision - self.precision[:, ratings]  # (L, n)
        D, evidence = len(self.evidence), self.total_evidence - self.evidence[:, ratings]
        x = [evidence[i] - self.evidence[i, left_out, None] for i in range(D)]  # (T, n) each
        P: dict[tuple[int, int], Array] = {
            cell: precision[number] - self.precision[number, left_out, None]
            for number, cell in enumerate([(i, j) for i in range(D) for j in range(i + 1)])
        }  # (T, n) each
        inverse = {}
        for j in range(D):
            inverse[j] = 1 / P[j, j]
            for i in range(j + 1, D):
                factor = P[i, j] * inverse[j]
                for k in range(j + 1, i + 1):
                    P[i, k] -= factor * P[k, j]
                x[i] -= factor * x[j]
        for i in reversed(range(D)):
            for k in range(i + 1, D):
                x[i] -= P[k, i] * x[k]
            x[i] *= inverse[i]
        residuals = np.tile(self.errors[ratings], (len(left_out), 1))
        for loading, mean in zip(self.loadings[:, ratings], x, strict=True):
            residuals -= loading * mean
        return residuals
