"""What lists are ranked by: predicted ratings, or probabilities of high ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.data.scale import Scale
from cfnade.kernels.top_k import Criterion

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The predicted rating, or the probability of a rating of at least `threshold`."""

    rank_by: Literal["prediction", "threshold"]
    scale: Scale
    threshold: float
    personalization: float = 1.0
    """Weight of the difference between a prediction and the item's average rating."""
    averages: FloatArray | None = None
    """Average rating of each item, (M,); needed if `personalization` is not 1."""

    def scores(self, items: IntArray, means: FloatArray, calibrated: FloatArray) -> FloatArray:
        """Return the scores (n,) of items with distributions (n, K) and their means (n,)."""
        if self.rank_by == "threshold":
            return self.probability_of_liking(calibrated)
        if self.averages is None:
            return means
        averages = self.averages[items]
        return np.asarray(averages + self.personalization * (means - averages))

    def probability_of_liking(self, calibrated: FloatArray) -> FloatArray:
        """Return the probability of a rating of at least `threshold`, (n,)."""
        return np.asarray(calibrated[:, self._first_level() :].sum(1))

    def personalized_units(self, means: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the scores of means on the unit scale, (B, M), for all items."""
        if self.averages is None:
            return means
        low, high = self.scale.values[0], self.scale.values[-1]
        averages = ((self.averages - low) / (high - low)).astype(means.dtype)
        return np.asarray(averages + means.dtype.type(self.personalization) * (means - averages))

    @property
    def unit(self) -> FloatArray:
        """The values of the scale, shifted and scaled to 0..1, (K,)."""
        return unit_values(self.scale.array())

    def criterion(self, calibrations: Sequence[Calibration]) -> Criterion:
        """Return the probability as the kernel needs it.

        Args:
            calibrations: One of each user; all have the same temperature.
        """
        nothing = (0.0,) * len(self.scale)
        return Criterion(
            unit=self.unit,
            sharpness=1 / calibrations[0].temperature,
            log_weights=np.array([one.log_weights or nothing for one in calibrations]),
            first=self._first_level(),
        )

    def _first_level(self) -> int:
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        slack = 1e-9 * max(1.0, abs(self.threshold))
        return int(np.searchsorted(self.scale.array(), self.threshold - slack))


def means_of(probabilities: FloatArray, values: FloatArray) -> FloatArray:
    """Return the expected ratings (n,), each a sum of its own: equal rows have equal bits."""
    return np.asarray((probabilities * values).sum(1))
