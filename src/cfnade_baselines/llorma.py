"""LLORMA (Lee, Kim, Lebanon and Singer 2013): many low-rank matrices, each true near its anchor.

Anchors are (user, item) pairs drawn from the training ratings. A rating counts for an anchor as
K(d(u, anchor's u)) · K(d(i, anchor's i)), with the Epanechnikov kernel K(d) = ¾ max(0, 1 − (d/h)²)
and d = 2/π · arccos of the cosine between factors of one low-rank fit to everything (the guide).
Predictions are the anchors' products, averaged by these weights (Nadaraya–Watson).

Local: each anchor's factors minimise its weighted squared error alone. Global (`joint_sweeps` > 0):
from there on, the error of the average is minimised over all anchors' factors. Where Lee et al.
descend gradients, both here are alternating least squares, anchor by anchor, and the ridge of a
row grows with the weight of its ratings. Ratings are not centred.

Cells that no anchor reaches get the guide's prediction; users and items without training ratings
(and -1) get the mean rating plus the shrunk offset of the one that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from cfnade._typing import IndexArray
from cfnade.data.csr import stable_order
from cfnade.data.dataset import Axis, Dataset
from cfnade.kernels.threads import run_parallel, thread_count
from cfnade_baselines.base import (
    Count,
    Fitted,
    FloatArray,
    IntArray,
    Positive,
    Rival,
    checked_cells,
)
from cfnade_baselines.choosing import best_by_validation
from cfnade_baselines.factor_model import FactorTables
from cfnade_baselines.llorma_kernels import add_part, average, solve_rows
from cfnade_baselines.means import Means
from cfnade_baselines.row_batches import Floats, Range, equal_work

Pair = tuple[Floats, Floats]  # the same thing of users and of items

_GUIDE_SWEEPS = 15
_SPREAD = 0.1  # of the first item factors, beside a column of ones


# -- alternating least squares ---------------------------------------------------------------


@dataclass
class _Half:
    """The ratings grouped by one side, and what its next regressions aim at."""

    offsets: IntArray
    columns: IndexArray
    order: IntArray | slice  # positions of these ratings in the data
    ranges: list[Range]  # of rows, one a thread
    targets: Floats
    shares: Floats

    @staticmethod
    def of(train: Dataset, side: Axis, threads: int) -> _Half:
        index = train.users if side == "user" else train.items
        rows = train.rows(side)
        order = stable_order(index, len(rows))
        return _Half(
            rows.offsets,
            rows.columns,
            slice(None) if order is None else order,
            equal_work(rows.offsets, threads),
            train.scale.array().astype(np.float32)[rows.levels],
            np.ones(len(train), np.float32),
        )

    def solve(self, kernels: Pair, other: Floats, penalty: float, joint: bool, out: Floats) -> None:
        """Regress this side's factors on the other's."""
        ratings = self.offsets, self.columns, self.targets, self.shares
        rest = (*ratings, *kernels, other, penalty, joint, out)
        run_parallel(solve_rows, [(*part, *rest) for part in self.ranges])

    def add_part(self, kernels: Pair, U: Floats, V: Floats, sign: float) -> None:
        """Put an anchor's part back into the targets, which are residuals, or take it out."""
        rest = (self.offsets, self.columns, self.shares, *kernels, U, V, sign, self.targets)
        run_parallel(add_part, [(*part, *rest) for part in self.ranges])


@dataclass
class _Ratings:
    """The training ratings, ready for alternating least squares."""

    users: _Half
    items: _Half

    def sweep(self, kernels: Pair, factors: Pair, penalty: float, *, joint: bool = False) -> None:
        """Both sides' factors of one anchor, once, in place."""
        (KU, KV), (U, V) = kernels, factors
        if joint:
            self.users.add_part(kernels, U, V, 1.0)
            self._pass_on("targets")
        self.users.solve((KU, KV), V, penalty, joint, U)
        self.items.solve((KV, KU), U, penalty, joint, V)
        if joint:
            self.users.add_part(kernels, U, V, -1.0)

    def reach(self, kernels: Pair) -> Floats:
        """Weights of the ratings, summed over anchors. Returns (n,), in the users' order.

        Kernels become zero for those none of whose ratings an anchor reaches, for it knows nothing
        of them.
        """
        half, total = self.users, np.zeros_like(self.users.shares)
        rows = np.repeat(np.arange(len(half.offsets) - 1), np.diff(half.offsets))
        for KU, KV in zip(*kernels, strict=True):
            weights = KU[rows] * KV[half.columns]
            total += weights
            for K, index in ((KU, rows), (KV, half.columns)):
                K[np.bincount(index, weights, minlength=len(K)) == 0] = 0
        return total

    def join(self, kernels: Pair, factors: Pair, reached: Floats) -> None:
        """From here on targets are residuals of the average, in which an anchor has a share."""
        self.users.shares = np.divide(1, reached, out=np.zeros_like(reached), where=reached > 0)
        self._pass_on("shares")
        for KU, KV, U, V in zip(*kernels, *factors, strict=True):
            self.users.add_part((KU, KV), U, V, -1.0)

    def _pass_on(self, name: str) -> None:
        """Give the items' ratings what the users' have."""
        by_data = np.empty_like(self.users.targets)
        by_data[self.users.order] = getattr(self.users, name)
        setattr(self.items, name, by_data[self.items.order])


