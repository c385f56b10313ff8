"""The side that is factor analysis alone: made in seconds, good on anything, trained no further.

Rows are users or items. Its mean is that of the analysis, which on small data no gradient betters;
the shape of its distributions is found on training ratings, each left out of its own prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Before, other_axis
from cfnade.components.factor_rows import FactorRows, FactorWeights
from cfnade.components.gibbs import sample_factor_analysis
from cfnade.components.mean_link import MeanLink
from cfnade.components.trainable import ClosedFormComponent, tables_of
from cfnade.components.variational_bayes import (
    Factors,
    continue_factor_analysis,
    fit_factor_analysis,
)
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.kernels.threads import thread_count
from cfnade.models.batch import Context
from cfnade.models.config import FactorConfig
from cfnade.models.factor_network import FactorNetwork

SAMPLE = 10_000
"""Training ratings that the shape of distributions is found on."""
MORE_SWEEPS = 2
"""Of the analysis when ratings have come: it begins where the last one ended."""
ROUNDS = 20
"""Of fitting the levels' weights; each brings them nearer to how often levels came."""


def fill(network: FactorNetwork, number: int, factors: Factors) -> None:
    """Make what was found one of the network's samples."""
    *tables, noise = network.sample(number)
    for name, into in zip(("a", "c", "mean", "importance"), tables, strict=True):
        into.copy_(torch.from_numpy(getattr(factors, name)))
    noise.fill_(factors.noise)


def factors_in(network: FactorNetwork) -> Factors:
    """The first sample, as an analysis found it."""
    a, c, mean, importance, noise = network.sample(0)
    tables = {"a": a, "c": c, "mean": mean, "importance": importance}
    return Factors(**{n: table.numpy() for n, table in tables.items()}, noise=float(noise))


class FactorComponent(ClosedFormComponent):
    """Loadings of columns; a row is its posterior."""

    network: FactorNetwork
    starts_well = True
    usual: ClassVar[tuple[int, int]] = (20, 1)
    """Dimensions if none are given, and samples."""

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        assert axis is not None
        config = FactorConfig(
            columns=len(ratings.ids(other_axis(axis))),
            levels=len(ratings.scale),
            dimensions=fields.get("ridge") or cls.usual[0],
            samples=cls.usual[1],
        )
        return cls(axis, FactorNetwork(config))

    @torch.no_grad()
    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        del generator, before
        self._fill(self._sampled(ratings, settings.seed, thread_count(None)))
        self._shape(ratings)

    @torch.no_grad()
    def update(self, ratings: Dataset, trained: IntArray, settings: TrainingConfig) -> None:
        del trained, settings
        self._fill(self._sampled_again(ratings, thread_count(None)))
        self._shape(ratings)

    def _sampled(self, ratings: Dataset, seed: int, threads: int) -> list[Factors]:
        """What the sample, or each of several, is."""
        dimensions = self.network.config.dimensions
        return [
            fit_factor_analysis(ratings.rows(self.axis), dimensions, seed=seed, threads=threads)
        ]

    def _sampled_again(self, ratings: Dataset, threads: int) -> list[Factors]:
        """The same from where it stands."""
        rows = ratings.rows(self.axis)
        return [
            continue_factor_analysis(
                rows, factors_in(self.network), threads=threads, sweeps=MORE_SWEEPS
            )
        ]

    def _fill(self, samples: list[Factors]) -> None:
        for number, factors in enumerate(samples):
            fill(self.network, number, factors)

    def _shape(self, ratings: Dataset) -> None:
        """Variances and the levels' weights, from training ratings left out of their own."""
        rows, net = ratings.rows(self.axis), self.network
        places = np.arange(rows.n_ratings)[:: -(-rows.n_ratings // SAMPLE)]
        numbers = np.searchsorted(rows.offsets, places, side="right") - 1
        columns, levels = rows.columns[places].astype(np.int64), rows.levels[places]
        predicted = FactorRows(self.weights(), rows).posteriors.cells(numbers, columns)
        means = net.mean.numpy().mean(1)[columns]
        spread = float(np.square(levels - means).mean())
        error = float(np.square(levels - predicted[:, 0]).mean())
        # error = v at the mean ω, and v goes from the noise to the spread.
        unknown = min(float(predicted[:, 1].mean()), 0.9)
        noise = max((error - unknown * spread) / (1 - unknown), 0.05 * spread, 1e-3)
        net.variances.copy_(torch.tensor([noise, max(spread, noise)]))
        frequencies = np.bincount(levels, minlength=net.config.levels) + 0.5
        net.log_weights.copy_(torch.from_numpy(_weights(predicted, frequencies, net)))

    def weights(self) -> FactorWeights:
        return FactorWeights(self.axis, self.network.config, tables_of(self.network))

    @staticmethod
    def empty(fields: Mapping[str, Any]) -> FactorNetwork:
        return FactorNetwork(FactorConfig.from_dict(fields))

    # -- trained ------------------------------------------------------------------------------

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells in plain torch, each of a row of the context. Returns (n, K)."""
        net = self.network
        predicted = net.predicted(net.hidden(context), rows, columns)
        return torch.from_numpy(self.weights().link().scores(predicted.cpu().numpy())).to(net.a)


class SampledFactorComponent(FactorComponent):
    """The same by sampling: better where ratings are few."""

    usual = (7, 10)
    trust = 3.0

    def _sampled(self, ratings: Dataset, seed: int, threads: int) -> list[Factors]:
        config, own = self.network.config, ratings.rows(self.axis)
        others, count = ratings.rows(other_axis(self.axis)), config.samples
        return sample_factor_analysis(
            own, others, config.dimensions, count=count, seed=seed, threads=threads
        )

    def _sampled_again(self, ratings: Dataset, threads: int) -> list[Factors]:
        return self._sampled(ratings, 0, threads)


LEAST_EXPECTED = 1e-300


def _weights(predicted: Array, frequencies: Array, network: FactorNetwork) -> Array:
    """log w (K,) with which levels are expected as often as they came."""
    noise, spread = network.variances.tolist()
    weights, came = np.zeros(len(frequencies)), np.log(frequencies / frequencies.sum())
    link = None
    for _ in range(ROUNDS):
        link = MeanLink(weights, noise, spread, near=link)
        scores = link.scores(predicted)
        chances = np.exp(scores - scores.max(1, keepdims=True))
        expected = (chances / chances.sum(1, keepdims=True)).mean(0)
        # Where all ratings are alike, far levels are expected less often than a float can tell.
        weights += came - np.log(np.maximum(expected, LEAST_EXPECTED))
    return weights
