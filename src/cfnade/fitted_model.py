"""FittedModel: a trained model with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration
from cfnade.components import Axis, Member
from cfnade.components.base import other_axis
from cfnade.data.dataset import Dataset, match_tables
from cfnade.exceptions import PredictionError
from cfnade.implicit import InteractionModel
from cfnade.utils.text import option

Capability = Literal["ratings", "interactions", "histories", "context", "lists"]


@dataclass(frozen=True)
class FittedModel:
    """Members, whose distributions are averaged; each is a list of sides, whose scores are added.

    `context` holds the ratings that the model conditions on, and the id tables, the scale and the
    titles of the whole data set. Without ratings in it (`has_context` false: a model shared without
    them) only histories given in a call can be used.
    """

    members: tuple[Member, ...]
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
    def rates(self) -> bool:
        """Whether it knows how things are rated."""
        return bool(self.members)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its sides are: users, items or both."""
        axes = dict.fromkeys(axis for member in self.members for axis in member.axes)
        return tuple(axes) if self.members else ("user",)

    @cached_property
    def takes_histories(self) -> bool:
        """Whether it reads what a person rated, so that somebody new can be asked about."""
        return "user" in self.axes

    @cached_property
    def needs_times(self) -> bool:
        """Whether a prediction needs to know when."""
        sides = (side for member in self.members for side in member.components.values())
        return any(side.needs_times for side in sides)

    def require(self, *capabilities: Capability) -> None:
        """Raise a PredictionError if the model lacks a capability.

        Args:
            *capabilities: "ratings": it predicts ratings; "interactions": it predicts which item is
                next; "histories": it takes new users by their ratings; "context": it was saved with
                the ratings of known users; "lists": its predictions do not depend on the time.
        """
        for capability in capabilities:
            if not self._has(capability):
                raise PredictionError(self._lacks(capability))

    def _has(self, capability: Capability) -> bool:
        return {
            "ratings": self.rates,
            "interactions": self.interaction_model is not None,
            "histories": self.takes_histories,
            "context": self.has_context,
            "lists": not self.needs_times,
        }[capability]

    def _lacks(self, capability: Capability) -> str:
        """Return the message for a missing capability."""
        give_history = "give a history, or use" if self.takes_histories else "use"
        return {
            "ratings": "this model was trained on interactions, so it predicts no ratings; use "
            "recommend()",
            "interactions": "this model has not learned interactions; train one with "
            f"{option('learn_interactions', True)}",
            "histories": "this model is item-based: it knows only the users of its training data "
            f"and takes no history of a new user; train one with {option('side', 'user')} for that",
            "context": "this model was saved without the ratings that it conditions on, so it "
            f"knows no user; {give_history} a copy that was saved with its context",
            "lists": "the predictions of this model depend on the time of the rating, so it makes "
            "no lists or explanations; train one without timestamps for these",
        }[capability]

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

    def counts_for(self, ratings: Dataset) -> dict[Axis, IntArray]:
        """Return `trained_on` by the ids of other ratings; nothing was counted of new ones."""
        counts = {}
        for axis, levels in self.trained_on.items():
            places = match_tables(ratings.ids(axis), self.context.ids(axis))
            counts[axis] = np.where(places[:, None] >= 0, levels[places], 0)
        return counts

    def extend(self, ratings: Dataset) -> FittedModel:
        """Return the same weights with the ids of other ratings, which become the context.

        A new user or item gets the mean of the trained columns.
        """
        places = {
            axis: match_tables(ratings.ids(axis), self.context.ids(axis))
            for axis in self.trained_on
        }
        trained = {axis: counts.sum(1) > 0 for axis, counts in self.trained_on.items()}
        members = []
        for member in self.members:
            components = {}
            for name, component in member.components.items():
                axis = other_axis(component.axis or "user")
                components[name] = component.take_columns(places[axis], trained[axis])
            members.append(Member(components))
        return replace(
            self,
            members=tuple(members),
            context=ratings,
            trained_on=self.counts_for(ratings),
            interaction_model=None,
        )

    @property
    def level_frequencies(self) -> npt.NDArray[np.float64]:
        """How often each level came in training. Returns (K,)."""
        counts = next(iter(self.trained_on.values())).sum(0)
        return np.asarray(counts / counts.sum())


def trained_on(axes: tuple[Axis, ...], ratings: Dataset) -> dict[Axis, npt.NDArray[np.int64]]:
    """The counts that a model with such rows keeps of its training ratings."""
    return {other: ratings.level_counts(other) for other in map(other_axis, axes)}
