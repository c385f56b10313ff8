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
    """Members, whose rating distributions are averaged, and a model of interactions.

    `context` holds the ratings that predictions condition on, and the id tables, the scale and the
    titles of the whole data set. Without ratings in it (`has_context` is false: a model shared
    without them), predictions need the histories that a call gives.
    """

    members: tuple[Member, ...]
    """Members of the rating model; none in a model of interactions."""
    side: str
    """The `side` that the model was trained with, for messages."""
    context: Dataset
    training_counts: Mapping[Axis, npt.NDArray[np.int64]]
    """Training ratings of each user or item at each level, (n, K), where components have weights
    for them: of items if users are rows, of users if items are."""
    calibration: Calibration | None = None
    has_context: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata as JSON values: arguments, fingerprints, metrics, versions."""
    member_weights: tuple[tuple[float, float], ...] = ()
    """Weight of each member for users of the training data, and for new users; (): all equal."""
    interaction_model: InteractionModel | None = None
    calibration_of_new: Calibration | None = None
    """Calibration for new users, if it differs."""

    @cached_property
    def predicts_ratings(self) -> bool:
        """Whether the model predicts ratings."""
        return bool(self.members)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its components are: users, items or both."""
        axes = dict.fromkeys(axis for member in self.members for axis in member.axes)
        return tuple(axes) if self.members else ("user",)

    @cached_property
    def takes_histories(self) -> bool:
        """Whether predictions use the ratings of the user, so that new users can be folded in."""
        return "user" in self.axes

    @cached_property
    def needs_times(self) -> bool:
        """Whether a prediction needs a timestamp."""
        components = (c for member in self.members for c in member.components.values())
        return any(component.needs_times for component in components)

    def require(self, *capabilities: Capability) -> None:
        """Raise a PredictionError if the model lacks a capability.

        Args:
            *capabilities: "ratings": it predicts ratings; "interactions": it predicts which item is
                next; "histories": it takes new users by their ratings; "context": it was saved with
                the ratings of known users; "lists": its predictions do not depend on the time.
        """
        present: dict[Capability, bool] = {
            "ratings": self.predicts_ratings,
            "interactions": self.interaction_model is not None,
            "histories": self.takes_histories,
            "context": self.has_context,
            "lists": not self.needs_times,
        }
        for capability in capabilities:
            if not present[capability]:
                raise PredictionError(self._describe_missing(capability))

    def _describe_missing(self, capability: Capability) -> str:
        """Return the message for a missing capability."""
        give_history = "give a history, or use" if self.takes_histories else "use"
        return {
            "ratings": "this model was trained on interactions, so it predicts no ratings; "
            "ask for recommendations",
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
        """Return whether each user was absent from the training data, (n,)."""
        counts = self.training_counts.get("user")
        if counts is None or not len(counts):
            return users < 0
        return np.asarray((users < 0) | (counts[users].sum(1) == 0))

    def counted_levels(self, axis: Axis) -> IntArray:
        """Return the ratings in the context of each user or item at each level, (n, K); cached."""
        return self.context.memo(("level counts", axis), lambda: self.context.level_counts(axis))

    def counts_for(self, ratings: Dataset) -> dict[Axis, IntArray]:
        """Return `training_counts` by the ids of other ratings, with zeros for new ids."""
        return {
            axis: np.where(places[:, None] >= 0, self.training_counts[axis][places], 0)
            for axis, places in self._match_ids(ratings).items()
        }

    def _match_ids(self, ratings: Dataset) -> dict[Axis, IntArray]:
        """Return where the ids of other ratings are in the tables of this model, -1 for new ids."""
        return {
            axis: match_tables(ratings.ids(axis), self.context.ids(axis))
            for axis in self.training_counts
        }

    def extend(self, ratings: Dataset) -> FittedModel:
        """Return the model with other ratings as its context, and with their ids.

        A new user or item gets the mean of the trained columns.
        """
        places = self._match_ids(ratings)
        trained = {axis: counts.sum(1) > 0 for axis, counts in self.training_counts.items()}
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
            training_counts=self.counts_for(ratings),
            interaction_model=None,
        )

    @property
    def level_frequencies(self) -> npt.NDArray[np.float64]:
        """Relative frequency of each level in the training data, (K,)."""
        counts = next(iter(self.training_counts.values())).sum(0)
        return np.asarray(counts / counts.sum())


def count_training_ratings(
    axes: tuple[Axis, ...], ratings: Dataset
) -> dict[Axis, npt.NDArray[np.int64]]:
    """Return the counts of training ratings that a model with such rows stores."""
    return {other_axis(axis): ratings.level_counts(other_axis(axis)) for axis in axes}
