"""What a factor analysis says about its rows and columns: posteriors, then the mean link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import NOTHING, Array, Axis, Reading, Row, RowWeights
from cfnade.components.gaussian import PosteriorRows
from cfnade.components.mean_link import MeanLink
from cfnade.components.readings import reading_of
from cfnade.components.row_states import StateFeatures, features_of
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels.posterior import Evidence, lower_products
from cfnade.models.config import FactorConfig


class FactorWeights(RowWeights):
    """By the names of models/factor_network.py, which has the equations."""

    config: FactorConfig

    @staticmethod
    def config_of(fields: Mapping[str, Any]) -> FactorConfig:
        return FactorConfig.from_dict(fields)

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = cls.config_of(fields)
        M, K, S = config.columns, config.levels, config.samples
        D = S * config.dimensions
        tables = {"a": (M, D), "c": (M, D), "mean": (M, S), "importance": (D,), "noise": (S,)}
        return {**tables, "log_weights": (K,), "variances": (2,)}

    def sample_evidence(self, number: int) -> Evidence:
        """What ratings tell in one sample, as the kernels read it."""
        D, tables = self.config.dimensions, self.tables
        own = slice(number * D, (number + 1) * D)
        a, c = (np.ascontiguousarray(tables[name][:, own]) for name in ("a", "c"))
        mean, noise = tables["mean"][:, number], tables["noise"][number]
        k = np.arange(self.config.levels, dtype=a.dtype)
        products = np.empty((len(a), D * (D + 1) // 2), a.dtype)
        lower_products(a / np.sqrt(noise), c / noise, products)
        told = a[:, None] * ((k - mean[:, None]) / noise)[:, :, None]  # (M, K, D)
        importance = np.ascontiguousarray(tables["importance"][own])
        return Evidence(a, products, told, np.ones(D, a.dtype), importance)

    def evidence(self) -> Evidence:
        return self.sample_evidence(0)  # of several samples, each is one answer

    def link(self) -> MeanLink:
        """From (η, ω) to scores, for the weights and variances as they are."""
        noise, spread = self.tables["variances"].tolist()
        return MeanLink(self.tables["log_weights"], noise, spread)

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, FactorRows(self, context.rows(self.axis)), context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Of a row its state (m, ω), of a column its loadings."""
        if axis != self.axis:
            return self.tables["a"]
        rows = context.rows(axis)
        return FactorRows(self, rows).posteriors.states_down(-1, np.arange(len(rows)), NOTHING)


class FactorRows:
    """A RowReading: (η, ω) of cells by the posteriors of their rows, turned into scores."""

    def __init__(self, weights: FactorWeights, rows: CsrRows) -> None:
        self._tables, self._link = weights.tables, weights.link()
        a, S = weights.tables["a"], weights.config.samples
        self.rows, self.dtype = rows, a.dtype
        M, D = a.shape
        self.loadings = a / S, weights.tables["mean"].mean(1)
        output = np.zeros((M, 2, D + 1), a.dtype)  # of (m, ω)
        output[:, 0, :D], output[:, 1, D] = self.loadings[0], 1.0
        bias = np.stack([self.loadings[1], np.zeros_like(output[:, 0, 0])], 1)
        evidence = [weights.sample_evidence(number) for number in range(S)]
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
        (M, D), variance = a.shape, float(self._tables["variances"][0])
        table = np.zeros((M, len(k), D + 1), a.dtype)
        table[:, :, :D] = a[:, None] * (k / variance)[:, None]
        bells = -np.square(k - means[:, None]) / (2 * variance)
        bias = self._tables["log_weights"] + bells
        return features_of(
            self.posteriors, table, bias.astype(a.dtype), counts, mean_only=mean_only
        )
