"""One training step of a member: compiled kernels on a CPU, plain torch on any other device.

Both sample the same batches and minimize the same cost; the plain one is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.kernels.costing import Cost, cost_of
from cfnade.models.config import CFNADEConfig
from cfnade.models.costs import hybrid_cost
from cfnade.sides import Member, Side
from cfnade.sides.draw import Array, Draw, Draws, draws_of
from cfnade.sides.meeting import Meeting
from cfnade.sides.stepping import PlainAdam

RowIds = npt.NDArray[np.int64]


class EpochSampler:
    """The rows of an epoch in random order, in batches of equal size.

    A last batch of a few rows would move the model as far as a full one.
    """

    def __init__(self, draws: Draws) -> None:
        rows, config = draws.n_rows, draws.settings
        batches = max(1, math.ceil(rows / config.batch_size(rows)))
        ends = range(1, batches * config.passes + 1)
        self._draws, self._ends = draws, [rows * i // batches for i in ends]
        self.n_steps, self.n_rows = len(self._ends), rows * config.passes

    def epoch(self, epoch: int, *, first_row: int, step: int) -> Iterator[RowIds]:
        rng = np.random.default_rng((self._draws.settings.seed, epoch))
        passes = range(self._draws.settings.passes)
        order = np.concatenate([rng.permutation(self._draws.n_rows) for _ in passes])
        bounds = [first_row, *(end for end in self._ends if end > first_row)]
        batches = [order[first:end] for first, end in pairwise(bounds)]
        for number, rows in enumerate(batches):
            # Batches that one thread each samples.
            self._draws.expect(batches[number : number + self._draws.at_once], step + number)
            yield rows


def make_stepper(
    member: Member,
    ratings: Dataset,
    fields: Mapping[str, Any],
    settings: TrainingConfig,
    *,
    device: str,
    threads: int,
) -> KernelStepper | TorchStepper:
    """Return the stepper of a member; of its fields, those of the cost are used here."""
    weights = fields.get("target_weight", CFNADEConfig.target_weight)
    ordinal_weight = float(fields.get("ordinal_weight", CFNADEConfig.ordinal_weight))
    sides = member.sides.values()
    parts = {side.axis: side.part for side in sides if side.axis and side.part is not None}
    draws = draws_of(member.axes, ratings, settings, weights, threads, parts)
    if device == "cpu":
        return KernelStepper(member, ratings, draws, ordinal_weight, threads)
    return TorchStepper(member, ratings, draws, ordinal_weight)


class KernelStepper:
    """Updates each component by its own kernels; a single one may do the whole step at once."""

    def __init__(
        self,
        member: Member,
        ratings: Dataset,
        draws: Draws,
        ordinal_weight: float,
        threads: int,
    ) -> None:
        self.draws, self._levels = draws, len(ratings.scale)
        self._dtype = next(iter(member.state_dict().values())).cpu().numpy().dtype
        self._ordinal_weight, self._threads = ordinal_weight, threads
        self._group = next(iter(member.sides.values())).group
        self._sides = {
            name: side.stepper(
                ratings, draws.settings, share=draws.share(side.axis), threads=threads
            )
            for name, side in _trained_components(member).items()
        }

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        draw, sides = self.draws.draw(rows, step), list(self._sides.values())
        if len(sides) == 1:
            cost_at_once = sides[0].step_at_once(draw, rate)
            if cost_at_once is not None:
                return cost_at_once
        if draw.empty:
            return 0.0
        scores = np.zeros((draw.n_targets, self._levels), self._dtype)
        if draw.meeting is not None:
            return self._step_of_two(draw, draw.meeting, scores, rate)
        for side in sides:
            side.add_scores(draw, scores)
        cost = self._cost(draw, scores)
        for side in sides:
            side.fit(draw, cost.slopes, rate)
        return self._group.total(cost.total)

    def _cost(self, draw: Draw, scores: Array) -> Cost:
        return cost_of(
            scores,
            draw.levels,
            draw.weights,
            ordinal_weight=self._ordinal_weight,
            threads=self._threads,
        )

    def _step_of_two(self, draw: Draw, meeting: Meeting, scores: Array, rate: float) -> float:
        """Make a step whose targets have two owners: the rank of the item computes the cost."""
        of_user, of_item = self._sides["user"], self._sides["item"]
        more = np.zeros((len(meeting.there), self._levels), self._dtype)
        of_user.add_scores(draw, scores)
        of_item.add_scores(draw, more)
        meeting.bring(scores, more)
        cost = self._cost(draw, scores)
        back = meeting.take_back(cost.slopes)
        of_user.fit(draw, cost.slopes, rate)
        of_item.fit(draw, back, rate)
        return self._group.total(cost.total)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{key}": tensor
            for name, side in self._sides.items()
            for key, tensor in side.state().items()
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        for name, side in self._sides.items():
            side.restore(_part(state, name), steps)


class TorchStepper:
    """The same by autograd and plain Adam, on the device of the parameters."""

    def __init__(
        self, member: Member, ratings: Dataset, draws: Draws, ordinal_weight: float
    ) -> None:
        self.draws, self._ordinal_weight = draws, ordinal_weight
        self._sides = _trained_components(member)
        self._adams = {
            name: PlainAdam(side, side.rules(ratings, draws.settings, share=draws.share(side.axis)))
            for name, side in self._sides.items()
            if list(side.parameters())
        }

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        draw = self.draws.draw(rows, step)
        if draw.empty:
            return 0.0
        parts = [side.plain_scores(draw) for side in self._sides.values()]
        scores = torch.stack(parts).sum(0)  # (T, K)
        levels = torch.from_numpy(draw.levels.astype(np.int64)).to(scores.device)
        weights = torch.from_numpy(draw.weights).to(scores)
        cost = (weights * hybrid_cost(scores, levels, self._ordinal_weight)).sum()
        cost.backward()  # type: ignore[no-untyped-call]
        for adam in self._adams.values():
            adam.move(rate)
        return float(cost.detach())

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{key}": tensor
            for name, adam in self._adams.items()
            for key, tensor in adam.state().items()
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        for name, adam in self._adams.items():
            adam.restore(_part(state, name))


def _trained_components(member: Member) -> dict[str, Side]:
    """Return the components that add to the scores in training."""
    return {name: side for name, side in member.sides.items() if not side.tunes}


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}/"
    return {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
