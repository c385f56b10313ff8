"""CF-NADE with the interfaces of the baselines: a recipe for ratings, and the interaction model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_types import Gt

from cfnade import CFNADE, Dataset, Split
from cfnade.data.dataset import Interactions
from cfnade.data.split_protocols import TRAIN
from cfnade.data.splits import apply_labels
from cfnade.exceptions import ModelError
from cfnade.implicit import InteractionRows
from cfnade.recipes import load_recipe
from cfnade.training.implicit import implicit_plan
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.train import train as train_plan
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    FloatArray,
    IntArray,
    RatingPredictor,
    Recommender,
    Scores,
    check_pairs,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Values of fields that a recipe leaves out; the estimator has other defaults.
_RECIPE_DEFAULTS = {
    "ridge": 0,
    "ordinal_weight": 1.0,
    "context_scale": "sum",
    "target_weight": "paper",
}

# Resembles no other id: an unknown text could be matched to a title with the same words.
_UNKNOWN_ID = "unknown 6f1e0c93-b7d2"


@options(ModelError)
class CFNADERatings(RatingPredictor):
    """A recipe of `cfnade train` with changes; validation chooses the epoch and calibrates.

    Predictions condition on training and validation ratings.
    """

    name: ClassVar[str] = "cfnade"

    recipe: str = "default"
    """Name of a recipe, or a TOML file."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model that replace the recipe's."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Training options that replace the recipe's; the seed is an argument of `fit`."""

    def __post_init__(self) -> None:
        if "seed" in self.training:
            raise ModelError("training contains a seed; the seed is an argument of fit")
        self._estimator()

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        empty = train.select(np.empty(0, np.int64))
        estimator = self._estimator().set_params(seed=seed, n_threads=n_threads)
        estimator.fit(Split("comparison", train, valid, empty, empty, fingerprint=""))
        if estimator.diverged_ is not None:
            raise ModelError(f"cfnade diverged: {estimator.diverged_}")
        self._set(estimator_=estimator, user_ids_=train.user_ids, item_ids_=train.item_ids)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the means of the distributions, (n,)."""
        scale = self.estimator_.classes_
        ratings: FloatArray = self.estimator_.predict(*self._ids(users, items), unknown="mean")
        return np.clip(ratings, scale[0], scale[-1])

    def predict_proba(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the calibrated probability of every level, (n, K)."""
        ids = self._ids(users, items)
        probabilities: FloatArray = self.estimator_.predict_proba(*ids, unknown="mean")
        return probabilities

    def _ids(self, users: IntArray, items: IntArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the ids of the pairs; -1 becomes an id that the data does not have."""
        rows, columns = check_pairs(users, items, len(self.user_ids_), len(self.item_ids_))
        return _append_unknown(self.user_ids_)[rows], _append_unknown(self.item_ids_)[columns]

    def _estimator(self) -> CFNADE:
        """Return an estimator with the arguments of the recipe and the options."""
        base, estimator = load_recipe(self.recipe), CFNADE()
        training = base.training.to_dict() | dict(self.training)
        arguments = {
            name: training.pop(name) for name in list(training) if name in estimator.get_params()
        }
        fields = _RECIPE_DEFAULTS | base.model | dict(self.model)
        fields["use_timestamps"] = fields.pop("time", False)
        options = arguments | fields | {"training_options": training}
        return estimator.set_params(side=base.side, **options)


def _append_unknown(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the ids followed (at index -1) by one that is not among them."""
    if ids.dtype == object:
        return np.append(ids, np.array([_UNKNOWN_ID], object))
    return np.append(ids, np.setdiff1d(np.arange(len(ids) + 1), ids)[0])


@options(ModelError)
class CFNADEInteractions(Recommender):
    """The interaction model, trained as `cfnade train` does on implicit feedback."""

    name: ClassVar[str] = "cfnade"

    time_budget: Annotated[float, Gt(0)] | None = None
    """Minutes of model selection; by default it depends on the size of the data."""

    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        n_users, n_items = interactions.shape
        pairs = interactions.tocoo()
        data = Interactions(
            np.asarray(pairs.row, np.int32),
            np.asarray(pairs.col, np.int32),
            np.arange(n_users),
            np.arange(n_items),
        )
        split = apply_labels(data, np.full(len(data), TRAIN, np.uint8), "comparison")
        plan = implicit_plan(split.train, seed=seed, time_budget=self.time_budget)
        trained = train_plan(split, TrainingPlan(implicit=plan), RunOptions(n_threads=n_threads))
        self._set(model_=trained.model.interaction_model)

    def score(self, interactions: csr_matrix) -> Scores:
        """Return the weighted sum of the components' scores, (B, M)."""
        scores: Scores = self.model_.scores(interaction_rows(interactions))
        return scores


def interaction_rows(interactions: csr_matrix) -> InteractionRows:
    """Return a matrix of ones as the rows that interaction models take."""
    indptr = np.asarray(interactions.indptr, np.int64)
    columns = np.asarray(interactions.indices, np.int32)
    ones = np.ones(len(columns), np.float32)
    return InteractionRows(indptr, columns, ones, interactions.shape[1])
