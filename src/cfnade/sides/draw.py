"""Draws: ratings to predict in a step, and what is known beside them, as every side reads them.

A member whose sides all read the same rows draws some of them: part of each row is context, the
rest target. One that reads both users and items draws a block of the table: its ratings are
targets, and context is what lies outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from cfnade.data.ratings import Ratings
from cfnade.errors import TrainingError
from cfnade.kernels.block_drawing import BlockSampler
from cfnade.kernels.drawing import DrawnBatch, Sampler
from cfnade.kernels.grouping import Grouped
from cfnade.models.batch import Batch, Context, Targets
from cfnade.settings import Settings

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Draw:
    """The same targets, T of them in one order, as rows of one axis or of both see them."""

    batches: Mapping[str, DrawnBatch]  # by what rows are
    rows: Mapping[str, Array]  # (B,) index of each row of a batch
    divisor: int
    """The cost is the weighted sum over targets divided by this: rows, or targets of a block."""

    @property
    def _first(self) -> tuple[str, DrawnBatch]:
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

    def targets(self, axis: str) -> Grouped:
        """The targets by column, each with its place in the draw's order."""
        targets = self.batches[axis].targets
        if len(targets.order) == len(targets.rows):
            return targets
        return targets._replace(order=np.arange(len(targets.rows)))

    def batch(self, axis: str, device: torch.device | str = "cpu") -> Batch:
        """Contexts and targets as plain torch reads them, targets in the draw's order."""
        drawn = self.batches[axis]
        known, asked = drawn.context_cells(), drawn.target_cells()
        offsets = np.concatenate([[0], np.cumsum(drawn.counts)])
        context = Context(*map(torch.from_numpy, (offsets, known.columns, known.levels)))
        targets = Targets(*map(torch.from_numpy, asked))
        return Batch(context, targets).to(device)


class Draws(Protocol):
    """Where a training step takes its ratings from."""

    n_rows: int
    settings: Settings
    """With the sizes of a batch filled in."""

    def share(self, axis: str | None) -> float:
        """The part of all columns that a block has; 0 if rows are drawn."""

    def draw(self, rows: Array, step: int) -> Draw:
        """From these rows, anew for every step."""


def draws_of(
    axes: tuple[Literal["user", "item"], ...],
    ratings: Ratings,
    settings: Settings,
    target_weight: str,
    threads: int,
) -> Draws:
    """Rows if all sides read the same ones, blocks if both users and items are read."""
    if not axes:
        raise TrainingError("no side reads ratings; name one that does, such as user or item")
    if len(axes) == 2:
        if settings.rates is None:
            raise TrainingError(
                'context_rate "paper" splits rows; a model of users and items draws blocks: give '
                "two rates"
            )
        return _BlockDraws(ratings, settings, threads)
    return _RowDraws(axes[0], ratings, settings, target_weight, threads)


class _RowDraws:
    def __init__(
        self,
        axis: Literal["user", "item"],
        ratings: Ratings,
        settings: Settings,
        target_weight: str,
        threads: int,
    ) -> None:
        rows = ratings.rows(axis)
        self.n_rows, self.settings, self._axis = len(rows), settings, axis
        self._sampler = Sampler(
            rows.offsets,
            rows.columns,
            rows.levels,
            n_columns=rows.n_columns,
            n_levels=rows.n_levels,
            rate=settings.rates,
            small=settings.small_contexts,
            weights=target_weight,
            threads=threads,
        )

    def share(self, axis: str | None) -> float:
        del axis
        return 0.0

    def draw(self, rows: Array, step: int) -> Draw:
        batch = self._sampler.draw(rows, seed=self.settings.seed, step=step)
        return Draw({self._axis: batch}, {self._axis: rows}, divisor=batch.size)


class _BlockDraws:
    """Rows are users; the items of a block are drawn for each step."""

    def __init__(self, ratings: Ratings, settings: Settings, threads: int) -> None:
        by_user, by_item = ratings.rows("user"), ratings.rows("item")
        users, items = settings.block(ratings.n_users, ratings.n_items)
        self.n_rows = ratings.n_users
        self.settings = settings.with_block(users, items)
        self._shares = {"user": items / ratings.n_items, "item": users / ratings.n_users}
        self._sampler = BlockSampler(
            (by_user.offsets, by_user.columns, by_user.levels),
            (by_item.offsets, by_item.columns, by_item.levels),
            columns=items,
            n_levels=by_user.n_levels,
            rate=settings.rates or (0.0, 1.0),
            threads=threads,
        )

    def share(self, axis: str | None) -> float:
        return self._shares[axis] if axis else 1.0

    def draw(self, rows: Array, step: int) -> Draw:
        block = self._sampler.draw(rows, seed=self.settings.seed, step=step)
        batches = {"user": block.user, "item": block.item}
        return Draw(batches, {"user": block.users, "item": block.items}, max(1, block.n_targets))
