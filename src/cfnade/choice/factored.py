"""The factored path: each person a point in D dimensions, found exactly from what they picked.

Implicit ALS (Hu et al. 2008), in the form of Rendle et al. (2022). Item i has a vector f_i, and a
person x with picks S minimises

    Σ_{i∈S} w_i (1 - x·f_i)²  +  α Σ_i (x·f_i)²  +  ρ (n_S + α M) |x|²

so that x = (α FᵀF + Σ_S w_i f_i f_iᵀ + ρ (n_S + α M) I)⁻¹ Σ_S w_i f_i: the mean of a Gaussian
posterior in which every item that was not picked is a weak sign of not liking it. Items and people
take turns. People are answered by one solve, known and new ones alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from cfnade.choice.choice_side import ChoiceSide, ScoreArray
from cfnade.choice.picks import Picks
from cfnade.data.ratings import IntArray
from cfnade.errors import ModelError
from cfnade.kernels.ragged_sums import transposed
from cfnade.kernels.threads import one_torch_thread, run, thread_count
from cfnade.options import check_fields, number, whole

_ENTRIES = 1 << 22
"""So many numbers of vectors are gathered at once."""
_ROWS = 4096  # and of so many rows, at most
_FEW = 16  # rows that one thread solves alone


@dataclass(frozen=True, kw_only=True)
class PosteriorConfig:
    """The fields that fix a factored path."""

    columns: Annotated[int, whole(1)]
    factors: Annotated[int, whole(1)]
    """D."""
    unpicked: Annotated[float, number(above=0)] = 0.1
    """α: what an item that was not picked counts."""
    penalty: Annotated[float, number(above=0)] = 0.01
    """ρ."""

    def __post_init__(self) -> None:
        check_fields(self, ModelError)


class Posterior(ChoiceSide):
    """Vectors F of items (M, D)."""

    def __init__(self, config: PosteriorConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config, self._F = config, tensors["F"]

    @classmethod
    def fit(
        cls, picks: Picks, config: PosteriorConfig, *, sweeps: int, people: int, seed: int
    ) -> Posterior:
        """Alternate so often, on at most so many people: vectors of items need no more."""
        rng = np.random.default_rng(seed)
        if len(picks) > people:
            picks = picks.take(np.sort(rng.permutation(len(picks))[:people]))
        M, D = config.columns, config.factors
        turned = _turned(picks)
        start = rng.standard_normal((M, D)) * 0.1 / np.sqrt(D)
        F = torch.from_numpy(start.astype(np.float32))
        for _ in range(sweeps):
            X = solve(picks, F, config)
            F = solve(turned, X, config)
        return cls(config, {"F": F})

    def scores(self, known: Picks) -> ScoreArray:
        return (solve(known, self._F, self.config) @ self._F.T).numpy()

    def vectors(self) -> ScoreArray | None:
        return self._F.numpy()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self.config)

    def tensors(self) -> dict[str, Tensor]:
        return {"F": self._F}

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = PosteriorConfig(**fields)
        return {"F": (config.columns, config.factors)}

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Posterior:
        return cls(PosteriorConfig(**fields), tensors)

    @property
    def n_items(self) -> int:
        return self.config.columns


def solve(rows: Picks, F: Tensor, config: PosteriorConfig) -> Tensor:
    """The vector of each row, given those of its columns. Returns (rows, D)."""
    D = F.shape[1]
    everyone = config.unpicked * (F.T @ F)
    F = torch.cat([F, F.new_zeros(1, D)])  # the last one fills rows up to the same length
    out = F.new_zeros(len(rows), D)
    order = np.flatnonzero(rows.counts)
    order = order[np.argsort(rows.counts[order], kind="stable")]
    threads = thread_count(None) if len(order) > _FEW else 1
    # Many small systems: threads with rows of their own wait for nobody.
    shares = [order[thread::threads] for thread in range(threads)]
    with one_torch_thread() if threads > 1 else nullcontext():
        run(_solve, [(rows, mine, F, everyone, config, out) for mine in shares])
    return out


def _solve(
    rows: Picks, order: IntArray, F: Tensor, everyone: Tensor, config: PosteriorConfig, out: Tensor
) -> None:
    """The vectors of the rows of these numbers, which are ordered by length."""
    M, D = len(F) - 1, F.shape[1]
    for mine, columns, weights in _padded(rows, order, D):
        f = F[columns]  # (b, c, D)
        weighed = f * weights.unsqueeze(2)
        precision = torch.baddbmm(everyone, f.transpose(1, 2), weighed)
        ridge = config.penalty * (weights.sum(1) + config.unpicked * M)
        precision.diagonal(dim1=1, dim2=2).add_(ridge.unsqueeze(1))
        factor = torch.linalg.cholesky(precision)
        out[mine] = torch.cholesky_solve(weighed.sum(1).unsqueeze(2), factor).squeeze(2)


def _padded(rows: Picks, order: IntArray, D: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows of about one length together: their numbers, columns (b, c) and weights (b, c)."""
    counts, M, first = rows.counts, rows.n_columns, 0
    while first < len(order):
        each = D * (counts[order[first : first + _ROWS]] + D)  # of a row, if it were the longest
        fits = each * np.arange(1, len(each) + 1) <= _ENTRIES
        count = max(1, int(fits.argmin() if not fits.all() else len(fits)))
        mine = order[first : first + count]
        some = rows.take(mine)
        length = int(counts[mine].max())
        filled = np.arange(length) < some.counts[:, None]
        columns, weights = np.full(filled.shape, M), np.zeros(filled.shape, np.float32)
        columns[filled], weights[filled] = some.columns, some.weights
        yield torch.from_numpy(mine), torch.from_numpy(columns), torch.from_numpy(weights)
        first += count


def _turned(picks: Picks) -> Picks:
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
