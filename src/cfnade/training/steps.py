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


class EpochSampler:
    """The rows of an epoch in random order, in batches of equal size.

    A last batch of a few rows would move the model as far as a full one.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        rows, config = sampler.n_rows, sampler.settings
        batches = max(1, math.ceil(rows / config.batch_size(rows)))
        ends = range(1, batches * config.passes + 1)
        self._sampler, self._ends = sampler, [rows * i // batches for i in ends]
        self.n_steps, self.n_rows = len(self._ends), rows * config.passes

    def epoch(self, epoch: int, *, first_row: int, step: int) -> Iterator[RowIds]:
        rng = np.random.default_rng((self._sampler.settings.seed, epoch))
        passes = range(self._sampler.settings.passes)
        order = np.concatenate([rng.permutation(self._sampler.n_rows) for _ in passes])
        bounds = [first_row, *(end for end in self._ends if end > first_row)]
        batches = [order[first:end] for first, end in pairwise(bounds)]
        for number, rows in enumerate(batches):
            # Batches that one thread each samples.
            self._sampler.expect(batches[number : number + self._sampler.at_once], step + number)
            yield rows


def make_stepper(
    member: Member,
    ratings: Dataset,
    fields: Mapping[str, Any],
    config: TrainingConfig,
    *,
    device: str,
    threads: int,
) -> KernelStepper | TorchStepper:
    """Return the stepper of a member; of its fields, those of the cost are used here."""
    weights = fields.get("target_weight", CFNADEConfig.target_weight)
    ordinal_weight = float(fields.get("ordinal_weight", CFNADEConfig.ordinal_weight))
    components = member.components.values()
    parts = {one.axis: one.part for one in components if one.axis and one.part is not None}
    sampler = batch_sampler(member.axes, ratings, config, weights, threads, parts)
    if device == "cpu":
        return KernelStepper(member, ratings, sampler, ordinal_weight, threads)
    return TorchStepper(member, ratings, sampler, ordinal_weight)


class KernelStepper:
    """Updates each component by its own kernels; a single one may do the whole step at once."""

    def __init__(
        self,
        member: Member,
        ratings: Dataset,
        sampler: BatchSampler,
        ordinal_weight: float,
        threads: int,
    ) -> None:
        self.sampler, self._levels = sampler, len(ratings.scale)
        self._dtype = next(iter(member.state_dict().values())).cpu().numpy().dtype
        self._ordinal_weight, self._threads = ordinal_weight, threads
        self._group = next(iter(member.components.values())).group
        self._trainers = {
            name: component.stepper(
                ratings, sampler.settings, share=sampler.share(component.axis), threads=threads
            )
            for name, component in _trained_components(member).items()
        }

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        batch, trainers = self.sampler.draw(rows, step), list(self._trainers.values())
        if len(trainers) == 1:
            cost_at_once = trainers[0].step_at_once(batch, rate)
            if cost_at_once is not None:
                return cost_at_once
        if batch.empty:
            return 0.0
        scores = np.zeros((batch.n_targets, self._levels), self._dtype)
        if batch.meeting is not None:
            return self._exchanged_step(batch, batch.meeting, scores, rate)
        for trainer in trainers:
            trainer.add_scores(batch, scores)
        cost = self._cost(batch, scores)
        for trainer in trainers:
            trainer.fit(batch, cost.slopes, rate)
        return self._group.total(cost.total)

    def _cost(self, batch: Batch, scores: Array) -> Cost:
        return cost_of_scores(
            scores,
            batch.levels,
            batch.weights,
            ordinal_weight=self._ordinal_weight,
            threads=self._threads,
        )

    def _exchanged_step(
        self, batch: Batch, exchange: PairExchange, scores: Array, rate: float
    ) -> float:
        """Make a step whose targets have two owners: the rank of the item computes the cost."""
        of_user, of_item = self._trainers["user"], self._trainers["item"]
        more = np.zeros((len(exchange.there), self._levels), self._dtype)
        of_user.add_scores(batch, scores)
        of_item.add_scores(batch, more)
        exchange.add_scores(scores, more)
        cost = self._cost(batch, scores)
        back = exchange.return_slopes(cost.slopes)
        of_user.fit(batch, cost.slopes, rate)
        of_item.fit(batch, back, rate)
        return self._group.total(cost.total)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{key}": tensor
            for name, trainer in self._trainers.items()
            for key, tensor in trainer.state().items()
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        for name, trainer in self._trainers.items():
            trainer.restore(_part(state, name), steps)


class TorchStepper:
    """The same by autograd and plain Adam, on the device of the parameters."""

    def __init__(
        self, member: Member, ratings: Dataset, sampler: BatchSampler, ordinal_weight: float
    ) -> None:
        self.sampler, self._ordinal_weight = sampler, ordinal_weight
        self._components = _trained_components(member)
        self._optimizers = {
            name: Adam(
                component,
                component.rules(ratings, sampler.settings, share=sampler.share(component.axis)),
            )
            for name, component in self._components.items()
            if list(component.parameters())
        }

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        batch = self.sampler.draw(rows, step)
        if batch.empty:
            return 0.0
        parts = [component.plain_scores(batch) for component in self._components.values()]
        scores = torch.stack(parts).sum(0)  # (T, K)
        levels = torch.from_numpy(batch.levels.astype(np.int64)).to(scores.device)
        weights = torch.from_numpy(batch.weights).to(scores)
        cost = (weights * hybrid_cost(scores, levels, self._ordinal_weight)).sum()
        cost.backward()  # type: ignore[no-untyped-call]
        for optimizer in self._optimizers.values():
            optimizer.move(rate)
        return float(cost.detach())

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{key}": tensor
            for name, optimizer in self._optimizers.items()
            for key, tensor in optimizer.state().items()
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        for name, optimizer in self._optimizers.items():
            optimizer.restore(_part(state, name))


def _trained_components(member: Member) -> dict[str, TorchComponent]:
    """Return the components that add to the scores in training."""
    return {name: one for name, one in member.components.items() if not one.tunes}


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}/"
    return {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
