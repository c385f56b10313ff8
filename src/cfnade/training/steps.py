"""One training step of a member: compiled kernels on a CPU, plain torch on any other device.

Both draw the same ratings and minimise the same cost; the plain one is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.components import Member, TorchComponent
from cfnade.components.batches import Array, Batch, BatchSampler, batch_sampler
from cfnade.components.optimizers import Adam
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import PairExchange
from cfnade.kernels.ordinal_cost import Cost, cost_of_scores
from cfnade.models.config import CFNADEConfig
from cfnade.models.losses import hybrid_cost

RowIds = npt.NDArray[np.int64]


class Stepper(Protocol):
    """Moves a member's parameters; all that it remembers is in `state`."""

    draws: BatchSampler

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        """Draw from these rows, move down the cost, and return that cost."""

    def state(self) -> dict[str, Tensor]:
        """What an interrupted run needs to go on, beside the parameters; shares memory."""

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go on from a state after that many steps."""


def stepper_of(
    member: Member,
    ratings: Dataset,
    fields: Mapping[str, Any],
    settings: TrainingConfig,
    *,
    device: str,
    threads: int,
) -> Stepper:
    """What trains a member on these ratings; of its fields the cost and its weights count here."""
    weights = fields.get("target_weight", CFNADEConfig.target_weight)
    ordinal_weight = float(fields.get("ordinal_weight", CFNADEConfig.ordinal_weight))
    sides = member.components.values()
    parts = {side.axis: side.part for side in sides if side.axis and side.part is not None}
    draws = batch_sampler(member.axes, ratings, settings, weights, threads, parts)
    if device == "cpu":
        return KernelStepper(member, ratings, draws, ordinal_weight, threads)
    return TorchStepper(member, ratings, draws, ordinal_weight)


class KernelStepper:
    """Every side by its own stepper; a side that is alone may take the whole step at once."""

    def __init__(
        self,
        member: Member,
        ratings: Dataset,
        draws: BatchSampler,
        ordinal_weight: float,
        threads: int,
    ) -> None:
        self.draws, self._levels = draws, len(ratings.scale)
        self._dtype = next(iter(member.state_dict().values())).cpu().numpy().dtype
        self._ordinal_weight, self._threads = ordinal_weight, threads
        self._group = next(iter(member.components.values())).group
        self._sides = {
            name: side.stepper(
                ratings, draws.settings, share=draws.share(side.axis), threads=threads
            )
            for name, side in _speaking(member).items()
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

    def _cost(self, draw: Batch, scores: Array) -> Cost:
        return cost_of_scores(
            scores,
            draw.levels,
            draw.weights,
            ordinal_weight=self._ordinal_weight,
            threads=self._threads,
        )

    def _step_of_two(self, draw: Batch, meeting: PairExchange, scores: Array, rate: float) -> float:
        """A step whose targets have two owners: the rank with the item makes the cost."""
        of_user, of_item = self._sides["user"], self._sides["item"]
        more = np.zeros((len(meeting.there), self._levels), self._dtype)
        of_user.add_scores(draw, scores)
        of_item.add_scores(draw, more)
        meeting.add_scores(scores, more)
        cost = self._cost(draw, scores)
        back = meeting.return_slopes(cost.slopes)
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
    """The same by autograd and plain Adam, wherever the member's parameters are."""

    def __init__(
        self, member: Member, ratings: Dataset, draws: BatchSampler, ordinal_weight: float
    ) -> None:
        self.draws, self._ordinal_weight = draws, ordinal_weight
        self._sides = _speaking(member)
        self._adams = {
            name: Adam(side, side.rules(ratings, draws.settings, share=draws.share(side.axis)))
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


def _speaking(member: Member) -> dict[str, TorchComponent]:
    """The sides that say something while they are trained."""
    return {name: side for name, side in member.components.items() if not side.tunes}


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}/"
    return {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
