"""The side that knows when: what the moment of a rating adds to its scores.

It reads no rows, only the time features of a cell (components/time_features.py), so it makes no
lists: a prediction needs a timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Before
from cfnade.components.batches import Batch
from cfnade.components.optimizers import TorchTrainer
from cfnade.components.time_features import FEATURES, TimeFeatures
from cfnade.components.time_reading import TimeWeights, check_features
from cfnade.components.trainable import TorchComponent, tables_of
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels.adam import AdamRule
from cfnade.models.time import TimeNetwork

DECAY = 1e-4
"""L2 of the weights, in the gradient of the mean cost of a target."""


class TimeComponent(TorchComponent):
    """A small network of time features beside sides that read rows."""

    axis: Axis | None = None
    needs_times = True
    network: TimeNetwork

    def __init__(self, network: TimeNetwork, features: TimeFeatures) -> None:
        super().__init__()
        self.network, self._moments = network, Moments(features)

    @property
    def features(self) -> TimeFeatures:
        return self._moments.features

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        del axis
        if ratings.times is None:
            raise TrainingError("time features need ratings with timestamps; these have none")
        shared = fields.get("shared", True)
        network = TimeNetwork(len(FEATURES), len(ratings.scale), shared=shared)
        return cls(network, TimeFeatures.of(ratings))

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        del ratings, settings
        if not before:
            raise TrainingError("time features go beside another side, such as user, item or both")
        self.network.initialise(generator)

    def weights(self) -> TimeWeights:
        return TimeWeights(tables_of(self.network), self.features, shared=self.network.shared)

    def to_dict(self) -> dict[str, Any]:
        return self.weights().to_dict()

    @classmethod
    def from_saved(
        cls, axis: Axis | None, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        del axis
        check_features(fields)
        network = TimeNetwork(len(FEATURES), int(fields["levels"]), shared=bool(fields["shared"]))
        return cls(network, TimeFeatures.from_arrays(arrays))

    def arrays(self) -> dict[str, Array]:
        return self.features.arrays()

    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        del ratings, earlier_ratings
        self.network.load_state_dict(earlier.network.state_dict())

    def fault(self, ratings: Dataset) -> str | None:
        return self.weights().fault(ratings)

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        del ratings, share
        names = [name for name, _ in self.network.named_parameters()]
        rate = settings.learning_rate
        return {name: AdamRule(rate=rate, decay=0.0 if name == "m1" else DECAY) for name in names}

    def plain_scores(self, draw: Batch) -> Tensor:
        features = self._moments.of_training(draw.cells["user"], draw.cells["item"])
        added: Tensor = self.network(features.to(self.network.A))
        return added

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> TorchTrainer:
        del threads
        return TorchTrainer(self, self.rules(ratings, settings, share=share))


class Moments:
    """The features of the training ratings, found by user and item. It does not change."""

    def __init__(self, features: TimeFeatures) -> None:
        self.features = features

    def __deepcopy__(self, memo: dict[int, Any]) -> Moments:
        return self  # averaged weights share it

    def of_training(self, users: IntArray, items: IntArray) -> Tensor:
        """Features of training ratings, each left out of its own. Returns (n, F)."""
        keys, features = self._table
        cells = items * len(self.features.user) + users
        return features[torch.from_numpy(np.searchsorted(keys, cells))]

    @cached_property
    def _table(self) -> tuple[IntArray, Tensor]:
        train = self.features.training
        if train is None:
            raise TrainingError("training needs the time features of the training ratings")
        keys = train.items.astype(np.int64) * train.n_users + train.users
        order = np.argsort(keys)  # by item and user: the order of a block's targets, nearly
        return keys[order], torch.from_numpy(self.features.features_of_training()[order])
