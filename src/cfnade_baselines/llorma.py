"""LLORMA (Lee, Kim, Lebanon and Singer 2013): local low-rank matrices around anchors.

Anchors are (user, item) pairs sampled from the training ratings. The weight of a rating for an
anchor is K(d(u, anchor's u)) · K(d(i, anchor's i)), with the Epanechnikov kernel
K(d) = ¾ max(0, 1 − (d/h)²) and d = 2/π · arccos of the cosine between factors of one global
low-rank fit (the guide). Predictions are the anchors' products, averaged by these weights
(Nadaraya–Watson).

Local: each anchor's factors minimize its weighted squared error alone. Global (`joint_sweeps` > 0):
starting from these, the error of the average is minimized over all anchors' factors. Where Lee et
al. use gradient descent, both are alternating least squares here, anchor by anchor, and the ridge
of a row grows with the weight of its ratings. Ratings are not centered.

Pairs with weight 0 for every anchor get the guide's prediction; users and items without training
ratings (and -1) get the mean rating plus the shrunken offset of the one that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge
from numba import njit

from cfnade._typing import IndexArray
from cfnade.data.csr import stable_order
from cfnade.data.dataset import Axis, Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.threads import thread_count
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    Count,
    FloatArray,
    IntArray,
    Positive,
    RatingPredictor,
    check_pairs,
    select_by_validation,
)
from cfnade_baselines.factor_model import Means
from cfnade_baselines.row_model import FAST_MATH, Floats, Range, equal_work, run_on_ranges

Pair = tuple[Floats, Floats]  # of users, of items

_GUIDE_SWEEPS = 15
_INIT_STD = 0.1  # of the initial item factors, beside a column of ones


# -- alternating least squares ---------------------------------------------------------------


@dataclass
class _SideRatings:
    """The ratings grouped by one side, with the targets of its next regressions."""

    offsets: IntArray
    columns: IndexArray
    order: IntArray | slice  # positions of these ratings in the data set
    ranges: list[Range]  # of rows, one per thread
    targets: Floats
    scales: Floats

    @staticmethod
    def group(train: Dataset, side: Axis, n_threads: int) -> _SideRatings:
        index = train.users if side == "user" else train.items
        rows = train.rows(side)
        order = stable_order(index, len(rows))
        return _SideRatings(
            rows.offsets,
            rows.columns,
            slice(None) if order is None else order,
            equal_work(rows.offsets, n_threads),
            train.scale.array().astype(np.float32)[rows.levels],
            np.ones(len(train), np.float32),
        )

    def solve(self, kernels: Pair, other: Floats, penalty: float, joint: bool, out: Floats) -> None:
        """Regress this side's factors on the other's."""
        ratings = self.offsets, self.columns, self.targets, self.scales
        arrays = (*ratings, *kernels, other, penalty, joint, out)
        run_on_ranges(_solve_rows, self.ranges, *arrays)

    def add_part(self, kernels: Pair, U: Floats, V: Floats, sign: float) -> None:
        """Add an anchor's part of the average to the targets (residuals), or subtract it."""
        arrays = (self.offsets, self.columns, self.scales, *kernels, U, V, sign, self.targets)
        run_on_ranges(_add_part, self.ranges, *arrays)


@dataclass
class _Ratings:
    """The training ratings, ready for alternating least squares."""

    users: _SideRatings
    items: _SideRatings

    def sweep(self, kernels: Pair, factors: Pair, penalty: float, *, joint: bool = False) -> None:
        """Update both sides' factors of one anchor in place."""
        (KU, KV), (U, V) = kernels, factors
        if joint:
            self.users.add_part(kernels, U, V, 1.0)
            self._copy_to_items("targets")
        self.users.solve((KU, KV), V, penalty, joint, U)
        self.items.solve((KV, KU), U, penalty, joint, V)
        if joint:
            self.users.add_part(kernels, U, V, -1.0)

    def total_weights(self, kernels: Pair) -> Floats:
        """Return weights of the ratings summed over anchors, (n,), in the users' order.

        Kernels are set to zero where all ratings of a user or item have weight 0 for an anchor,
        which learns nothing about them.
        """
        half, total = self.users, np.zeros_like(self.users.scales)
        rows = np.repeat(np.arange(len(half.offsets) - 1), np.diff(half.offsets))
        for KU, KV in zip(*kernels, strict=True):
            weights = KU[rows] * KV[half.columns]
            total += weights
            for K, index in ((KU, rows), (KV, half.columns)):
                K[np.bincount(index, weights, minlength=len(K)) == 0] = 0
        return total

    def start_joint(self, kernels: Pair, factors: Pair, weights: Floats) -> None:
        """Make the targets residuals of the weighted average of the anchors."""
        self.users.scales = np.divide(1, weights, out=np.zeros_like(weights), where=weights > 0)
        self._copy_to_items("scales")
        for KU, KV, U, V in zip(*kernels, *factors, strict=True):
            self.users.add_part((KU, KV), U, V, -1.0)

    def _copy_to_items(self, name: str) -> None:
        """Copy a field from the users' order of the ratings to the items'."""
        in_order = np.empty_like(self.users.targets)
        in_order[self.users.order] = getattr(self.users, name)
        setattr(self.items, name, in_order[self.items.order])


