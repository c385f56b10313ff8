"""Bundle: a trained model with everything that a prediction needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.calibration import Calibration
from cfnade.data.ratings import Ratings, Side
from cfnade.models.cfnade import CFNADE


@dataclass(frozen=True)
class Bundle:
    """Rows of the model are users and columns items if `side` is "user", else the other way round.

    `context` holds the ratings that the model conditions on, and the id tables, the scale and the
    titles of the whole data set. Without ratings in it (`has_context` false: a model shared
    without them) only histories given in a call can be used.
    """

    model: CFNADE
    side: Side
    context: Ratings
    column_counts: npt.NDArray[np.int64]  # (M, K) training ratings of each column at each level
    calibration: Calibration | None = None
    has_context: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    """What to know about it: arguments, fingerprints, metrics, versions. All of it is JSON."""
