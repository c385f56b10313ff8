"""A side that can be trained: a torch network, how it is made from ratings, and what moves it.

It predicts with its weights (`ComponentWeights`): its network's own memory as arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from cfnade._typing import IntArray
from cfnade.components.base import (
    AnsweringMember,
    Array,
    Axis,
    Before,
    Component,
    ComponentWeights,
    Reading,
    column_fault,
)
from cfnade.components.batches import Batch
from cfnade.components.optimizers import FixedTrainer
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.column_groups import Cells, RowRatings
from cfnade.kernels.posterior import Evidence
from cfnade.models.batch import Context


class Trainer(Protocol):
    """Moves the parameters of one side; all that it remembers is in `state`."""

    def add_scores(self, draw: Batch, scores: Array) -> None:
        """Add to the scores (T, K) of the draw's targets."""

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        """Move by the gradient (T, K) of the scores that were asked for last."""

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        """The whole step of a member without other sides, and its cost; None: it has no such."""

    def state(self) -> dict[str, Tensor]:
        """What an interrupted run needs to go on, beside the parameters; shares memory."""

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go on from a state after that many steps."""


class TorchComponent(nn.Module, Component):
    """A network with its place in a member. Parameters are zero until `start` or a checkpoint."""

    starts_well: bool = False
    """Whether its start is a model by itself, which validation may prefer to a trained one."""
    tunes: bool = False
    """Whether it has a `gain` and a `shift` (components/neighborhood.py), fitted to validation
    ratings after training; both are 0 before."""
    trust: float = 1.0
    """What a member with it counts beside others, as far as validation cannot tell."""
    network: nn.Module
    part: ColumnPartition | None = None
    """Which columns it has, if ranks share them; it is then made for ratings in these alone."""
    by_column: tuple[str, ...] = ()
    """Its tensors that have a row for each column; without any, ranks cannot share it."""

    @property
    def group(self) -> ProcessGroup:
        """Who has the other columns."""
        return SINGLE_PROCESS if self.part is None else self.part.group

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    @abstractmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        """For these ratings; fields are those of the model that do not follow from the data."""

    @abstractmethod
    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        """Fill the parameters. A member's first side says how often each level comes at all."""

    @classmethod
    @abstractmethod
    def from_saved(
        cls, axis: Axis | None, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        """From what `to_dict` and `arrays` gave."""

    @abstractmethod
    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        """Take the weights of an earlier model's side, those of columns where ids are the same."""

    def update(self, ratings: Dataset, trained: IntArray, settings: TrainingConfig) -> None:
        """What is made and not trained is made again, from where it stands: ratings have come.

        trained (M, K): those that each column had at each level until now; a new one has none.
        """

    # -- trained ------------------------------------------------------------------------------

    def finish(self, ratings: Dataset, member: Member) -> None:
        """A last touch after training, if it has any, beside the other sides of its member."""

    @abstractmethod
    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        """Rate and L2 of each parameter by its name in the network.

        share is 0 for a cost that is a mean over rows; for a mean over the targets of a block it
        is the part of all columns that a block has.
        """

    @abstractmethod
    def plain_scores(self, draw: Batch) -> Tensor:
        """Scores of the draw's targets in plain torch, differentiable. Returns (T, K)."""

    @abstractmethod
    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        """What trains it on a CPU."""

    def shared_scores(
        self, known: RowRatings, counts: IntArray, cells: Cells, trained: IntArray
    ) -> Array:
        """Scores of cells in the own columns, of rows of which each rank knows its own ratings.

        All ranks ask of the same rows at once, each for its own cells; counts (B,) are those of
        whole rows, trained (M,) the training ratings of the own columns. Returns (n, K).
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be shared")

    # -- asked --------------------------------------------------------------------------------

    def weights(self) -> ComponentWeights:
        """Its numbers as they are now, in the network's memory."""
        raise NotImplementedError(f"{type(self).__name__} answers by itself")

    def reading(self, context: Dataset) -> Reading:
        return self.weights().reading(context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        return self.weights().vectors(context, axis)

    def evidence(self) -> Evidence | None:
        return self.weights().evidence()


def tables_of(network: nn.Module) -> dict[str, Array]:
    """Its numbers by name, in the same memory."""
    return {
        name: np.asarray(tensor.numpy(), order="C") for name, tensor in network.state_dict().items()
    }


class Member(nn.Module, AnsweringMember):
    """Sides that are trained together."""

    def __init__(self, sides: Mapping[str, TorchComponent]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(dict(sides))

    @property
    def components(self) -> dict[str, TorchComponent]:
        """The sides by name, in their order."""
        return {name: part for name, part in self.parts.items() if isinstance(part, TorchComponent)}

    def tables(self) -> dict[str, Array]:
        return {
            f"{name}.{key}": table
            for name, side in self.components.items()
            for key, table in tables_of(side.network).items()
        }

    def trainable(self) -> Member:
        return self


class TorchRowComponent(TorchComponent):
    """What CF-NADE, ridge and factor analysis have in common."""

    axis: Axis
    network: Any
    """With a `config`, `hidden(context)` and `scores(hidden, rows, columns)`."""

    def __init__(self, axis: Axis, network: Any) -> None:
        super().__init__()
        self.axis, self.network = axis, network

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.network.config.to_dict()
        return fields

    @classmethod
    def from_saved(
        cls, axis: Axis | None, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        del arrays
        assert axis is not None
        return cls(axis, cls.empty(fields))

    @staticmethod
    @abstractmethod
    def empty(fields: Mapping[str, Any]) -> Any:
        """A network of these fields, which `to_dict` gave, before its tensors are read."""

    def fault(self, ratings: Dataset) -> str | None:
        return column_fault(self.network.config, ratings, self.axis)

    def plain_scores(self, draw: Batch) -> Tensor:
        device = next(iter(self.network.state_dict().values())).device
        batch = draw.batch(self.axis, device)
        return self.scores_given(batch.context, batch.targets.rows, batch.targets.columns)

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells in plain torch, each of a row of the context. Returns (n, K)."""
        scores: Tensor = self.network.scores(self.network.hidden(context), rows, columns)
        return scores


class ClosedFormComponent(TorchRowComponent):
    """What factor analysis and neighbourhoods have in common; a subclass says how it is made."""

    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        """Nothing: it is made in seconds and knows the new ratings."""

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        del ratings, settings, share
        return {}

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> FixedTrainer:
        del ratings, settings, share, threads
        return FixedTrainer(self)
