"""Implicit ALS (Hu et al. 2008) in the form of Rendle et al. (2022).

Item i has a vector f_i in D dimensions, and a user x with items S minimizes

    Σ_{i∈S} w_i (1 - x·f_i)²  +  α Σ_i (x·f_i)²  +  ρ (n_S + α M) / (n̄ + α M) |x|²

so that x = (α FᵀF + Σ_S w_i f_i f_iᵀ + ρ (…) I)⁻¹ Σ_S w_i f_i. n_S = Σ_S w_i, and n̄ is its mean
over users: good values of ρ then hardly depend on α and on the size of the catalog. Items and users
take turns. A user's vector is one solve, for known and new users alike.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

import numpy as np
from annotated_types import Ge, Gt

from cfnade._typing import IntArray
from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.exceptions import ModelError
from cfnade.implicit.base import DataShape, FitCache, Options, ScoreArray, SearchSpace
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import (
    WeightedComponent,
    WeightedConfig,
    times_transpose,
    weighed_rows,
)
from cfnade.kernels.sparse import solve_ridge_rows
from cfnade.utils.validation import options

SWEEPS = 10
"""Rounds of the alternation."""
SHORT_HISTORY = 15
"""With fewer interactions per user a large penalty leaves nothing but popularity, and the search
would end on that plateau (20,000 users × 6: NDCG@20 .150, that of popularity, from ρ = 3 on)."""
MOST_USERS = 100_000
"""Of more users so many suffice for the vectors of items."""


@options(ModelError, "model option")
class ImplicitALSConfig(WeightedConfig):
    """The fields that fix a factorization."""

    factors: Annotated[int, Ge(1)]
    """D."""
    alpha: Annotated[float, Gt(0)] = 0.1
    """α: what an item without interaction counts."""
    penalty: Annotated[float, Gt(0)] = 12.0
    """ρ."""
    mean_count: Annotated[float, Gt(0)] = 1.0
    """n̄."""

    @property
    def ridge(self) -> float:
        """ρ / (n̄ + α M)."""
        return self.penalty / (self.mean_count + self.alpha * self.columns)


@register("ials")
class ImplicitALS(WeightedComponent):
    """Vectors F of items (M, D) in the directions in which FᵀF is diagonal, and its diagonal."""

    gives_item_vectors = True
    config_type = ImplicitALSConfig
    config: ImplicitALSConfig

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        most = int(np.clip(min(shape.users, shape.items) // 2, 4, 256))
        factors = tuple(k for k in (4, 8, 16, 32, 64, 128, 256) if k <= most)
        values = {
            "penalty": (0.4, 0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0),
            "alpha": (0.01, 0.03, 0.1, 0.3, 1.0),
            "factors": factors,
        }
        few = shape.interactions < SHORT_HISTORY * shape.users
        start = {
            "penalty": 1.5 if few else 6.0,
            "alpha": 0.1,
            "factors": max(k for k in factors if k <= 64),
        }
        return SearchSpace(values, start, 18)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        D = options["factors"]
        users = min(shape.users, MOST_USERS)
        share = users / max(1, shape.users)
        steps = 12  # of the conjugate gradients
        products = 2 * steps * share * shape.interactions * D * 9e-11
        return float(
            SWEEPS * (products + (users + shape.items) * (D * steps * 6e-10 + D**2 * 9e-11))
        )

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        weighed, fields = weighed_rows(rows, options)
        active = max(1, int(np.count_nonzero(weighed.counts)))
        mean = max(1e-6, float(weighed.weights.sum(dtype=np.float64)) / active)
        config = ImplicitALSConfig(**(fields | {"mean_count": mean}))
        rng = np.random.default_rng(seed)
        if len(weighed) > MOST_USERS:
            weighed = weighed.select(np.sort(rng.permutation(len(weighed))[:MOST_USERS]))
        by_item = weighed.transposed()
        M, D = config.columns, config.factors
        F = (rng.standard_normal((M, D)) * 0.1 / np.sqrt(D)).astype(np.float32)
        for _ in range(SWEEPS):
            X = solve(weighed, rotate(F), config)
            F = solve(by_item, rotate(X), config)
        rotated = rotate(F)
        return cls(config, {"F": rotated.vectors, "lengths": rotated.lengths})

    def scores(self, rows: InteractionRows) -> ScoreArray:
        rotated = Rotated(self.arrays["F"], self.arrays["lengths"])
        return times_transpose(solve(self.weighed(rows), rotated, self.config), rotated.vectors)

    def scores_without(self, row: InteractionRows, places: IntArray) -> ScoreArray:
        """By the inverse of the whole matrix: it lacks a rank-one term and a part of the ridge."""
        weighed, config = self.weighed(row), self.config
        F = self.arrays["F"].astype(np.float64)
        f, w = F[weighed.columns], weighed.weights.astype(np.float64)
        base = config.alpha * self.arrays["lengths"].astype(np.float64)
        ridge = config.ridge * (w.sum() + config.alpha * len(F))
        values, basis = np.linalg.eigh((f.T * w) @ f + np.diag(base + ridge))
        total = (w @ f) @ basis
        f, w = f[places] @ basis, w[places, None]
        inverse = 1 / (values - config.ridge * w)
        q = f * inverse
        x = (total - w * f) * inverse
        x += w * q * (f * x).sum(1, keepdims=True) / (1 - w * (f * q).sum(1, keepdims=True))
        x *= len(weighed.columns) > 1  # exact zeros remain of a single interaction
        return np.asarray((x @ basis.T).astype(np.float32) @ self.arrays["F"].T)

    def item_vectors(self) -> ScoreArray | None:
        return self.arrays["F"]

    @classmethod
    def spec(cls, config: ImplicitALSConfig) -> dict[str, ArraySpec]:
        D = config.factors
        return {"F": ArraySpec((config.columns, D)), "lengths": ArraySpec((D,), None)}


class Rotated(NamedTuple):
    """Vectors in the directions in which FᵀF is diagonal: scores are the same in any directions."""

    vectors: ScoreArray  # (M, D)
    lengths: ScoreArray  # (D,) the diagonal of FᵀF


def rotate(F: ScoreArray) -> Rotated:
    """Return the vectors in these directions."""
    import torch

    exact = torch.from_numpy(F).double()
    lengths, directions = torch.linalg.eigh(exact.T @ exact)
    return Rotated((exact @ directions).float().numpy(), lengths.clamp(min=0).float().numpy())


def solve(rows: InteractionRows, columns: Rotated, config: ImplicitALSConfig) -> ScoreArray:
    """Return the vector of each row in these directions, given those of its columns. (B, D)."""
    counts = np.bincount(rows.rows, rows.weights, minlength=len(rows))
    ridges = config.ridge * (counts + config.alpha * len(columns.vectors))
    data = rows.indptr, rows.columns, rows.weights, columns.vectors
    return np.asarray(solve_ridge_rows(*data, config.alpha * columns.lengths, ridges))
