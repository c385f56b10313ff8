"""A side that is plain torch alone: what a new kind begins as, slow but whole."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from cfnade.data.ratings import Ratings
from cfnade.kernels.adam import Rule
from cfnade.models.batch import Context
from cfnade.settings import Settings
from cfnade.sides.readings import PlainRows, reading_of
from cfnade.sides.row_side import RowSide
from cfnade.sides.side import Reading
from cfnade.sides.stepping import AutogradStepper


class PlainSide(RowSide):
    """Reads rows; a subclass says how it is made and saved, and how it scores cells."""

    @abstractmethod
    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells, each of a row of the context; differentiable. Returns (n, K)."""

    def rules(self, ratings: Ratings, settings: Settings, *, share: float) -> dict[str, Rule]:
        """Everything moves at the usual rate, without decay."""
        del ratings, share
        names = [name for name, _ in self.network.named_parameters()]
        return dict.fromkeys(names, Rule(rate=settings.learning_rate))

    def stepper(
        self, ratings: Ratings, settings: Settings, *, share: float, threads: int
    ) -> AutogradStepper:
        del threads
        return AutogradStepper(self, self.rules(ratings, settings, share=share))

    def reading(self, context: Ratings) -> Reading:
        return reading_of(self.axis, PlainRows(self.scores_given, context.rows(self.axis)))
