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

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import IndexArray, Ratings, Side, stable_order
from cfnade.kernels.threads import run, thread_count
from cfnade.rivals.interface import (
    Arrays,
    FloatArray,
    IntArray,
    checked_cells,
    require_fitted,
    take,
)
from cfnade.rivals.llorma_kernels import add_part, average, solve_rows
from cfnade.rivals.means import Means
from cfnade.rivals.options import positive, whole

Floats = npt.NDArray[np.float32]
Pair = tuple[Floats, Floats]  # the same thing of users and of items

_GUIDE_SWEEPS = 15
_SPREAD = 0.1  # of the first item factors, beside a column of ones


@dataclass(frozen=True, kw_only=True)
class LLORMAOptions:
    """How many local models, how local, and how they are fitted."""

    anchors: int = 50
    """Local models."""
    rank: int = 20
    """Factors of each."""
    bandwidth: float = 0.8
    """The distance h at which weights reach zero; 1 is a right angle."""
    penalty: float = 0.04
    """Ridge on the factors, per unit of weight that a row's ratings have."""
    sweeps: int = 8
    """Alternations of the local fits at most; fewer if validation stops improving."""
    joint_sweeps: int = 0
    """Alternations that minimise the error of the average: 0 is LLORMA-Local, more -Global."""
    joint_penalty: float = 0.04
    """Ridge in the joint alternations."""
    guide_rank: int = 10
    """Factors of the fit that distances are measured in."""
    guide_penalty: float = 0.05
    """Ridge of that fit."""

    def __post_init__(self) -> None:
        whole(self, 1, "anchors", "rank", "sweeps", "guide_rank")
        whole(self, 0, "joint_sweeps")
        positive(self, "bandwidth", "penalty", "joint_penalty", "guide_penalty")


# -- fitting ---------------------------------------------------------------------------------


@dataclass
class _Half:
    """The ratings grouped by one side, and what its next regressions aim at."""

    offsets: IntArray
    columns: IndexArray
    order: IntArray | slice  # positions of these ratings in the data
    ranges: list[tuple[int, int]]  # of rows, one a thread, with about as many ratings each
    targets: Floats
    shares: Floats

    @staticmethod
    def of(train: Ratings, side: Side, threads: int) -> _Half:
        index, count = {
            "user": (train.users, train.n_users),
            "item": (train.items, train.n_items),
        }[side]
        order, rows = stable_order(index, count), train.rows(side)
        bounds = np.linspace(0, len(train), threads + 1)[1:-1]
        cuts = [0, *np.searchsorted(rows.offsets, bounds).tolist(), count]
        return _Half(
            rows.offsets,
            rows.columns,
            slice(None) if order is None else order,
            list(pairwise(cuts)),
            train.scale.array().astype(np.float32)[rows.levels],
            np.ones(len(train), np.float32),
        )

    def solve(self, kernels: Pair, other: Floats, penalty: float, joint: bool, out: Floats) -> None:
        """Regress this side's factors on the other's."""
        ratings = self.offsets, self.columns, self.targets, self.shares
        rest = (*ratings, *kernels, other, penalty, joint, out)
        run(solve_rows, [(*part, *rest) for part in self.ranges])

    def add_part(self, kernels: Pair, U: Floats, V: Floats, sign: float) -> None:
        """Put an anchor's part back into the targets, which are residuals, or take it out."""
        rest = (self.offsets, self.columns, self.shares, *kernels, U, V, sign, self.targets)
        run(add_part, [(*part, *rest) for part in self.ranges])


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


