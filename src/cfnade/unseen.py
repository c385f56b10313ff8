"""What is said where training saw nothing.

A user or an item without training ratings has no weights on a side. It then says there what it
would have started training with: the frequencies of its known ratings, among a few imagined ones
spread like everyone's. A row of which nothing is known is read as an empty one.

Rule "paper", for reproduction: the constant 3, in the data's own stars, for a cell of whose user or
item nothing is known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.data.scale import Scale
from cfnade.errors import ModelError

FloatArray = npt.NDArray[np.float64]

UNSEEN_RULES = ("mean", "paper")
PAPER_RATING = 3.0
"""Section 6 of the paper names it as the default where training observed nothing."""

OWN_SMOOTHING = 5.0
"""Imagined ratings, spread like all ratings, beside the known ones."""


def untrained_scores(counts: FloatArray, frequencies: FloatArray, *, prior: bool) -> FloatArray:
    """Scores without trained weights, from known ratings at each level, counts (n, K). (n, K).

    frequencies (K,) are those of all training ratings. Without `prior` what is said is how the
    known ratings differ from these; of nothing known that is nothing.
    """
    everyone = np.maximum(frequencies, 1e-9)  # a level that never came has no logarithm
    smoothed = counts + OWN_SMOOTHING * everyone  # (n, K)
    logs = np.log(smoothed / smoothed.sum(-1, keepdims=True))
    return np.asarray(logs if prior else logs - np.log(everyone))


def paper_distribution(scale: Scale) -> FloatArray:
    """The paper's default rating as a certainty. Returns (K,)."""
    if PAPER_RATING not in scale.values:
        raise ModelError(
            f"the paper's default rating {PAPER_RATING:g} is not on the scale {scale}; use the "
            'rule "mean"'
        )
    return np.array([float(value == PAPER_RATING) for value in scale.values])
