"""Batches: ratings to predict in a step, and what is known beside them, for every component.

A member whose sides all read the same rows draws some of them: part of each row is context, the
rest target. One that reads both users and items draws a block of the table: its ratings are
targets, and context is what lies outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import ColumnPartition, PairExchange, pair_exchange
from cfnade.distributed.process_group import SINGLE_PROCESS
from cfnade.exceptions import TrainingError
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.sampling import BlockSampler, GroupedBatch, RowSampler
from cfnade.models.batch import Context, ModelBatch, Targets

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """The same targets, T of them in one order, as rows of one axis or of both see them."""

    batches: Mapping[str, GroupedBatch]  # by what rows are
    rows: Mapping[str, Array]  # (B,) index of each row of a batch
    divisor: int
    """The cost is the weighted sum over targets divided by this: rows, or targets of a block."""
    empty: bool
    """Whether there are no targets, on other ranks neither."""
    meeting: PairExchange | None = None
    """Where the scores of users and of items meet, if they lie on several ranks."""

    @property
    def _first(self) -> tuple[str, GroupedBatch]:
        return next(iter(self.batches.items()))

    @property
    def n_targets(self) -> int:
        return len(self._first[1].targets.rows)

    @property
    def levels(self) -> Array:
        """The true level of each target. Returns (T,)."""
        return self._first[1].targets.levels

    @property
    def weights(self) -> Array:
        """What the cost of each target counts. Returns (T,)."""
        return np.asarray(self._first[1].targets.weights / self.divisor)

    @cached_property
    def cells(self) -> dict[str, Array]:
        """User and item of each target, by index. Returns (T,) each."""
        axis, batch = self._first
        other = "item" if axis == "user" else "user"
        return {axis: self.rows[axis][batch.targets.rows], other: batch.targets.columns()}

    def targets(self, axis: str) -> ColumnGroups:
        """The targets by column, each with its place in the draw's order."""
        targets = self.batches[axis].targets
        if len(targets.order) == len(targets.rows):
            return targets
        return targets._replace(order=np.arange(len(targets.rows)))

    def batch(self, axis: str, device: torch.device | str = "cpu") -> ModelBatch:
        """Contexts and targets as plain torch reads them, targets in the draw's order."""
        drawn = self.batches[axis]
        context_cells, asked = drawn.context_cells(), drawn.target_cells()
        offsets = np.concatenate([[0], np.cumsum(drawn.context_sizes)])
        context = Context(
            *map(torch.from_numpy, (offsets, context_cells.columns, context_cells.levels))
        )
        targets = Targets(*map(torch.from_numpy, asked))
        return ModelBatch(context, targets).to(device)


class BatchSampler(Protocol):
    """Where a training step takes its ratings from."""

    n_rows: int
    settings: TrainingConfig
    """With the sizes of a batch filled in."""

    def share(self, axis: str | None) -> float:
        """The part of all columns that a block has; 0 if rows are drawn."""

    at_once: int
    """How many steps' draws are best made together."""

    def expect(self, batches: Sequence[Array], step: int) -> None:
        """The rows of this step and the following ones, which may be drawn together now."""

    def draw(self, rows: Array, step: int) -> Batch:
        """From these rows, anew for every step."""


def batch_sampler(
    axes: tuple[Literal["user", "item"], ...],
    ratings: Dataset,
    settings: TrainingConfig,
    target_weight: str,
    threads: int,
    parts: Mapping[Literal["user", "item"], ColumnPartition] | None = None,
) -> BatchSampler:
    """Rows if all sides read the same ones, blocks if both users and items are read.

    parts say of which rows these are the ratings in some columns, by what the rows are.
    """
    if not axes:
        raise TrainingError("no side reads ratings; name one that does, such as user or item")
    if len(axes) == 2:
        if settings.context_range is None:
            raise TrainingError(
                'context_rate "paper" splits rows; a model of users and items draws blocks: give '
                "two rates"
            )
        return _BlockDraws(ratings, settings, threads, parts)
    part = (parts or {}).get(axes[0])
    return _RowDraws(axes[0], ratings, settings, target_weight, threads, part)


class _RowDraws:
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
        self.n_rows, self.settings, self._axis = len(rows), settings, axis
        self._counts = None if part is None else part.rows.sizes
        self.at_once = threads if part is None else 1
        self._expected: dict[int, tuple[Array, GroupedBatch]] = {}
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

    def expect(self, batches: Sequence[Array], step: int) -> None:
        if step not in self._expected:
            drawn = self._sampler.sample_many(batches, seed=self.settings.seed, step=step)
            pairs = zip(batches, drawn, strict=True)
            self._expected = {step + n: pair for n, pair in enumerate(pairs)}

    def draw(self, rows: Array, step: int) -> Batch:
        expected = self._expected.pop(step, None)
        if expected is not None and np.array_equal(rows, expected[0]):
            batch = expected[1]
        else:
            batch = self._sampler.sample(rows, seed=self.settings.seed, step=step)
        empty = len(batch.targets.rows) == 0
        if self._counts is not None:
            empty = int(batch.context_sizes.sum()) == int(self._counts[rows].sum())
        return Batch({self._axis: batch}, {self._axis: rows}, divisor=batch.size, empty=empty)


class _BlockDraws:
    """Rows are users; the items of a block are drawn for each step."""

    at_once = 1

    def __init__(
        self,
        ratings: Dataset,
        settings: TrainingConfig,
        threads: int,
        parts: Mapping[Literal["user", "item"], ColumnPartition] | None,
    ) -> None:
        shared = [parts["user"], parts["item"]] if parts else []
        self._parts = shared
        by_user, by_item = ratings.rows("user"), ratings.rows("item")
        users, items = settings.block_shape(ratings.n_users, ratings.n_items)
        self.n_rows = ratings.n_users
        self.settings = settings.with_block_shape(users, items)
        self._shares = {"user": items / ratings.n_items, "item": users / ratings.n_users}
        self._sampler = BlockSampler(
            (by_user.offsets, by_user.columns, by_user.levels),
            (by_item.offsets, by_item.columns, by_item.levels),
            columns=items,
            n_levels=by_user.n_levels,
            rate=settings.context_range or (0.0, 1.0),
            threads=threads,
            parts=(shared[0].block, shared[1].block) if shared else None,
            group=shared[0].group if shared else SINGLE_PROCESS,
        )

    def expect(self, batches: Sequence[Array], step: int) -> None:
        pass

    def share(self, axis: str | None) -> float:
        return self._shares[axis] if axis else 1.0

    def draw(self, rows: Array, step: int) -> Batch:
        block = self._sampler.sample(rows, seed=self.settings.seed, step=step)
        batches = {"user": block.user, "item": block.item}
        rows_of = {"user": block.users, "item": block.items}
        if not self._parts:
            return Batch(batches, rows_of, max(1, block.n_targets), empty=block.n_targets == 0)
        of_user, of_item = self._parts
        by_item, by_user = block.user.targets, block.item.targets
        meeting = pair_exchange(
            of_user.group,
            of_user.owner,
            (block.users[by_item.rows], of_user.columns[by_item.columns()]),
            (of_item.columns[by_user.columns()], block.items[by_user.rows]),
        )
        count = int(of_user.group.total(block.n_targets))
        return Batch(batches, rows_of, max(1, count), empty=count == 0, meeting=meeting)
