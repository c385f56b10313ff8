"""What members say of every item for some people, and how members are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components.base import Array, Who
from cfnade.kernels.top_k import mean_levels

FloatArray = npt.NDArray[np.float64]


class Lists(NamedTuple):
    """Of some people: few enough that all scores fit into memory at once."""

    people: Sequence[Who]
    members: Sequence[Array]
    """Scores of each member, (B, items, K)."""
    shares: FloatArray
    """What each member counts for each person, (members, B)."""

    def chances(self, which: IntArray, items: IntArray) -> FloatArray:
        """Exact distributions of cells: whose each is, and the item. Returns (n, K)."""
        each = [distributions(scores[which, items]) for scores in self.members]
        return mixed(each, self.shares[:, which])

    def means(self, unit: FloatArray) -> Array:
        """Means over unit (K,), to kernels.top_k.MEAN_SLACK. Returns (B, items)."""
        each = [mean_levels(scores, unit) for scores in self.members]
        if len(each) == 1:
            return each[0]
        weighed = zip(self.shares, each, strict=True)
        return np.asarray(sum(share[:, None] * means for share, means in weighed))

    def scores(self) -> Array:
        """Those whose softmax are the distributions of all items. Returns (B, items, K)."""
        if len(self.members) == 1:
            return self.members[0]
        shape = self.members[0].shape
        which, items = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        with np.errstate(divide="ignore"):
            return np.log(self.chances(which, items)).reshape(shape)


def distributions(scores: Array) -> FloatArray:
    """Softmax over levels, in double precision. Returns (n, K)."""
    exact = scores.astype(np.float64)
    exact -= exact.max(1, keepdims=True)
    weights: FloatArray = np.exp(exact, out=exact)
    weights /= weights.sum(1, keepdims=True)
    return weights


def mixed(members: Sequence[FloatArray], shares: FloatArray) -> FloatArray:
    """Members' distributions (n, K) with shares (members, n), or (members, 1). Returns (n, K)."""
    if len(members) == 1:
        return members[0]
    return np.asarray(sum(share[:, None] * one for share, one in zip(shares, members, strict=True)))
