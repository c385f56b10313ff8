"""How people rated each item on the whole: what a personal prediction is seen against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.fitted import FittedModel

_IMAGINED = 5.0
"""Ratings added to each item, spread like those of all items: few ratings are no average."""


def usual_of(fitted: FittedModel) -> npt.NDArray[np.float64]:
    """Smoothed shares of levels, of each item. Returns (M, K)."""
    counts = fitted.trained_on.get("item")
    if counts is None:
        counts = fitted.context.level_counts("item")
    total = counts.sum(0)
    shares = total / max(total.sum(), 1)
    some = counts + _IMAGINED * shares
    return np.asarray(some / np.maximum(some.sum(1, keepdims=True), 1e-12))
