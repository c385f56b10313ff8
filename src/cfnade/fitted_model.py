"""FittedModel: a trained model with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration
from cfnade.components import AnsweringMember, Axis
from cfnade.components.base import other_axis
from cfnade.data.dataset import Dataset
from cfnade.implicit import InteractionModel

if TYPE_CHECKING:
    from cfnade.components import Member


@dataclass(frozen=True)
class FittedModel:
    """Members, whose distributions are averaged; each is a list of sides, whose scores are added.

    `context` holds the ratings that the model conditions on, and the id tables, the scale and the
    titles of the whole data set. Without ratings in it (`has_context` false: a model shared without
    them) only histories given in a call can be used.
    """

    answering: tuple[AnsweringMember, ...]
    """How things are rated; none in a model of interactions, which have no ratings."""
    side: str
    """What was asked for, such as "user", "item" or "both": a name, on which nothing depends."""
    context: Dataset
    trained_on: Mapping[Axis, npt.NDArray[np.int64]]
    """Training ratings of each user or item at each level, (n, K), where a side has weights for
    them: of items if users are rows, of users if items are."""
    calibration: Calibration | None = None
    has_context: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    """What to know about it: arguments, fingerprints, metrics, versions. All of it is JSON."""
    shares: tuple[tuple[float, float], ...] = ()
    """What each member counts for people who were trained on, and for new ones; () is equally."""
    interaction_model: InteractionModel | None = None
    """Which items are taken up at all, if the model knows that."""
    calibration_of_new: Calibration | None = None
    """For people who were not trained on, where it is another one."""

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The same as torch modules, in the same memory: those of a loaded model are made here."""
        return tuple(member.trainable() for member in self.answering)

    @cached_property
    def rates(self) -> bool:
        """Whether it knows how things are rated."""
        return bool(self.answering)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its sides are: users, items or both."""
        axes = dict.fromkeys(axis for member in self.answering for axis in member.axes)
        return tuple(axes) if self.answering else ("user",)

    @cached_property
    def takes_histories(self) -> bool:
        """Whether it reads what a person rated, so that somebody new can be asked about."""
        return "user" in self.axes

    @cached_property
    def needs_times(self) -> bool:
        """Whether a prediction needs to know when."""
        sides = (side for member in self.answering for side in member.components.values())
        return any(side.needs_times for side in sides)

    def new(self, users: IntArray) -> npt.NDArray[np.bool_]:
        """Whether each user was not there in training. Returns (n,)."""
        counts = self.trained_on.get("user")
        if counts is None or not len(counts):
            return users < 0
        return np.asarray((users < 0) | (counts[users].sum(1) == 0))

    def counted_levels(self, axis: Axis) -> IntArray:
        """Known ratings of each user or item at each level, counted once and not to be written to.
        Returns (n, K)."""
        return self.context.memo(("level counts", axis), lambda: self.context.level_counts(axis))

    @property
    def level_frequencies(self) -> npt.NDArray[np.float64]:
        """How often each level came in training. Returns (K,)."""
        counts = next(iter(self.trained_on.values())).sum(0)
        return np.asarray(counts / counts.sum())


def trained_on(axes: tuple[Axis, ...], ratings: Dataset) -> dict[Axis, npt.NDArray[np.int64]]:
    """The counts that a model with such rows keeps of its training ratings."""
    return {other: ratings.level_counts(other) for other in map(other_axis, axes)}
