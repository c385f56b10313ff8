"""Lists that are less of the same: maximal marginal relevance (Carbonell and Goldstein 1998).

From a longer list items are taken one by one: each time the one with the largest

    (1 - d) · relevance - d · likeness to the most alike of those taken

where relevance is the logarithm of the score, stretched to 0..1 over the longer list, and likeness
the cosine of two items' vectors.
"""

from __future__ import annotations

import numpy as np

from cfnade.choice.side import ScoreArray
from cfnade.data.ratings import IntArray
from cfnade.predictor.ranking import Best, FloatArray

LONGER = 5
"""So many times longer is the list that is chosen from."""


def varied(top: Best, n: int, vectors: ScoreArray, share: float) -> Best:
    """The n of each person's list that are good and unlike each other; they keep their scores."""
    starts = np.flatnonzero(np.diff(top.which, prepend=-1))
    ends = np.append(starts[1:], len(top.which))
    chosen = [
        start + _one(top.items[start:end], top.scores[start:end], n, vectors, share)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    order = np.concatenate([np.empty(0, np.int64), *chosen])
    return top.take(order)


def _one(
    items: IntArray, scores: FloatArray, n: int, vectors: ScoreArray, share: float
) -> IntArray:
    """Places in one person's list, in the order in which they are taken."""
    logs = np.log(np.maximum(scores, 1e-300))
    spread = logs.max() - logs.min()
    relevance = (logs - logs.min()) / spread if spread > 0 else np.ones(len(logs))
    alike = vectors[items] @ vectors[items].T
    nearest, taken = np.zeros(len(items)), list[int]()
    for _ in range(min(n, len(items))):
        worth = (1 - share) * relevance - share * nearest
        worth[taken] = -np.inf
        taken.append(int(worth.argmax()))
        nearest = np.maximum(nearest, alike[taken[-1]])
    return np.array(taken, np.int64)
