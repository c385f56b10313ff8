"""What is predicted where training saw nothing: a column, or a row, without any rating.

Rule "paper", for reproduction: the constant 3 for both, in the data's own stars.
Rule "mean", the product's: such a column gets the training ratings' frequencies, so that its mean
is the training mean; such a row keeps what the model says for an empty context, g(c).

A joint model has a second side, which may know more: there an unseen column of one side is scored
by `untrained_scores`, and the other side says what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.models.checks import require, require_one_of, require_shape
from cfnade.models.distribution import Distribution

FloatArray = npt.NDArray[np.float64]

UNSEEN_RULES = ("mean", "paper")
PAPER_RATING = 3.0
"""Section 6 of the paper names it as the default where training observed nothing."""


@dataclass(frozen=True)
class UnseenRule:
    """Probabilities (K,) for a cell in an unseen column or row; None leaves the model's own."""

    column: Tensor
    row: Tensor | None

    def apply(
        self, predicted: Distribution, *, unseen_column: Tensor, unseen_row: Tensor
    ) -> Distribution:
        """Replace predictions (T, K) where a mask (T,) is true; a column's rule goes first."""
        shape = tuple(predicted.probabilities.shape[:-1])
        require_shape("unseen_column", unseen_column, shape)
        require_shape("unseen_row", unseen_row, shape)
        probabilities = predicted.probabilities
        if self.row is not None:
            row = self.row.to(probabilities)
            probabilities = torch.where(unseen_row.unsqueeze(-1), row, probabilities)
        column = self.column.to(probabilities)
        probabilities = torch.where(unseen_column.unsqueeze(-1), column, probabilities)
        return replace(predicted, probabilities=probabilities)


def unseen_rule(name: str, *, counts: Tensor, values: Sequence[float]) -> UnseenRule:
    """The named rule, for a scale's values (K,) and the training ratings' counts (K,) per level."""
    require_one_of("unseen rule", name, UNSEEN_RULES)
    require_shape("counts", counts, (len(values),))
    if name == "paper":
        require(
            PAPER_RATING in values,
            f"the paper's default rating {PAPER_RATING:g} is not on the scale {list(values)}; "
            'use the rule "mean"',
        )
        certain = torch.tensor([float(value == PAPER_RATING) for value in values])
        return UnseenRule(column=certain, row=certain)
    total = float(counts.sum())
    require(total > 0, "counts (all 0) must hold at least one training rating")
    return UnseenRule(column=counts.to(torch.float64) / total, row=None)


OWN_SMOOTHING = 5.0
"""Imagined ratings, spread like all ratings, beside the known ones of an unseen column."""


def untrained_scores(counts: FloatArray, everyone: FloatArray, *, prior: bool) -> FloatArray:
    """Scores of columns without trained weights, on one side of a joint model. Returns (n, K).

    Such a column says what it would have started training with: the smoothed frequencies of its
    known ratings, counts (n, K). Without `prior`, as on the item side, it says how they differ
    from everyone's (K,); of nothing known that is nothing.
    """
    frequency = (everyone + 1.0) / (everyone + 1.0).sum()  # (K,)
    smoothed = counts + OWN_SMOOTHING * frequency  # (n, K)
    logs = np.log(smoothed / smoothed.sum(-1, keepdims=True))
    return np.asarray(logs if prior else logs - np.log(frequency))
