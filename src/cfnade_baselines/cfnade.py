"""CF-NADE itself, by one of its recipes, in the interface of its rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cfnade import CFNADE, Dataset, Split
from cfnade.exceptions import ModelError
from cfnade.recipes import load_recipe
from cfnade.utils.validation import options
from cfnade_baselines.base import Fitted, FloatArray, IntArray, Rival, checked_cells

# What a recipe that says nothing of them means; the estimator has other defaults.
_PAPER = {"ridge": 0, "ordinal_weight": 1.0, "context_scale": "sum", "target_weight": "paper"}

# An id that is like no other: an unknown text may be taken for a title with the same words.
_NOBODY = "nobody, nothing: 6f1e0c93-b7d2"


@dataclass(frozen=True)
class FittedCFNADE(Fitted):
    """The estimator, asked by index; it conditions on training and validation ratings."""

    estimator: CFNADE
    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of the distribution. Returns (n,)."""
        stars = self.estimator.classes_
        return np.clip(
            self.estimator.predictor_.predict(*self._raw(users, items)), stars[0], stars[-1]
        )

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """The chance of every level, calibrated. Returns (n, K)."""
        return self.estimator.predictor_.predict_proba(*self._raw(users, items))

    def _raw(self, users: IntArray, items: IntArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Raw ids; of -1 one that nobody has."""
        rows, columns = checked_cells(users, items, len(self.user_ids), len(self.item_ids))
        return _with_nobody(self.user_ids)[rows], _with_nobody(self.item_ids)[columns]


def _with_nobody(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The ids, and at the end (at -1) one that is not among them."""
    if ids.dtype == object:
        return np.append(ids, np.array([_NOBODY], object))
    return np.append(ids, np.setdiff1d(np.arange(len(ids) + 1), ids)[0])


@options(ModelError)
class Ours(Rival[FittedCFNADE]):
    """A recipe of `cfnade train` and what differs from it."""

    name: ClassVar[str] = "cfnade"

    recipe: str = "default"
    """The name of a recipe, or a TOML file."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model that replace the recipe's."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Training settings that replace the recipe's; the seed comes from `fit`."""

    def __post_init__(self) -> None:
        if "seed" in self.training:
            raise ModelError("training holds a seed; the seed is an argument of fit")
        self._estimator()

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FittedCFNADE:
        """Train by the recipe; validation chooses the epoch and the calibration."""
        none = train.select(np.empty(0, np.int64))
        estimator = self._estimator().set_params(seed=seed, n_threads=threads)
        estimator.fit(Split("comparison", train, valid, none, none, fingerprint=""))
        if estimator.diverged_ is not None:
            raise ModelError(f"cfnade diverged: {estimator.diverged_}")
        return FittedCFNADE(estimator, train.user_ids, train.item_ids)

    def _estimator(self) -> CFNADE:
        """The estimator whose arguments mean what the recipe and the options say."""
        base, estimator = load_recipe(self.recipe), CFNADE()
        training = base.training.to_dict() | dict(self.training)
        own = {
            name: training.pop(name) for name in list(training) if name in estimator.get_params()
        }
        fields = _PAPER | base.model | dict(self.model)
        fields["use_timestamps"] = fields.pop("time", False)
        return estimator.set_params(side=base.side, training_options=training, **own, **fields)
