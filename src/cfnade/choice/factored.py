"""The factored path: each person a point in D dimensions, found exactly from what they picked.

Implicit ALS (Hu et al. 2008), in the form of Rendle et al. (2022). Item i has a vector f_i, and a
person x with picks S minimises

    Σ_{i∈S} w_i (1 - x·f_i)²  +  α Σ_i (x·f_i)²  +  ρ (n_S + α M) |x|²

so that x = (α FᵀF + Σ_S w_i f_i f_iᵀ + ρ (n_S + α M) I)⁻¹ Σ_S w_i f_i: the mean of a Gaussian
posterior in which every item that was not picked is a weak sign of not liking it. Items and people
take turns. People are answered by one solve, known and new ones alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt

from cfnade._typing import IntArray
from cfnade.choice.choice_side import FEW, ChoiceSide, ScoreArray, Tables
from cfnade.choice.picks import Picks
from cfnade.exceptions import ModelError
from cfnade.kernels.conjugate import solve_rows
from cfnade.kernels.ragged_sums import transposed
from cfnade.kernels.request import affine
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.validation import options

FloatArray = npt.NDArray[np.float64]


@options(ModelError)
class PosteriorConfig:
    """The fields that fix a factored path."""

    columns: Annotated[int, Ge(1)]
    factors: Annotated[int, Ge(1)]
    """D."""
    unpicked: Annotated[float, Gt(0)] = 0.1
    """α: what an item that was not picked counts."""
    penalty: Annotated[float, Gt(0)] = 0.01
    """ρ."""


class Posterior(ChoiceSide):
    """Vectors F of items (M, D)."""

    def __init__(self, config: PosteriorConfig, tables: Tables) -> None:
        self.config, self._F = config, tables["F"]

    @classmethod
    def fit(
        cls, picks: Picks, config: PosteriorConfig, *, sweeps: int, people: int, seed: int
    ) -> Posterior:
        """Alternate so often, on at most so many people: vectors of items need no more."""
        rng = np.random.default_rng(seed)
        if len(picks) > people:
            picks = picks.take(np.sort(rng.permutation(len(picks))[:people]))
        M, D = config.columns, config.factors
        by_item = _by_item(picks)
        start = rng.standard_normal((M, D)) * 0.1 / np.sqrt(D)
        F = start.astype(np.float32)
        for _ in range(sweeps):
            X = solve(picks, turned(F), config)
            F = solve(by_item, turned(X), config)
        return cls(config, {"F": F})

    def scores(self, known: Picks) -> ScoreArray:
        total = np.zeros((len(known), self.n_items), np.float32)
        self.add_scores(total, 1.0, known)
        return total

    def add_scores(self, total: ScoreArray, weight: float, known: Picks) -> None:
        X, F = solve(known, self._turned, self.config), self._turned.F
        if len(known) <= FEW:
            total += affine(np.float32(weight) * X, F, np.zeros(len(F), np.float32))
            return
        from cfnade.kernels.products import add_product

        add_product(total, X, F, weight)

    def scores_without(self, known: Picks, places: IntArray) -> ScoreArray:
        """By the inverse of the whole matrix: it lacks a rank-one term and a part of the ridge."""
        F = self._turned.F.astype(np.float64)
        f, w = F[known.columns], known.weights.astype(np.float64)
        base = self.config.unpicked * self._turned.lengths
        ridge = self.config.penalty * (w.sum() + self.config.unpicked * len(F))
        values, basis = np.linalg.eigh((f.T * w) @ f + np.diag(base + ridge))
        f, w = f[places] @ basis, w[places, None]
        total = (known.weights @ F[known.columns]) @ basis
        inverse = 1 / (values - self.config.penalty * w)
        q = f * inverse
        x = (total - w * f) * inverse
        x += w * q * (f * x).sum(1, keepdims=True) / (1 - w * (f * q).sum(1, keepdims=True))
        x *= len(known.columns) > 1  # of a lone one nothing is left
        return np.asarray((x @ basis.T).astype(np.float32) @ self._turned.F.T)

    @locked_cached_property
    def _turned(self) -> Turned:
        return turned(self._F)

    def vectors(self) -> ScoreArray | None:
        return self._F

    def to_dict(self) -> dict[str, Any]:
        return asdict(self.config)

    def tables(self) -> Tables:
        return {"F": self._F}

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = PosteriorConfig(**fields)
        return {"F": (config.columns, config.factors)}

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], tables: Tables) -> Posterior:
        return cls(PosteriorConfig(**fields), tables)

    @property
    def n_items(self) -> int:
        return self.config.columns


class Turned(NamedTuple):
    """Vectors in the directions in which FᵀF is diagonal: scores are the same in any directions."""

    F: ScoreArray  # (M, D)
    lengths: FloatArray  # (D,) the diagonal of FᵀF


def turned(F: ScoreArray) -> Turned:
    """The same vectors, turned."""
    exact = F.astype(np.float64)
    lengths, directions = np.linalg.eigh(exact.T @ exact)
    return Turned((exact @ directions).astype(np.float32), np.maximum(lengths, 0.0))


def solve(rows: Picks, others: Turned, config: PosteriorConfig) -> ScoreArray:
    """The vector of each row in these directions, given those of its columns. (rows, D)."""
    counts = np.bincount(rows.rows, rows.weights, minlength=len(rows))
    ridges = config.penalty * (counts + config.unpicked * len(others.F))
    data = rows.offsets, rows.columns, rows.weights, others.F
    base = config.unpicked * others.lengths
    return np.asarray(solve_rows(*data, base, ridges))


def _by_item(picks: Picks) -> Picks:
    """Who picked each item."""
    offsets, rows, weights = transposed(picks.rows, picks.columns, picks.weights, picks.n_columns)
    return replace(
        picks,
        offsets=offsets,
        columns=rows,
        levels=np.zeros(len(rows), np.uint8),
        weights=weights,
        n_columns=len(picks),
    )
