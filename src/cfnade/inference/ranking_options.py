"""Options of top-n lists: one definition for Python, the command line and the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le

from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.objectives import Objective
from cfnade.utils.text import option
from cfnade.utils.validation import check_options, options

RankBy = Literal["interaction", "prediction", "threshold"]
CRITERIA: tuple[RankBy, ...] = get_args(RankBy)

BALANCE = 0.5
"""Default balance: both likely and liked."""


@options(PredictionError, "ranking option")
class RankingOptions:
    """What a list contains, and by what it is ranked. Checked against a model by `resolve`."""

    n: Annotated[int, Ge(1)] = 10
    """Maximum number of items."""

    rank_by: RankBy | None = None
    """"interaction" ranks by the probability that the item is the next interaction and is rated at
    least `threshold`; "prediction" by the predicted rating; "threshold" by the probability of a
    rating of at least `threshold`. None: "interaction" if the model has learned interactions, else
    "prediction"."""

    balance: Annotated[float, Ge(0), Le(1)] | None = None
    """With "interaction": from likely items (0) to liked items (1). None: 0.5."""

    threshold: float | None = None
    """Lowest rating of a liked item. None: a rating in the upper quarter of the scale."""

    personalization: Annotated[float, Ge(0), Le(10)] | None = None
    """With "prediction": weight of the difference between the predicted rating and the item's
    average rating. 0 ranks by averages, 1 by predictions, more stresses what is special to the
    user."""

    diversity: Annotated[float, Ge(0), Le(1)] = 0.0
    """How different the items should be from each other."""

    popularity_penalty: Annotated[float, Ge(0), Le(1)] = 0.0
    """With "interaction": how much to favor rare items. The probability of an item is divided by
    this power of its probability for a user without interactions."""

    min_ratings: Annotated[int, Ge(0)] | None = None
    """Hide items with fewer ratings. None: 0 with "interaction", else a number between 1 and 20
    that depends on the data."""

    candidate_items: Any = None
    """Ids or titles of the only items that may be listed."""

    exclude_items: Any = None
    """Ids or titles of items that may not be listed."""

    genres: Any = None
    """A genre, or several of which an item must have one."""

    exclude_seen: bool = True
    """Whether to hide items that the user has rated or interacted with."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankingOptions:
        """Create options by name; unknown names raise an error."""
        return cls(**check_options(cls, values))

    def resolve(self, model: FittedModel) -> RankingOptions:
        """Return the options with the defaults of a model; raise an error if they do not fit it."""
        if self.rank_by is None:
            learned = model.interaction_model is not None
            rank_by: RankBy = "interaction" if learned else "prediction"
        else:
            model.require("interactions" if self.rank_by == "interaction" else "ratings")
            rank_by = self.rank_by
        self._check_fit("balance", self.balance, rank_by, "interaction")
        self._check_fit("threshold", self.threshold, rank_by, "threshold", "interaction")
        self._check_fit("personalization", self.personalization, rank_by, "prediction")
        penalty = self.popularity_penalty or None
        self._check_fit("popularity_penalty", penalty, rank_by, "interaction")
        if penalty and model.predicts_ratings and self.balance == 1:
            raise PredictionError(
                f"popularity_penalty (={penalty:g}) needs a balance below 1; leave one out"
            )
        if not model.predicts_ratings and (name := self._rating_option()) is not None:
            reason = "concerns ratings, and this model was trained on interactions; leave it out"
            raise _error(name, getattr(self, name), reason)
        return replace(
            self,
            rank_by=rank_by,
            balance=BALANCE if self.balance is None else self.balance,
            threshold=self._checked_threshold(model.context.scale),
        )

    @property
    def uses_interactions(self) -> bool:
        """Whether resolved options rank by the probability of interactions."""
        return self.rank_by == "interaction"

    def objective(self, scale: Scale) -> Objective:
        """Return what resolved options rank by."""
        assert self.threshold is not None
        by_prediction = self.rank_by == "prediction"
        return Objective("prediction" if by_prediction else "threshold", scale, self.threshold)

    def _rating_option(self) -> str | None:
        return next((n for n in ("balance", "threshold") if getattr(self, n) is not None), None)

    def _check_fit(self, name: str, value: Any, rank_by: RankBy, *criteria: RankBy) -> None:
        if value is not None and rank_by not in criteria:
            needed = " or ".join(option("rank_by", criterion) for criterion in criteria)
            raise _error(name, value, f"needs {needed}; lists are ranked by {rank_by}")

    def _checked_threshold(self, scale: Scale) -> float:
        if self.threshold is None:
            return scale.default_threshold if len(scale) > 1 else scale.values[0]
        low, high = scale.values[0], scale.values[-1]
        if not low < self.threshold <= high:
            rule = f"must be above {low:g}, the lowest rating, and at most {high:g}, the highest"
            raise _error("threshold", self.threshold, rule)
        return self.threshold


def _error(name: str, value: Any, reason: str) -> PredictionError:
    message = f"{name} (={value!r}) {reason}"
    return PredictionError(message, field=name, value=value, reason=reason)
