"""Batches of ratings: the context and the targets of a training step, for every component.

If all components of a member read the same rows, a batch is some of these rows: part of each is
context, the rest targets. If they read both users and items, a batch is a block of the table: its
ratings are targets, and context is what lies outside of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import ColumnPartition, PairExchange, pair_exchange
from cfnade.distributed.process_group import SINGLE_PROCESS
from cfnade.exceptions import TrainingError
from cfnade.kernels.block_sampling import BlockSampler
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.sampling import GroupedBatch, RowSampler
from cfnade.models.batch import Context, ModelBatch, Targets

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """The same T targets in one order, as rows of one axis or of both see them."""

    batches: Mapping[str, GroupedBatch]  # by what rows are
    rows: Mapping[str, Array]  # (B,) index of each row of a batch
    divisor: int
    """The cost is the weighted sum over targets divided by this: rows, or targets of a block."""
    empty: bool
    """Whether there are no targets, in any process."""
    exchange: PairExchange | None = None
    """Adds up scores of users and of items that several processes hold."""

    @property
    def _first(self) -> tuple[str, GroupedBatch]:
        return next(iter(self.batches.items()))

    @property
    def n_rows(self) -> int:
        """Rows of the epoch's order that the batch covers."""
        return len(self.rows[self._first[0]])

    @property
    def n_targets(self) -> int:
        return len(self._first[1].targets.rows)

    @property
    def levels(self) -> Array:
        """The true level of each target, (T,)."""
        return self._first[1].targets.levels

    @property
    def weights(self) -> Array:
        """The weight of each target in the cost, (T,)."""
        return np.asarray(self._first[1].targets.weights / self.divisor)

    @cached_property
    def cells(self) -> dict[str, Array]:
        """User and item of each target by index, (T,) each."""
        axis, batch = self._first
        columns = "item" if axis == "user" else "user"
        return {axis: self.rows[axis][batch.targets.rows], columns: batch.targets.columns()}

    def targets(self, axis: str) -> ColumnGroups:
        """Return the targets by column, with the place of each in the batch's order."""
        targets = self.batches[axis].targets
        if len(targets.order) == len(targets.rows):
            return targets
        return targets._replace(order=np.arange(len(targets.rows)))

    def batch(self, axis: str, device: torch.device | str = "cpu") -> ModelBatch:
        """Return contexts and targets for plain torch, targets in the batch's order."""
        batch = self.batches[axis]
        context_cells, target_cells = batch.context_cells(), batch.target_cells()
        offsets = np.concatenate([[0], np.cumsum(batch.context_sizes)])
        context = Context(
            *map(torch.from_numpy, (offsets, context_cells.columns, context_cells.levels))
        )
        targets = Targets(*map(torch.from_numpy, target_cells))
        return ModelBatch(context, targets).to(device)