def _first_factors(random: np.random.Generator, shape: tuple[int, ...], users: int) -> Pair:
    """Users' zeros and items' noise beside a column of ones, as ratings are far from zero."""
    V = random.normal(0.0, _SPREAD, shape).astype(np.float32)  # (…, M, k)
    V[..., 0] = 1.0
    return np.zeros((*shape[:-2], users, shape[-1]), np.float32), V


def _kernel(factors: Floats, anchors: IndexArray, bandwidth: float) -> Floats:
    """Epanechnikov weights of everyone around each anchor. Returns (q, N)."""
    norms = np.linalg.norm(factors, axis=1, keepdims=True)
    unit = np.divide(factors, norms, out=np.zeros_like(factors), where=norms > 0)
    distances = 2 / np.pi * np.arccos(np.clip(unit[anchors] @ unit.T, -1, 1))  # (q, N)
    weights: Floats = np.float32(0.75) * np.maximum(1 - np.square(distances / bandwidth), 0)
    return weights.astype(np.float32, copy=False)


# -- the model -------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedLLORMA(Fitted):
    """Local low-rank matrices, their weights around anchors, and what answers elsewhere."""

    guide: Pair  # (N, g), (M, g)
    kernels: Pair  # (q, N), (q, M)
    factors: Pair  # (q, N, k), (q, M, k)
    means: FactorTables

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Averages of the anchors' products, clipped to the scale. Returns (n,)."""
        U, V = self.guide
        rows, columns = checked_cells(users, items, len(U), len(V))
        # Whoever has no rating has no factors either, in the guide or anywhere.
        seen = np.any(U, axis=1)[rows] & np.any(V, axis=1)[columns]
        both = (rows >= 0) & (columns >= 0) & seen
        out = self.means.predict(rows, columns)
        rows, columns = rows[both], columns[both]
        averages = np.empty((2, len(rows)))
        average(rows, columns, *self.kernels, *self.factors, averages)
        guided = np.einsum("nk,nk->n", U[rows], V[columns], dtype=np.float64)
        stars = np.where(averages[1] > 0, averages[0], guided)
        out[both] = np.clip(stars, self.means.low, self.means.high)
        return out


@dataclass(frozen=True, kw_only=True)
class LLORMA(Rival[FittedLLORMA]):
    """How many local models, how local, and how they are fitted."""

    name: ClassVar[str] = "llorma"

    anchors: Count = 50
    """Local models."""
    rank: Count = 20
    """Factors of each."""
    bandwidth: Positive = 0.8
    """The distance h at which weights reach zero; 1 is a right angle."""
    penalty: Positive = 0.04
    """Ridge on the factors, per unit of weight that a row's ratings have."""
    sweeps: Count = 8
    """Alternations of the local fits at most; fewer if validation stops improving."""
    joint_sweeps: Annotated[int, Ge(0)] = 0
    """Alternations that minimise the error of the average: 0 is LLORMA-Local, more -Global."""
    joint_penalty: Positive = 0.04
    """Ridge in the joint alternations."""
    guide_rank: Count = 10
    """Factors of the fit that distances are measured in."""
    guide_penalty: Positive = 0.05
    """Ridge of that fit."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedLLORMA:
        """Guide, anchors, local sweeps, joint sweeps; validation says which sweep to keep."""
        means, random = Means().fit(train, valid), np.random.default_rng(seed)
        count = thread_count(threads)
        ratings = _Ratings(_Half.of(train, "user", count), _Half.of(train, "item", count))
        guide = self._guide(train, ratings, random)
        anchors = random.choice(len(train), self.anchors, replace=self.anchors > len(train))
        kernels = (
            _kernel(guide[0], train.users[anchors], self.bandwidth),
            _kernel(guide[1], train.items[anchors], self.bandwidth),
        )
        reached = ratings.reach(kernels)
        shape = self.anchors, train.n_items, self.rank
        start = FittedLLORMA(guide, kernels, _first_factors(random, shape, train.n_users), means)
        local = _best(_sweeps(ratings, start, self.sweeps, self.penalty, joint=False), valid)
        if self.joint_sweeps == 0:
            return local
        ratings.join(kernels, local.factors, reached)
        sweeps = _sweeps(ratings, local, self.joint_sweeps, self.joint_penalty, joint=True)
        return _best(sweeps, valid)

    def _guide(self, train: Dataset, ratings: _Ratings, random: np.random.Generator) -> Pair:
        """The low-rank fit to everything."""
        guide = _first_factors(random, (train.n_items, self.guide_rank), train.n_users)
        alike = np.ones(train.n_users, np.float32), np.ones(train.n_items, np.float32)
        for _ in range(_GUIDE_SWEEPS):
            ratings.sweep(alike, guide, self.guide_penalty)
        return guide


def _sweeps(
    ratings: _Ratings, start: FittedLLORMA, sweeps: int, penalty: float, *, joint: bool
) -> Iterator[FittedLLORMA]:
    """What is fitted after each sweep over the anchors; `start` has the factors before them."""
    factors = start.factors[0].copy(), start.factors[1].copy()
    for _ in range(sweeps):
        for KU, KV, U, V in zip(*start.kernels, *factors, strict=True):
            ratings.sweep((KU, KV), (U, V), penalty, joint=joint)
        yield replace(start, factors=(factors[0].copy(), factors[1].copy()))


def _best(sweeps: Iterator[FittedLLORMA], valid: Dataset) -> FittedLLORMA:
    return best_by_validation(sweeps, valid, cure="raise the penalties", until_worse=True)
