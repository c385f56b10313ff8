"""Bundle: a trained model with everything that a prediction needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from cfnade.calibration import Calibration
from cfnade.data.ratings import Ratings, Side
from cfnade.data.when import When
from cfnade.models.cfnade import CFNADE
from cfnade.models.ensemble import Ensemble
from cfnade.models.joint import JointCFNADE, JointConfig

Sides = Side | Literal["both"]
SIDES: tuple[Sides, ...] = ("user", "item", "both")
SIDES_IN_WORDS = '"user", "item" or "both"'
Single = CFNADE | JointCFNADE
Model = Single | Ensemble


@dataclass(frozen=True)
class Bundle:
    """Rows of the model are users and columns items if `side` is "user", else the other way round.

    With side "both" the model has a side of each kind; rows and columns are then those of its user
    side. `context` holds the ratings that the model conditions on, and the id tables, the scale
    and the titles of the whole data set. Without ratings in it (`has_context` false: a model
    shared without them) only histories given in a call can be used.
    """

    model: Model
    side: Sides
    context: Ratings
    column_counts: npt.NDArray[np.int64]  # (M, K) training ratings of each column at each level
    calibration: Calibration | None = None
    has_context: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    """What to know about it: arguments, fingerprints, metrics, versions. All of it is JSON."""
    row_counts: npt.NDArray[np.int64] | None = None
    """(N, K) the same of each row, for side "both" alone: rows are columns of its item side."""
    when: When | None = None
    """Time features, for a model that knows time."""

    @property
    def knows_time(self) -> bool:
        """Whether a prediction needs to know when."""
        config = self.model.config
        return isinstance(config, JointConfig) and config.features > 0

    @property
    def n_members(self) -> int:
        """How many models' distributions are averaged."""
        return len(self.model.members) if isinstance(self.model, Ensemble) else 1

    def members(self) -> list[Bundle]:
        """A bundle for each model of an ensemble; the bundle itself if there is one model."""
        if not isinstance(self.model, Ensemble):
            return [self]
        return [replace(self, model=cast(Single, member)) for member in self.model.members]

    def sides(self) -> list[Bundle]:
        """One-sided bundles of one model, whose scores are added; calibration is left out."""
        if isinstance(self.model, Ensemble):
            raise TypeError("an ensemble has members, and each of them has sides")
        if not isinstance(self.model, JointCFNADE):
            return [replace(self, calibration=None)]
        plain = replace(self, row_counts=None, calibration=None, when=None)
        by_row = cast(npt.NDArray[np.int64], self.row_counts)
        return [
            replace(plain, model=self.model.user, side="user"),
            replace(plain, model=self.model.item, side="item", column_counts=by_row),
        ]

    @property
    def one_sided_model(self) -> CFNADE:
        """The model of a bundle with one member and one side."""
        if not isinstance(self.model, CFNADE):
            raise TypeError(f"this bundle holds a {type(self.model).__name__}, not one side")
        return self.model
