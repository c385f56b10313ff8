"""A side that is made from ratings in seconds and trained no further."""

from __future__ import annotations

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.kernels.adam import AdamRule
from cfnade.sides.row_side import RowSide
from cfnade.sides.stepping import FixedStepper
from cfnade.sides.trainable import Side


class MadeSide(RowSide):
    """What factor analysis and neighbourhoods have in common; a subclass says how it is made."""

    def take_over(self, earlier: Side, ratings: Dataset, earlier_ratings: Dataset) -> None:
        """Nothing: it is made in seconds and knows the new ratings."""

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        del ratings, settings, share
        return {}

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> FixedStepper:
        del ratings, settings, share, threads
        return FixedStepper(self)