class BatchSampler(ABC):
    """Samples the batches of an epoch: its rows in random order, in batches of equal size.

    A last batch of a few rows would move the model as far as a full one. What is sampled depends on
    the seed, the epoch and the step only.
    """

    at_once = 1
    """Batches that are best sampled together."""

    def __init__(self, n_rows: int, settings: TrainingConfig) -> None:
        """Prepare epochs of so many rows; `settings` have the batch sizes filled in."""
        batches = max(1, math.ceil(n_rows / settings.batch_size(n_rows)))
        ends = range(1, batches * settings.passes + 1)
        self.n_rows, self.settings = n_rows, settings
        self._ends = [n_rows * number // batches for number in ends]
        self.n_steps, self.rows_per_epoch = len(self._ends), n_rows * settings.passes

    def epoch(self, epoch: int, *, first_row: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from a row of its order on."""
        rng = np.random.default_rng((self.settings.seed, epoch))
        order = np.concatenate([rng.permutation(self.n_rows) for _ in range(self.settings.passes)])
        first = sum(end <= first_row for end in self._ends) if first_row else 0
        batches = np.split(order, self._ends[:-1])
        for number in range(first, self.n_steps, self.at_once):
            step = epoch * self.n_steps + number
            yield from self.sample_many(batches[number : number + self.at_once], step)

    @abstractmethod
    def share(self, axis: str | None) -> float:
        """Return the fraction of all columns that a block has; 0 if a batch is rows."""

    @abstractmethod
    def sample(self, rows: Array, step: int) -> Batch:
        """Return the batch of these rows in the step of this number."""

    def sample_many(self, batches: Sequence[Array], step: int) -> list[Batch]:
        """Return the batches of this step and the following ones."""
        return [self.sample(rows, step + number) for number, rows in enumerate(batches)]


def batch_sampler(
    axes: tuple[Literal["user", "item"], ...],
    ratings: Dataset,
    settings: TrainingConfig,
    target_weight: str,
    threads: int,
    parts: Mapping[Literal["user", "item"], ColumnPartition] | None = None,
) -> BatchSampler:
    """Return the sampler of rows for one axis, of blocks for both.

    Args:
        axes: What the components of a member condition on.
        ratings: The training part.
        settings: Batch sizes, context rate and seed.
        target_weight: See `CFNADEConfig`.
        threads: Number of threads.
        parts: By axis, the columns that this process holds of rows that several share.
    """
    if not axes:
        raise TrainingError("no side reads ratings; name one that does, such as user or item")
    if len(axes) == 2:
        if settings.context_range is None:
            raise TrainingError(
                'context_rate "paper" splits rows; a model of users and items samples blocks: give '
                "two rates"
            )
        return _BlockBatchSampler(ratings, settings, threads, parts)
    part = (parts or {}).get(axes[0])
    return _RowBatchSampler(axes[0], ratings, settings, target_weight, threads, part)


class _RowBatchSampler(BatchSampler):
    def __init__(
        self,
        axis: Literal["user", "item"],
        ratings: Dataset,
        settings: TrainingConfig,
        target_weight: str,
        threads: int,
        part: ColumnPartition | None,
    ) -> None:
        rows = ratings.rows(axis)
        super().__init__(len(rows), settings)
        self._axis = axis
        self._row_sizes = None if part is None else part.rows.sizes
        self.at_once = threads if part is None else 1  # one thread samples each
        self._sampler = RowSampler(
            rows.offsets,
            rows.columns,
            rows.levels,
            n_columns=rows.n_columns,
            n_levels=rows.n_levels,
            rate=settings.context_range,
            small=settings.small_contexts,
            weights=target_weight,
            threads=threads,
            partial=part and part.rows,
            group=SINGLE_PROCESS if part is None else part.group,
        )

    def share(self, axis: str | None) -> float:
        del axis
        return 0.0

    def sample(self, rows: Array, step: int) -> Batch:
        return self._batch(rows, self._sampler.sample(rows, seed=self.settings.seed, step=step))

    def sample_many(self, batches: Sequence[Array], step: int) -> list[Batch]:
        if self.at_once == 1:
            return super().sample_many(batches, step)
        samples = self._sampler.sample_many(batches, seed=self.settings.seed, step=step)
        return list(map(self._batch, batches, samples))

    def _batch(self, rows: Array, batch: GroupedBatch) -> Batch:
        empty = len(batch.targets.rows) == 0
        if self._row_sizes is not None:
            empty = int(batch.context_sizes.sum()) == int(self._row_sizes[rows].sum())
        return Batch({self._axis: batch}, {self._axis: rows}, divisor=batch.size, empty=empty)


class _BlockBatchSampler(BatchSampler):
    """Rows are users; the items of a block are sampled for each step."""

    def __init__(
        self,
        ratings: Dataset,
        settings: TrainingConfig,
        threads: int,
        parts: Mapping[Literal["user", "item"], ColumnPartition] | None,
    ) -> None:
        users, items = settings.block_shape(ratings.n_users, ratings.n_items)
        super().__init__(ratings.n_users, replace(settings, batch_rows=users, batch_columns=items))
        partitions = [parts["user"], parts["item"]] if parts else []
        self._partitions = partitions
        by_user, by_item = ratings.rows("user"), ratings.rows("item")
        self._shares = {"user": items / ratings.n_items, "item": users / ratings.n_users}
        self._sampler = BlockSampler(
            (by_user.offsets, by_user.columns, by_user.levels),
            (by_item.offsets, by_item.columns, by_item.levels),
            columns=items,
            n_levels=by_user.n_levels,
            rate=settings.context_range or (0.0, 1.0),
            threads=threads,
            parts=(partitions[0].block, partitions[1].block) if partitions else None,
            group=partitions[0].group if partitions else SINGLE_PROCESS,
        )

    def share(self, axis: str | None) -> float:
        return self._shares[axis] if axis else 1.0

    def sample(self, rows: Array, step: int) -> Batch:
        block = self._sampler.sample(rows, seed=self.settings.seed, step=step)
        batches = {"user": block.user, "item": block.item}
        rows_of = {"user": block.users, "item": block.items}
        if not self._partitions:
            return Batch(batches, rows_of, max(1, block.n_targets), empty=block.n_targets == 0)
        of_user, of_item = self._partitions
        by_item, by_user = block.user.targets, block.item.targets
        exchange = pair_exchange(
            of_user.group,
            of_user.owner,
            (block.users[by_item.rows], of_user.columns[by_item.columns()]),
            (of_item.columns[by_user.columns()], block.items[by_user.rows]),
        )
        count = int(of_user.group.total(block.n_targets))
        return Batch(batches, rows_of, max(1, count), empty=count == 0, exchange=exchange)
