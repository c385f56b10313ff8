"""A spectral filter: the ridge regression of EASE on the leading directions of the interactions.

With Y = diag(w)^½ X diag(d)^-½ as in ease.py and the k leading eigenpairs (e, V) of YᵀY,

    f = e / (e + λ),     s = (x d^-½) V diag(f) Vᵀ d^-½ D^-θ,     D_i = (1 - Σ_k f_k V_ik²) / d_i

It works for catalogs of any size. One decomposition serves every smaller k, every λ and every θ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.implicit.base import DataShape, FitCache, Options, ScoreArray, SearchSpace
from cfnade.implicit.low_rank import LowRankComponent, RidgeConfig, output_factors
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.weighted import multiply, ridge_weights, scaled, weighed_rows

MOST = 512
"""Directions that are looked for; fewer in small data."""
SPARE, ROUNDS = 64, 5
"""Further directions and rounds of the power iteration: with half of them a refit lost .005 NDCG
on MovieLens 100K."""


class Spectrum(NamedTuple):
    """Leading eigenvalues (k,) and eigenvectors (M, k) of YᵀY."""

    values: ScoreArray
    vectors: ScoreArray


def _most(users: int, items: int) -> int:
    return int(np.clip(min(users, items) // 3, 1, MOST))


@register("filter")
class SpectralFilter(LowRankComponent):
    """V = eigenvectors times √f."""

    gives_item_vectors = True
    config_type = RidgeConfig

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        most = _most(shape.users, shape.items)
        ranks = [k for k in (8, 16, 32, 64, 128, 256, 512) if k <= most] or [most]
        values = {
            "penalty": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0),
            "rank": tuple(ranks),
            "item_power": (0.25, 0.5, 0.75),
            "user_power": (0.0, 0.5, 1.0),
        }
        start = {"penalty": 300.0, "rank": max(k for k in ranks if k <= max(256, ranks[0]))}
        return SearchSpace(values, start | {"item_power": 0.5, "user_power": 0.5}, 24)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        width = _most(shape.users, shape.items) + SPARE
        sparse = 4 * ROUNDS * 2.5e-10 * shape.interactions * width
        return sparse + 2e-11 * (ROUNDS + 2) * width**2 * (shape.users + shape.items)

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        weighed, fields = weighed_rows(rows, options)
        config = RidgeConfig(**(fields | {"output_power": 0.0}))
        users, items = ridge_weights(weighed, config.user_power, config.item_power)
        key = config.weighting, config.user_power, config.item_power
        scaled_rows = scaled(weighed, np.sqrt(users), items**-0.5)
        spectrum = cache.get("spectrum", key, lambda: leading(scaled_rows, seed))
        config = replace(config, rank=min(config.rank, len(spectrum.values)))
        values = spectrum.values[: config.rank]
        share = values / (values + np.float32(config.penalty))
        V = np.ascontiguousarray(spectrum.vectors[:, : config.rank] * np.sqrt(share))
        diagonal = np.maximum(1 - np.square(V).sum(1), 1e-3) / items
        root = np.asarray(items**-0.5, np.float32)
        return cls(config, {"V": V, "input": root, "output": root}, diagonal.astype(np.float32))

    def with_variant(self, value: float) -> Self:
        config = replace(self.config, output_power=value)
        return self.scaled_output(output_factors(self._diagonal, value), config)

    @classmethod
    def spec(cls, config: RidgeConfig) -> dict[str, ArraySpec]:
        return cls.low_rank_spec(config)


def leading(rows: InteractionRows, seed: int) -> Spectrum:
    """Return the leading eigenpairs of YᵀY by block power iteration on its smaller side."""
    by_column = rows.transposed()
    few_users = len(rows) <= rows.n_columns
    small, large = (rows, by_column) if few_users else (by_column, rows)
    rank = _most(len(rows), rows.n_columns)
    width = min(rank + SPARE, len(small))
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((len(small), width)).astype(np.float32)
    for _ in range(ROUNDS):
        block = _orthonormal(multiply(small, multiply(large, block)))
    projected = multiply(large, block)  # the directions on the larger side
    values, turn = _eigen(projected)
    values, turn = values[::-1][:rank], turn[:, ::-1][:, :rank]
    enough = values > 1e-6 * max(float(values[0]), 1e-30)
    values, turn = values[enough], np.ascontiguousarray(turn[:, enough])
    vectors = _product(projected, turn) / np.sqrt(values) if few_users else _product(block, turn)
    return Spectrum(values, np.ascontiguousarray(vectors))


def _orthonormal(block: ScoreArray) -> ScoreArray:
    """Return a basis of what the columns span, by products alone (twice, for precision)."""
    for _ in range(2):
        values, turn = _eigen(block)
        positive = values > 1e-7 * values[-1]
        block = _product(block, turn[:, positive] / np.sqrt(values[positive]))
    return block


def _eigen(block: ScoreArray) -> tuple[ScoreArray, ScoreArray]:
    """Return eigenvalues, rising, and eigenvectors of blockᵀ block."""
    import torch

    table = torch.from_numpy(block)
    values, turn = torch.linalg.eigh((table.T @ table).double())
    return values.clamp(min=0).float().numpy(), turn.float().numpy()


def _product(first: ScoreArray, second: ScoreArray) -> ScoreArray:
    """Multiply with torch, which uses as many threads as training was told to."""
    import torch

    return (torch.from_numpy(first) @ torch.from_numpy(np.ascontiguousarray(second))).numpy()
