"""Lists that are less of the same: maximal marginal relevance (Carbonell and Goldstein 1998).

From a longer list items are taken one by one: each time the one with the largest

    (1 - d) · relevance - d · likeness to the most alike of those taken

where relevance is the score (of a chance its logarithm), stretched to 0..1 over the longer list,
and likeness the cosine of two items' vectors, 0 at least.
"""

from __future__ import annotations

import numpy as np

from cfnade.choice.choice_side import ScoreArray
from cfnade.data.ratings import IntArray
from cfnade.predictor.ranking import Best, FloatArray

LONGER = 5
"""So many times longer is the list that is chosen from."""


def varied(top: Best, n: int, vectors: ScoreArray, share: float, *, chances: bool) -> Best:
    """The n of each person's list that are good and unlike each other; they keep their scores.

    `chances` says that scores are chances, else stars.
    """
    good = np.log(np.maximum(top.scores, 1e-300)) if chances else top.scores
    starts = np.flatnonzero(np.diff(top.which, prepend=-1))
    ends = np.append(starts, len(top.which))[1:]
    chosen = [
        start + _one(top.items[start:end], good[start:end], n, vectors, share)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    order = np.concatenate([np.empty(0, np.int64), *chosen])
    return top.take(order)


def _one(items: IntArray, good: FloatArray, n: int, vectors: ScoreArray, share: float) -> IntArray:
    """Places in one person's list, in the order in which they are taken."""
    spread = good.max() - good.min()
    relevance = (good - good.min()) / spread if spread > 0 else np.ones(len(good))
    alike = vectors[items] @ vectors[items].T
    nearest, taken = np.zeros(len(items)), list[int]()
    for _ in range(min(n, len(items))):
        worth = (1 - share) * relevance - share * nearest
        worth[taken] = -np.inf
        taken.append(int(worth.argmax()))
        nearest = np.maximum(nearest, alike[taken[-1]])
    return np.array(taken, np.int64)
