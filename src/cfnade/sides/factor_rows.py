"""What a factor analysis says about its rows and columns: posteriors, then the mean link."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfnade.data.ratings import IntArray, Rows
from cfnade.kernels.posterior import Evidence, lower_products
from cfnade.models.factor_network import FactorNetwork
from cfnade.sides.posterior_rows import PosteriorRows
from cfnade.sides.side import Array, Row
from cfnade.sides.state_features import StateFeatures, features_of


def factor_evidence(network: FactorNetwork, number: int) -> Evidence:
    """What ratings tell in one sample, as the kernels read it."""
    parts = (np.ascontiguousarray(part.numpy()) for part in network.sample(number))
    a, c, mean, importance, noise = parts
    (M, D), k = a.shape, np.arange(network.config.levels, dtype=a.dtype)
    products = np.empty((M, D * (D + 1) // 2), a.dtype)
    lower_products(a / np.sqrt(noise), c / noise, products)
    told = a[:, None] * ((k - mean[:, None]) / noise)[:, :, None]  # (M, K, D)
    return Evidence(a, products, told, np.ones(D, a.dtype), importance)


class FactorRows:
    """A RowReading: (η, ω) of cells by the posteriors of their rows, turned into scores."""

    def __init__(self, network: FactorNetwork, rows: Rows) -> None:
        self._network, self._link = network, network.link()
        self.rows, self.dtype = rows, network.a.numpy().dtype
        (M, D), S = network.a.shape, network.config.samples
        self.loadings = network.a.numpy() / S, network.mean.numpy().mean(1)
        output = np.zeros((M, 2, D + 1), network.a.numpy().dtype)  # of (m, ω)
        output[:, 0, :D], output[:, 1, D] = self.loadings[0], 1.0
        bias = np.stack([self.loadings[1], np.zeros_like(output[:, 0, 0])], 1)
        evidence = [factor_evidence(network, number) for number in range(S)]
        self.posteriors = PosteriorRows(rows, evidence, output, bias, shared=False)

    def _said(self, predicted: Array) -> Array:
        return self._link.scores(predicted).astype(self.dtype)

    def cells(self, rows: IntArray, columns: IntArray) -> Array:
        return self._said(self.posteriors.cells(rows, columns))

    def some(self, row: Row, columns: IntArray) -> Array:
        return self._said(self.posteriors.some(row, columns))

    def many(self, rows: Sequence[Row], which: IntArray, columns: IntArray) -> Array:
        return self._said(self.posteriors.many(rows, which, columns))

    def all(self, rows: Sequence[Row], *, leave_out: bool) -> Array:
        return self._linked(self.posteriors.all(rows, leave_out=leave_out))

    def across(self, columns: IntArray, raters: Sequence[Row], *, leave_out: bool) -> Array:
        return self._linked(self.posteriors.across(columns, raters, leave_out=leave_out))

    def _linked(self, lists: Array) -> Array:
        """Of (η, ω) as (B, M, 2). Returns (B, M, K), in memory levels before columns."""
        B, M, _ = lists.shape
        scores = self._said(lists.reshape(-1, 2)).reshape(B, M, self.rows.n_levels)
        return np.ascontiguousarray(scores.transpose(0, 2, 1)).transpose(0, 2, 1)

    def down(self, column: int, rows: IntArray, raters: Row) -> Array:
        return self._said(self.posteriors.down(column, rows, raters))

    def without_each(self, row: Row, column: int) -> Array:
        return self._said(self.posteriors.without_each(row, column))

    def without_levels(self, row: Row, column: int) -> Array:
        return self._said(self.posteriors.without_levels(row, column))

    def features(self, counts: IntArray, *, mean_only: bool = False) -> StateFeatures | None:
        """For a column without loadings: by bells that are not tilted, whose scores are linear."""
        (a, means), k = self.loadings, np.arange(self.rows.n_levels)
        (M, D), variance = a.shape, float(self._network.variances[0])
        table = np.zeros((M, len(k), D + 1), a.dtype)
        table[:, :, :D] = a[:, None] * (k / variance)[:, None]
        bells = -np.square(k - means[:, None]) / (2 * variance)
        bias = self._network.log_weights.numpy() + bells
        return features_of(
            self.posteriors, table, bias.astype(a.dtype), counts, mean_only=mean_only
        )
