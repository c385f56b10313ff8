"""What is predicted for a cell: a probability for each value of the scale, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cfnade.models.checks import require


@dataclass(frozen=True)
class Distribution:
    """Probabilities (..., K) over the scale's values (K,), in the data's own stars, rising."""

    probabilities: Tensor
    values: Tensor

    def __post_init__(self) -> None:
        K = self.values.numel()
        require(
            self.values.ndim == 1 and K >= 2 and bool((self.values.diff() > 0).all()),
            f"values (={self.values.tolist()}) must be two or more numbers, each above the last",
        )
        shape = tuple(self.probabilities.shape)
        require(
            len(shape) >= 1 and shape[-1] == K,
            f"probabilities have shape {shape}; the last size must be the number of values, {K}",
        )

    @classmethod
    def from_scores(cls, scores: Tensor, values: Tensor | Sequence[float]) -> Distribution:
        """Eq. 3: the softmax of scores (..., K) over levels."""
        return cls(scores.softmax(-1), _as_values(values, scores))

    @classmethod
    def from_probabilities(
        cls, probabilities: Tensor, values: Tensor | Sequence[float]
    ) -> Distribution:
        """Probabilities (..., K) that are not negative and sum to 1."""
        off = (probabilities.sum(-1) - 1.0).abs()
        require(
            bool((probabilities >= 0).all()) and bool((off < 1e-4).all()),
            f"probabilities (={probabilities.tolist() if probabilities.numel() <= 10 else '...'}) "
            "must not be negative and must sum to 1 over the last dimension",
        )
        return cls(probabilities, _as_values(values, probabilities))

    def mean(self) -> Tensor:
        """Eq. 6: the expected rating, the paper's prediction; best for squared error. (...)."""
        return self.probabilities @ self.values

    def variance(self) -> Tensor:
        gaps = self.values - self.mean().unsqueeze(-1)  # (..., K)
        return (self.probabilities * gaps.square()).sum(-1)

    def mode(self) -> Tensor:
        """The likeliest value; of equals, the lowest. (...)."""
        return self.values[self.probabilities.argmax(-1)]

    def median(self) -> Tensor:
        """The middle value, best for absolute error. (...)."""
        return self.quantile(0.5)

    def quantile(self, q: float) -> Tensor:
        """The lowest value that a rating does not exceed with probability q or more. (...)."""
        require(0.0 <= q <= 1.0, f"q (={q}) must lie between 0 and 1")
        below = self.probabilities.cumsum(-1)  # (..., K)
        # A sum that misses q by rounding alone has reached it.
        slack = 4 * torch.finfo(below.dtype).eps
        level = (below < q - slack).sum(-1).clamp(max=self.values.numel() - 1)
        return self.values[level]

    def at_least(self, x: float) -> Tensor:
        """P(rating >= x), for any x in stars. (...)."""
        return (self.probabilities * (self.values >= x)).sum(-1)


def _as_values(values: Tensor | Sequence[float], like: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)
