"""From a predicted mean to a distribution over levels that has this mean.

Factor analysis predicts a rating as a number η with a variance v. The distribution that is said for
it is a bell around η on the levels, some of which people like more than others (w), tilted until
its mean is η:

    p_k ∝ w_k exp( -(k - η)² / 2v + t k ),    Σ_k k p_k = η

A plain bell would not do: near the ends of the scale its mean falls short of η. The tilt t is
solved once on a grid of η and v, and read from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.kernels.newton import find_tilts

Floats = npt.NDArray[np.float64]

EDGE = 0.03
"""How near to an end of the scale a mean may come, in levels."""
_MEANS, _VARIANCES = 193, 9  # of the grid


class MeanLink:
    """K levels with weights w; v goes from `noise` (all is known, ω = 0) to `spread` (ω = 1)."""

    def __init__(self, log_weights: Any, noise: float, spread: float) -> None:
        self._weights = np.asarray(log_weights, np.float64)  # (K,) log w
        self._noise, self._spread = noise, spread
        self._top = len(self._weights) - 1 - EDGE
        means, unknown = np.meshgrid(
            np.linspace(EDGE, self._top, _MEANS), np.linspace(0, 1, _VARIANCES), indexing="ij"
        )
        bells = self._bells(means.ravel(), self._variance(unknown.ravel()), np.zeros(means.size))
        self._tilts: Floats = find_tilts(bells, means.ravel()).reshape(means.shape)

    def scores(self, predicted: Any) -> Floats:
        """Scores of levels for (η, ω), (n, 2). Returns (n, K)."""
        unknown = np.clip(np.asarray(predicted[:, 1], np.float64), 0.0, 1.0)
        means = np.clip(np.asarray(predicted[:, 0], np.float64), EDGE, self._top)
        return self._bells(means, self._variance(unknown), self._tilt(means, unknown))

    def _variance(self, unknown: Floats) -> Floats:
        return self._noise + (self._spread - self._noise) * unknown

    def _bells(self, means: Floats, variances: Floats, tilts: Floats) -> Floats:
        k = np.arange(len(self._weights))
        distance = np.square(k - means[:, None]) / (2 * variances[:, None])
        return self._weights - distance + tilts[:, None] * k

    def _tilt(self, means: Floats, unknown: Floats) -> Floats:
        """Between the points of the grid, linear in both."""
        row, down = _place((means - EDGE) / (self._top - EDGE), _MEANS)
        column, right = _place(unknown, _VARIANCES)
        tilts = self._tilts
        near = tilts[row, column] * (1 - right) + tilts[row, column + 1] * right
        far = tilts[row + 1, column] * (1 - right) + tilts[row + 1, column + 1] * right
        return np.asarray(near * (1 - down) + far * down)


def _place(share: Floats, points: int) -> tuple[Any, Floats]:
    """Which interval of a grid a share of its length lies in, and how far in it."""
    position = share * (points - 1)
    first = np.clip(position.astype(np.int64), 0, points - 2)
    return first, position - first
