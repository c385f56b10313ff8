"""The effect of a rating's timestamp on its scores.

It reads no rows, only the time features of a pair (time_features.py), so it makes no lists: a
prediction needs a timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import numpy as np
from annotated_types import Ge

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    ArraySpec,
    Axis,
    BoolArray,
    ComponentScorer,
    FitData,
    Pairs,
    RatingComponent,
)
from cfnade.components.registry import register
from cfnade.components.time_features import FEATURES, TimeFeatures
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.exceptions import DataError, ModelError, PredictionError, TrainingError
from cfnade.models.config import TIME_UNITS
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.validation import options

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfnade.components.batches import Batch
    from cfnade.kernels.adam import AdamRule

DECAY = 1e-4
"""L2 of the weights, in the gradient of the mean cost of a target."""


@options(ModelError)
class TimeConfig:
    """The sizes of a time component."""

    levels: Annotated[int, Ge(2)]
    users: Annotated[int, Ge(0)]
    items: Annotated[int, Ge(0)]
    ratings: Annotated[int, Ge(0)]
    """Training ratings, from which the features of later ones are computed."""
    shared: bool = True
    features: int = len(FEATURES)


@register("time", axis=None)
class TimeComponent(RatingComponent):
    """A small network of time features, with the names of models/time.py.

    The histories that features are computed from are arrays as well.
    """

    axis: None
    config: TimeConfig
    config_type = TimeConfig
    needs_times = True
    _of_training: TimeFeatures | None = None

    @classmethod
    def spec(cls, config: TimeConfig) -> dict[str, ArraySpec]:
        if config.features != len(FEATURES):
            raise ModelError(
                f"the model has {config.features} time features; this version of cfnade knows "
                f"{len(FEATURES)}"
            )
        F, K, n = config.features, config.levels, config.ratings
        trained = {"A": (F, K), "M1": (F, TIME_UNITS), "m1": (TIME_UNITS,), "M2": (TIME_UNITS, K)}
        numbers = {"period": (2,), "centre": (F,), "spread": (F,)}
        histories = {}
        for name, count in (("user", config.users), ("item", config.items)):
            histories[f"{name}.offsets"] = (count + 1,), "int64"
            histories[f"{name}.times"] = (n,), "int64"
            histories[f"{name}.others"] = (n,), "int32"
            histories[f"{name}.residuals"] = (n,), "int32"
        return {
            **{name: ArraySpec(shape, None) for name, shape in trained.items()},
            **{name: ArraySpec(s, None, "float64", trained=False) for name, s in numbers.items()},
            **{
                name: ArraySpec(shape, None, dtype, trained=False)
                for name, (shape, dtype) in histories.items()
            },
        }

    @locked_cached_property
    def features(self) -> TimeFeatures:
        """What time features are computed from."""
        return TimeFeatures.from_arrays(self.arrays)

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    def config_for(
        cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]
    ) -> TimeConfig:
        del axis
        sizes = {"users": ratings.n_users, "items": ratings.n_items, "ratings": len(ratings)}
        shared = options.get("shared", True)
        return TimeConfig(levels=len(ratings.scale), shared=shared, **sizes)

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        ratings = data.dataset
        if ratings.times is None:
            raise TrainingError("time features need ratings with timestamps; these have none")
        if not data.preceding:
            raise TrainingError(
                "time features go beside another component, such as user, item or both"
            )
        new = cls(cls.config_for(axis, ratings, options), axis=None)
        new._of_training = TimeFeatures.of(ratings)
        new.arrays |= new._of_training.arrays()
        new.network.initialise(data.generator)
        return new

    def take_columns(self, places: IntArray, trained: BoolArray | None = None) -> NoReturn:
        del places, trained
        raise TrainingError(
            "a model with timestamps cannot be refreshed, only trained anew; refresh models of "
            "users, of items or of both"
        )

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        from cfnade.kernels.adam import AdamRule

        del ratings, share
        rate = settings.learning_rate
        return {n: AdamRule(rate=rate, decay=0.0 if n == "m1" else DECAY) for n in self.trained}

    def module(self) -> nn.Module:
        from cfnade.models.time import TimeNetwork

        return TimeNetwork(self.config.features, self.config.levels, shared=self.config.shared)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        import torch

        keys, features = self._training_table
        cells = batch.cells["item"] * self.config.users + batch.cells["user"]
        scores: Tensor = network(
            torch.from_numpy(features[np.searchsorted(keys, cells)]).to(network.A)
        )
        return scores

    @locked_cached_property
    def _training_table(self) -> tuple[IntArray, Array]:
        """Training ratings as rising keys, and the features of each without itself."""
        features = self._of_training
        if features is None or features.training is None:
            raise TrainingError("training needs the time features of the training ratings")
        train = features.training
        keys = train.items.astype(np.int64) * train.n_users + train.users
        order = np.argsort(keys)  # by item and user: the order of a block's targets, nearly
        return keys[order], features.features_of_training()[order]

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("network", "_of_training", "_training_table")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    # -- asked --------------------------------------------------------------------------------

    def fault(self, ratings: Dataset) -> str | None:
        if (self.config.users, self.config.items) != (ratings.n_users, ratings.n_items):
            return "the time features are those of other users or items"
        if self.config.levels != len(ratings.scale):
            return f"the scale {ratings.scale} has {len(ratings.scale)} levels"
        try:
            _ = self.features
        except DataError as error:
            return str(error)
        return None

    def scorer(self, rows: CsrRows) -> ComponentScorer:
        del rows
        return TimeScorer(self)


class TimeScorer:
    """What the time of a rating adds to the scores of pairs; their rows are users."""

    def __init__(self, component: TimeComponent) -> None:
        self._component = component

    def score_pairs(self, pairs: Pairs) -> Array:
        if pairs.times is None:
            _refuse("a prediction needs to know when; give timestamp=, in whole seconds since 1970")
        tables = self._component.arrays
        features = self._component.features.features(pairs.index, pairs.column, pairs.times)
        features = features.astype(tables["A"].dtype)
        units = np.tanh(features @ tables["M1"] + tables["m1"])
        steps: Array = features @ tables["A"] + units @ tables["M2"]
        return np.cumsum(steps, 1) if self._component.config.shared else steps

    def score_columns(self, rows: CsrRows) -> Array:
        del rows
        return _no_lists()

    def score_rows(self, columns: IntArray) -> Array:
        del columns
        return _no_lists()

    def fold_in_output(self) -> None:
        """Return None: no user or item has weights here."""


def _no_lists() -> NoReturn:
    _refuse(
        "it predicts given ratings at given times, and makes no lists or explanations; train one "
        "without time features for these"
    )


def _refuse(why: str) -> NoReturn:
    raise PredictionError(f"this model knows time: {why}")
