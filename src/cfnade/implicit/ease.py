"""EASE: every item's interactions regressed on all other items, in closed form.

Steck's EASE (2019) with user weights, item penalties and scaled outputs. X are the interactions
(users × items), w_u ∝ n_u^-γ weighs a user, d_i ∝ n_i^a an item's penalty:

    P = (Xᵀ diag(w) X + λ diag(d))⁻¹,     s_i = -(x P)_i / P_ii^θ   for items that x has not got

γ = a = 0 and θ = 1 is EASE; θ = 0 is EASE of the transposed table. Where users are fewer than
items, no matrix of items by items is needed. With Y = diag(w)^½ X diag(d)^-½ and the Cholesky
factor L of YYᵀ + λI,

    V = (L⁻¹ Y)ᵀ,     s = (x d^-½) V Vᵀ d^-½ / (λ P_ii^θ),     λ d_i P_ii = 1 - |V_i|²
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.implicit.base import DataShape, FitCache, Options, ScoreArray, SearchSpace
from cfnade.implicit.holdout import most_asked
from cfnade.implicit.low_rank import LowRankComponent, RidgeConfig, output_factors
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import multiply, ridge_weights, scaled, weighed_rows
from cfnade.kernels.sparse import cooccurrence

if TYPE_CHECKING:
    from torch import Tensor

DENSE_ITEMS = 6_000
"""Up to so many items the matrix is kept as it is, whatever the number of users."""
MOST_ITEMS, MOST_USERS = 24_000, 10_000
"""Sizes of the larger inverse; 24,000 items take 2.3 GB."""
MOST_NUMBERS = 1 << 28
"""Numbers in V; more than 1 GB is left to `local` and `filter`."""


def _by_users(users: int, items: int) -> bool:
    """Whether to solve users × users."""
    fits = users <= MOST_USERS and users * items <= MOST_NUMBERS
    return items > DENSE_ITEMS and users < items and fits


@register("ease")
class Ease(LowRankComponent):
    """P without its diagonal (M, M), or V where users are fewer than items."""

    config_type = RidgeConfig

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        if not _by_users(shape.users, shape.items) and shape.items > MOST_ITEMS:
            return None
        values = {
            "penalty": (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0),
            "item_power": (0.0, 0.25, 0.5),
            "user_power": (0.0, 0.5, 1.0),
        }
        return SearchSpace(values, {"penalty": 160.0, "item_power": 0.25, "user_power": 0.5}, 18)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        N, M = shape.users, shape.items
        if _by_users(N, M):
            scores = 2e-11 * N * M * most_asked(N, M)  # they take as long as the fit
            return 2e-11 * N**3 + 3.5e-11 * N**2 * M + scores
        return 1.1e-11 * M**3 + 3e-9 * shape.pairs + 1e-8 * M**2

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        weighed, fields = weighed_rows(rows, options)
        rank = len(rows) if _by_users(len(rows), rows.n_columns) else 0
        config = RidgeConfig(**(fields | {"output_power": 0.0, "rank": rank}))
        fitted = _fit_by_users(weighed, config) if rank else _fit_by_items(weighed, config, cache)
        return cls(config, *fitted)

    def with_variant(self, value: float) -> Self:
        factors = output_factors(self._diagonal, value)
        config = replace(self.config, output_power=value)
        if config.rank:
            return self.scaled_output(factors, config)
        return type(self)(config, {"B": self.arrays["B"] * factors})

    def scores(self, rows: InteractionRows) -> ScoreArray:
        if self.config.rank:
            return super().scores(rows)
        return multiply(self.weighed(rows), self.arrays["B"])

    def item_vectors(self) -> ScoreArray | None:
        return super().item_vectors() if self.config.rank else None

    @classmethod
    def spec(cls, config: RidgeConfig) -> dict[str, ArraySpec]:
        if config.rank:
            return cls.low_rank_spec(config)
        return {"B": ArraySpec((config.columns, config.columns))}


def _fit_by_items(
    rows: InteractionRows, config: RidgeConfig, cache: FitCache
) -> tuple[Mapping[str, ScoreArray], ScoreArray]:
    users, items = ridge_weights(rows, config.user_power, config.item_power)

    def count() -> ScoreArray:
        scaled_rows = scaled(rows, by_row=np.sqrt(users))
        return np.asarray(
            cooccurrence(
                scaled_rows.indptr, scaled_rows.columns, scaled_rows.weights, rows.n_columns
            )
        )

    gram = cache.get("gram", (config.weighting, config.user_power), count)
    inverse = _inverse(gram, config.penalty * items)
    diagonal = inverse.diagonal().copy()
    np.fill_diagonal(inverse, 0.0)
    np.negative(inverse, out=inverse)
    return {"B": inverse}, diagonal


def _inverse(gram: ScoreArray, ridge: Any) -> ScoreArray:
    """Return (gram + diag(ridge))⁻¹ in single floats; in double ones where these do not suffice."""
    import torch

    for dtype in (torch.float32, torch.float64):
        matrix = torch.from_numpy(gram).to(dtype, copy=True)
        matrix.diagonal().add_(torch.from_numpy(np.asarray(ridge)).to(dtype))
        factor, failed = torch.linalg.cholesky_ex(matrix)
        del matrix
        if not int(failed):
            # By columns, as torch gives it: of a symmetric matrix these are its rows.
            inverse = torch.cholesky_inverse(factor).T
            return np.ascontiguousarray(inverse.float().numpy())
    raise np.linalg.LinAlgError("the matrix of the regression is not positive definite")


def _fit_by_users(
    rows: InteractionRows, config: RidgeConfig
) -> tuple[Mapping[str, ScoreArray], ScoreArray]:
    import torch

    users, items = ridge_weights(rows, config.user_power, config.item_power)
    scaled_rows = scaled(rows, np.sqrt(users), items**-0.5)
    dense = torch.from_numpy(_dense(scaled_rows))  # Yᵀ (M, N)
    gram = dense.T @ dense
    gram.diagonal().add_(config.penalty)
    V = _solve_triangular(gram, dense)
    diagonal = np.maximum(1 - np.square(V).sum(1), 1e-6) / (config.penalty * items)
    arrays = {
        "V": V,
        "input": np.asarray(items**-0.5, np.float32),
        "output": np.asarray(items**-0.5, np.float32),
    }
    return arrays, diagonal.astype(np.float32)


def _solve_triangular(gram: Tensor, dense: Tensor) -> ScoreArray:
    """Return dense L⁻ᵀ (M, N) for the Cholesky factor L of the matrix (N, N)."""
    import torch

    factor = torch.linalg.cholesky(gram.double()).float()
    solved = torch.linalg.solve_triangular(factor.T, dense, upper=True, left=False)
    return np.ascontiguousarray(solved.numpy())


def _dense(rows: InteractionRows) -> ScoreArray:
    """Return the rows as columns of a dense table, (M, B)."""
    out = np.zeros((rows.n_columns, len(rows)), np.float32)
    out[rows.columns, rows.rows] = rows.weights
    return out