def _initial_factors(rng: np.random.Generator, shape: tuple[int, ...], users: int) -> Pair:
    """Return zeros for users, and for items noise beside a column of ones (for the mean)."""
    V = rng.normal(0.0, _INIT_STD, shape).astype(np.float32)  # (…, M, k)
    V[..., 0] = 1.0
    return np.zeros((*shape[:-2], users, shape[-1]), np.float32), V


def _kernel(factors: Floats, anchors: IndexArray, bandwidth: float) -> Floats:
    """Return the Epanechnikov weights of all rows around each anchor, (q, N)."""
    norms = np.linalg.norm(factors, axis=1, keepdims=True)
    unit = np.divide(factors, norms, out=np.zeros_like(factors), where=norms > 0)
    distances = 2 / np.pi * np.arccos(np.clip(unit[anchors] @ unit.T, -1, 1))  # (q, N)
    weights: Floats = np.float32(0.75) * np.maximum(1 - np.square(distances / bandwidth), 0)
    return weights.astype(np.float32, copy=False)


# -- the model -------------------------------------------------------------------------------------


@options(ModelError)
class LLORMA(RatingPredictor):
    """Local low-rank models and how they are fitted."""

    name: ClassVar[str] = "llorma"

    anchors: Count = 50
    """Number of local models."""
    rank: Count = 20
    """Factors of each."""
    bandwidth: Positive = 0.8
    """Distance h at which weights reach zero; 1 is a right angle."""
    penalty: Positive = 0.04
    """Ridge on the factors, per unit of weight of a row's ratings."""
    sweeps: Count = 8
    """Maximal number of alternations of the local fits; early stopping may end them."""
    joint_sweeps: Annotated[int, Ge(0)] = 0
    """Alternations that minimize the error of the average; 0 is LLORMA-Local, more -Global."""
    joint_penalty: Positive = 0.04
    """Ridge in the joint alternations."""
    guide_rank: Count = 10
    """Factors of the global fit that defines distances."""
    guide_penalty: Positive = 0.05
    """Ridge of the global fit."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Fit guide, local sweeps and joint sweeps; `valid` chooses the sweep."""
        rng, count = np.random.default_rng(seed), thread_count(n_threads)
        sides = _SideRatings.group(train, "user", count), _SideRatings.group(train, "item", count)
        ratings = _Ratings(*sides)
        guide = self._fit_guide(train, ratings, rng)
        anchors = rng.choice(len(train), self.anchors, replace=self.anchors > len(train))
        kernels = (
            _kernel(guide[0], train.users[anchors], self.bandwidth),
            _kernel(guide[1], train.items[anchors], self.bandwidth),
        )
        weights = ratings.total_weights(kernels)
        shape = self.anchors, train.n_items, self.rank
        factors = _initial_factors(rng, shape, train.n_users)
        # (N, g), (M, g); (q, N), (q, M); (q, N, k), (q, M, k)
        self._set(guide_=guide, kernels_=kernels, factors_=factors)
        self._set(means_=Means().fit(train, valid))
        self._select(self._sweep(ratings, self.sweeps, self.penalty, joint=False), valid)
        if self.joint_sweeps > 0:
            ratings.start_joint(kernels, self.factors_, weights)
            sweeps = self._sweep(ratings, self.joint_sweeps, self.joint_penalty, joint=True)
            self._select(sweeps, valid)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return averages of the anchors' products, clipped to the scale. (n,)."""
        U, V = self.guide_
        rows, columns = check_pairs(users, items, len(U), len(V))
        # Users and items without ratings have zero factors in the guide.
        is_rated = np.any(U, axis=1)[rows] & np.any(V, axis=1)[columns]
        is_known = (rows >= 0) & (columns >= 0) & is_rated
        out: FloatArray = self.means_.predict(rows, columns)
        rows, columns = rows[is_known], columns[is_known]
        averages = np.empty((2, len(rows)))
        arrays = (*self.kernels_, *self.factors_, averages)
        _average(rows, columns, *arrays)
        fallback = np.einsum("nk,nk->n", U[rows], V[columns], dtype=np.float64)
        ratings = np.where(averages[1] > 0, averages[0], fallback)
        out[is_known] = np.clip(ratings, *self.means_.range_)
        return out

    def _fit_guide(self, train: Dataset, ratings: _Ratings, rng: np.random.Generator) -> Pair:
        """Fit a low-rank model to all ratings with equal weights."""
        guide = _initial_factors(rng, (train.n_items, self.guide_rank), train.n_users)
        ones = np.ones(train.n_users, np.float32), np.ones(train.n_items, np.float32)
        for _ in range(_GUIDE_SWEEPS):
            ratings.sweep(ones, guide, self.guide_penalty)
        return guide

    def _sweep(
        self, ratings: _Ratings, sweeps: int, penalty: float, *, joint: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the factors after each sweep over the anchors."""
        kernels, factors = self.kernels_, (self.factors_[0].copy(), self.factors_[1].copy())
        for _ in range(sweeps):
            for KU, KV, U, V in zip(*kernels, *factors, strict=True):
                ratings.sweep((KU, KV), (U, V), penalty, joint=joint)
            yield {"factors_": (factors[0].copy(), factors[1].copy())}

    def _select(self, sweeps: Iterator[dict[str, Any]], valid: Dataset) -> None:
        select_by_validation(self, sweeps, valid, remedy="raise the penalties", until_worse=True)


# -- compiled loops over rows [first, last), which threads share -----------------------------------


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _solve_rows(
    first: int,
    last: int,
    offsets: Any,
    columns: Any,
    targets: Any,
    scales: Any,
    row_kernel: Any,
    column_kernel: Any,
    other: Any,
    penalty: float,
    joint: bool,
    out: Any,
) -> None:
    """Solve ridge regressions of rows on the other side's factors.

    With s = row_kernel · column_kernel · scale of a rating: minimize Σ s (t − uv)² (local) or
    Σ (t − s uv)² (joint), plus penalty · Σ s · |u|².
    """
    k = other.shape[1]
    longest = 0
    for row in range(first, last):
        longest = max(longest, offsets[row + 1] - offsets[row])
    X = np.empty((k, longest), np.float32)  # the factors of a row's columns, side by side
    weighted, weights, pulls = np.empty((3, longest), np.float32)
    A, y = np.empty((k, k)), np.empty(k)
    for row in range(first, last):
        start, n, total = offsets[row], offsets[row + 1] - offsets[row], 0.0
        for j in range(n):
            column = columns[start + j]
            s = row_kernel[row] * column_kernel[column] * scales[start + j]
            total += s
            weights[j] = s * s if joint else s
            pulls[j] = s * targets[start + j]
            for a in range(k):
                X[a, j] = other[column, a]
        if total <= 0.0:
            out[row] = 0.0
            continue
        for a in range(k):
            pull = np.float32(0.0)
            for j in range(n):
                weighted[j] = weights[j] * X[a, j]
                pull += pulls[j] * X[a, j]
            y[a] = pull
            for b in range(a + 1):
                product = np.float32(0.0)
                for j in range(n):
                    product += weighted[j] * X[b, j]
                A[a, b] = product
            A[a, a] += penalty * total
        _cholesky_solve(A, y)
        for a in range(k):
            out[row, a] = y[a]


@njit(nogil=True, cache=True)
def _cholesky_solve(A: Any, y: Any) -> None:
    """Replace y by the solution of A x = y, by Cholesky; overwrites A's lower triangle."""
    k = len(y)
    for a in range(k):
        for b in range(a + 1):
            value = A[a, b]
            for c in range(b):
                value -= A[a, c] * A[b, c]
            A[a, b] = np.sqrt(value) if a == b else value / A[b, b]
        value = y[a]
        for c in range(a):
            value -= A[a, c] * y[c]
        y[a] = value / A[a, a]
    for a in range(k - 1, -1, -1):
        value = y[a]
        for c in range(a + 1, k):
            value -= A[c, a] * y[c]
        y[a] = value / A[a, a]


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _add_part(
    first: int,
    last: int,
    offsets: Any,
    columns: Any,
    scales: Any,
    row_kernel: Any,
    column_kernel: Any,
    U: Any,
    V: Any,
    sign: float,
    residuals: Any,
) -> None:
    """Add one anchor's part of the average to the residuals, or (sign -1) subtract it."""
    for row in range(first, last):
        for j in range(offsets[row], offsets[row + 1]):
            product = np.float32(0.0)
            for a in range(U.shape[1]):
                product += U[row, a] * V[columns[j], a]
            s = row_kernel[row] * column_kernel[columns[j]] * scales[j]
            residuals[j] += np.float32(sign) * s * product


@njit(nogil=True, cache=True, fastmath=FAST_MATH)
def _average(users: Any, items: Any, KU: Any, KV: Any, U: Any, V: Any, out: Any) -> None:
    """Fill out (2, n) with averages of the anchors' products and their total weights."""
    for j in range(len(users)):
        u, i = users[j], items[j]
        total, weight = 0.0, 0.0
        for t in range(len(U)):
            w = KU[t, u] * KV[t, i]
            product = np.float32(0.0)
            for a in range(U.shape[2]):
                product += U[t, u, a] * V[t, i, a]
            total += w * product
            weight += w
        out[0, j] = total / weight if weight > 0.0 else 0.0
        out[1, j] = weight
