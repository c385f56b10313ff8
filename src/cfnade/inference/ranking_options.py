"""Options of top-n lists for Python, the command line and the service: ranking and item filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.catalog import Catalog, as_ids
from cfnade.inference.query import BoolArray
from cfnade.kernels.top_k import Criterion
from cfnade.utils.text import option
from cfnade.utils.validation import check_options, options

RankBy = Literal["interaction", "prediction", "threshold"]
CRITERIA: tuple[RankBy, ...] = get_args(RankBy)

FloatArray = npt.NDArray[np.float64]

BALANCE = 0.5
"""Default balance: both likely and liked."""

MAX_MIN_RATINGS, MAX_HIDDEN = 20, 0.25
"""Largest default of `min_ratings`, and the largest fraction of ratings that it hides."""


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
        has_interactions = model.interaction_model is not None
        rank_by = self.rank_by or ("interaction" if has_interactions else "prediction")
        model.require("interactions" if rank_by == "interaction" else "ratings")
        for name, criteria in _CRITERIA_OF.items():
            value = getattr(self, name)
            if value != getattr(RankingOptions, name) and rank_by not in criteria:
                needed = " or ".join(option("rank_by", criterion) for criterion in criteria)
                raise _error(name, value, f"needs {needed}; lists are ranked by {rank_by}")
            concerns_ratings = name in ("balance", "threshold")
            if concerns_ratings and value is not None and not model.predicts_ratings:
                reason = "concerns ratings, and this model was trained on interactions; omit it"
                raise _error(name, value, reason)
        if self.popularity_penalty and model.predicts_ratings and self.balance == 1:
            reason = "needs a balance below 1; omit one of the two"
            raise _error("popularity_penalty", self.popularity_penalty, reason)
        return replace(
            self,
            rank_by=rank_by,
            balance=BALANCE if self.balance is None else self.balance,
            threshold=self._resolve_threshold(model.context.scale),
        )

    def _resolve_threshold(self, scale: Scale) -> float:
        if self.threshold is None:
            return scale.default_threshold if len(scale) > 1 else scale.values[0]
        low, high = scale.values[0], scale.values[-1]
        if not low < self.threshold <= high:
            reason = f"must be above {low:g}, the lowest rating, and at most {high:g}, the highest"
            raise _error("threshold", self.threshold, reason)
        return self.threshold


_CRITERIA_OF: dict[str, tuple[RankBy, ...]] = {
    "balance": ("interaction",),
    "threshold": ("threshold", "interaction"),
    "personalization": ("prediction",),
    "popularity_penalty": ("interaction",),
}
"""The criteria that use an option."""


def _error(name: str, value: Any, reason: str) -> PredictionError:
    message = f"{name} (={value!r}) {reason}"
    return PredictionError(message, field=name, value=value, reason=reason)


# -- objective -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """What a list by ratings is ranked by.

    That is the predicted rating, or the probability of a rating of at least `threshold`.
    """

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
            return self.like_probabilities(calibrated)
        if self.averages is None:
            return means
        averages = self.averages[items]
        return np.asarray(averages + self.personalization * (means - averages))

    def like_probabilities(self, calibrated: FloatArray) -> FloatArray:
        """Return the probability of a rating of at least `threshold`, (n,)."""
        return np.asarray(calibrated[:, self._first_liked_level() :].sum(1))

    def unit_scores(self, means: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the scores of all items by their means on the unit scale, both (B, M)."""
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
            calibrations: The calibration of each user; all have the same temperature.
        """
        zeros = (0.0,) * len(self.scale)
        return Criterion(
            unit=self.unit,
            sharpness=1 / calibrations[0].temperature,
            log_weights=np.array([c.log_weights or zeros for c in calibrations]),
            first=self._first_liked_level(),
        )

    def _first_liked_level(self) -> int:
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        slack = 1e-9 * max(1.0, abs(self.threshold))
        return int(np.searchsorted(self.scale.array(), self.threshold - slack))


# -- items -----------------------------------------------------------------------------------------


def default_min_ratings(n_ratings: IntArray) -> int:
    """Return the default of `min_ratings`: 1 to 20, as many as hide at most a quarter of ratings.

    Args:
        n_ratings: Ratings of each item, (M,). docs/reference/python.md has the reasons.
    """
    ordered = np.sort(n_ratings)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    for least in range(MAX_MIN_RATINGS, 1, -1):
        below = int(np.searchsorted(ordered, least))
        if sums[below] <= MAX_HIDDEN * sums[-1]:
            return least
    return 1


def genre_masks(context: Dataset) -> dict[str, BoolArray]:
    """Return the items (M,) of each genre in the data, in alphabetical order."""
    if context.genres is None:
        return {}
    members: dict[str, list[int]] = {}
    for item, text in enumerate(context.genres.tolist()):
        for name in text.split("|"):
            if name.strip() and not name.startswith("("):  # "(no genres listed)"
                members.setdefault(name.strip(), []).append(item)
    masks = {name: np.zeros(len(context.genres), bool) for name in sorted(members)}
    for name, mask in masks.items():
        mask[members[name]] = True
    return masks


def allowed_items(
    options: RankingOptions, catalog: Catalog, genres: Mapping[str, BoolArray]
) -> BoolArray:
    """Return the items (M,) that candidates, exclusions and genres allow."""
    allowed = np.ones(len(catalog.ids.table), bool)
    if options.candidate_items is not None:
        allowed[:] = False
        allowed[_indices(catalog, options.candidate_items, "candidate_items")] = True
    if options.exclude_items is not None:
        allowed[_indices(catalog, options.exclude_items, "exclude_items")] = False
    if options.genres is not None:
        names = [options.genres] if isinstance(options.genres, str) else options.genres
        allowed &= _genre_mask(names, genres)
    return allowed


def _indices(catalog: Catalog, items: Any, name: str) -> IntArray:
    """Return the indices of items by id or title; `name` is the option that names them."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise PredictionError(f"{name} (={items!r}) must be a list of items, by id or title")
    ids, _ = as_ids(items)
    indices = catalog.indices(ids)
    unknown = [ids[place] for place in np.flatnonzero(indices < 0).tolist()]
    if unknown:
        first = [raw.item() if isinstance(raw, np.generic) else raw for raw in unknown[:5]]
        names = ", ".join(map(repr, first)) + (", …" if len(unknown) > 5 else "")
        raise PredictionError(
            f"{name} contains items that are unknown to the model: {names}; leave them out "
            "(find_items searches by title)"
        )
    return indices


def _genre_mask(genres: Any, masks: Mapping[str, BoolArray]) -> BoolArray:
    """Return which items have any of these genres, (M,)."""
    if not masks:
        reason = "the data of this model have no genres; leave it out"
        raise PredictionError(f"genres: {reason}", field="genres", value=genres, reason=reason)
    valid, names = ", ".join(masks), {name.casefold(): name for name in masks}
    if not isinstance(genres, Iterable) or not (genres := list(genres)):
        raise PredictionError(f"genres (={genres!r}) must be some of {valid}")
    for genre in genres:
        if not isinstance(genre, str) or genre.casefold() not in names:
            raise PredictionError(f"genres: unknown genre {genre!r}; the data have {valid}")
    return np.asarray(np.logical_or.reduce([masks[names[genre.casefold()]] for genre in genres]))
