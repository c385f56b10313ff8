"""What a ridge part says, from its numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfnade.components.base import NOTHING, Array, Axis, Reading, RowWeights
from cfnade.components.gaussian import PosteriorRows
from cfnade.components.readings import reading_of
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.kernels.posterior import Evidence, lower_products
from cfnade.models.config import RidgeConfig

SETTLED_SMOOTHING = 2.0
"""Imagined ratings of a column where nothing is known of the row."""


class RidgeWeights(RowWeights):
    """By the names of models/ridge.py, which has the equations."""

    config: RidgeConfig

    @staticmethod
    def config_of(fields: Mapping[str, Any]) -> RidgeConfig:
        return RidgeConfig.from_dict(fields)

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = cls.config_of(fields)
        M, K, D = config.columns, config.levels, config.ridge
        by_dimension = dict.fromkeys(("u_added", "u_start", "q"), (M, D))
        by_level = dict.fromkeys(("e_added", "e_start", "b"), (M, K))
        tables = {"W": (M, K, D), "V": (M, K, D + 1), "log_prior": (D,), "importance": (D,)}
        return {**by_dimension, **by_level, **tables, "start_noise": ()}

    @property
    def u(self) -> Array:
        """What a rating of each column is about. (M, D)."""
        return np.asarray(self.tables["u_start"] + self.tables["u_added"])

    @property
    def e(self) -> Array:
        """How far along u a rating at each level says that the row is. (M, K)."""
        return np.asarray(self.tables["e_start"] + self.tables["e_added"])

    def evidence(self) -> Evidence:
        u, e, told = self.u, self.e, self.tables["W"].copy()  # (M, K, D)
        for k in range(
            1, told.shape[1]
        ):  # one after the other: numpy's cumsum takes thrice as long
            told[:, k] += told[:, k - 1]
        for k in range(told.shape[1]):
            told[:, k] += u * e[:, k, None]
        M, D = u.shape
        products = np.empty((M, D * (D + 1) // 2), u.dtype)
        lower_products(u, self.tables["q"], products)
        prior = np.exp(self.tables["log_prior"])
        return Evidence(u, products, told, prior, self.tables["importance"])

    def rows(self, rows: CsrRows) -> PosteriorRows:
        """What it says of its rows and columns."""
        output, gain = (self.tables["V"], self.tables["b"]), self.config.gain
        return PosteriorRows(rows, [self.evidence()], *output, gain=gain)

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, self.rows(context.rows(self.axis)), context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Of a row its state (γ m, ω), of a column the output weights of its levels."""
        if axis != self.axis:
            return self.tables["V"].reshape(len(self.tables["V"]), -1)
        rows = context.rows(axis)
        return self.rows(rows).states_down(-1, np.arange(len(rows)), NOTHING)