class LLORMA:
    """Local low-rank matrices around anchors."""

    name: ClassVar[str] = "llorma"

    def __init__(self, **options: Any) -> None:
        self.options = LLORMAOptions(**options)
        self._means = Means()
        self._learnt: Arrays = {}

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Guide, anchors, local sweeps, joint sweeps; validation says which sweep to keep."""
        o, random = self.options, np.random.default_rng(seed)
        self._means.fit(train, valid)
        count = thread_count(threads)
        ratings = _Ratings(_Half.of(train, "user", count), _Half.of(train, "item", count))
        guide = _first_factors(random, (train.n_items, o.guide_rank), train.n_users)
        alike = np.ones(train.n_users, np.float32), np.ones(train.n_items, np.float32)
        for _ in range(_GUIDE_SWEEPS):
            ratings.sweep(alike, guide, o.guide_penalty)
        anchors = random.choice(len(train), o.anchors, replace=o.anchors > len(train))
        kernels = (
            _kernel(guide[0], train.users[anchors], o.bandwidth),
            _kernel(guide[1], train.items[anchors], o.bandwidth),
        )
        reached = ratings.reach(kernels)
        shape = o.anchors, train.n_items, o.rank
        factors = _first_factors(random, shape, train.n_users)
        self._learnt = {
            "guide_users": guide[0],
            "guide_items": guide[1],
            "user_kernel": kernels[0],
            "item_kernel": kernels[1],
        }
        self._sweeps(ratings, kernels, factors, valid, joint=False)
        if o.joint_sweeps > 0:
            factors = self._learnt["user_factors"], self._learnt["item_factors"]
            ratings.join(kernels, factors, reached)
            self._sweeps(ratings, kernels, factors, valid, joint=True)

    def _sweeps(
        self, ratings: _Ratings, kernels: Pair, factors: Pair, valid: Ratings, *, joint: bool
    ) -> None:
        """Sweep over the anchors until validation errors grow; keep the factors before that."""
        o, best = self.options, np.inf
        for _ in range(o.joint_sweeps if joint else o.sweeps):
            before = self._learnt
            for KU, KV, U, V in zip(*kernels, *factors, strict=True):
                penalty = o.joint_penalty if joint else o.penalty
                ratings.sweep((KU, KV), (U, V), penalty, joint=joint)
            now = {"user_factors": factors[0].copy(), "item_factors": factors[1].copy()}
            self._learnt = before | now
            error = float(np.square(self.predict(valid.users, valid.items) - valid.values).sum())
            if error > best:
                self._learnt = before
                return
            best = error

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Averages of the anchors' products, clipped to the scale. Returns (n,)."""
        require_fitted("user_factors" in self._learnt, self.name)
        learnt = self._learnt
        U, V = learnt["guide_users"], learnt["guide_items"]
        rows, columns = checked_cells(users, items, len(U), len(V))
        # Whoever has no rating has no factors either, in the guide or anywhere.
        seen = np.any(U, axis=1)[rows] & np.any(V, axis=1)[columns]
        known = (rows >= 0) & (columns >= 0) & seen
        out = self._means.predict(rows, columns)
        rows, columns = rows[known], columns[known]
        kernels = learnt["user_kernel"], learnt["item_kernel"]
        factors = learnt["user_factors"], learnt["item_factors"]
        averages = np.empty((2, len(rows)))
        average(rows, columns, *kernels, *factors, averages)
        guided = np.einsum("nk,nk->n", U[rows], V[columns], dtype=np.float64)
        scale = self._means.arrays()["scale"]
        out[known] = np.clip(np.where(averages[1] > 0, averages[0], guided), scale[0], scale[-1])
        return out

    def probabilities(self, users: IntArray, items: IntArray) -> None:
        """Low-rank matrices have no distribution."""

    def arrays(self) -> Arrays:
        """Guide, kernels, factors, and the means for those who have none."""
        require_fitted("user_factors" in self._learnt, self.name)
        means = {f"means_{name}": array for name, array in self._means.arrays().items()}
        return self._learnt | means

    def restore(self, arrays: Arrays) -> None:
        """Take them back."""
        o, prefix = self.options, "means_"
        means = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        self._means.restore(means)
        learnt: Arrays = {}
        for side in ("user", "item"):
            count = len(means[f"{side}s"])
            shapes = {
                f"guide_{side}s": (count, o.guide_rank),
                f"{side}_kernel": (o.anchors, count),
                f"{side}_factors": (o.anchors, count, o.rank),
            }
            learnt |= {name: take(arrays, name, "float32", n) for name, n in shapes.items()}
        self._learnt = learnt
