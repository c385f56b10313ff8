"""One training step of a member: compiled kernels on a CPU, plain torch on any other device.

Both sample the same batches and minimize the same cost; the plain one is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cfnade.components import Member, RatingComponent
from cfnade.components.batches import Array, Batch, BatchSampler, batch_sampler
from cfnade.components.optimizers import Adam, member_network
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.partition import PairExchange
from cfnade.kernels.ordinal_cost import Cost, cost_of_scores
from cfnade.models.config import CFNADEConfig
from cfnade.models.losses import hybrid_cost


def make_stepper(
    member: Member,
    ratings: Dataset,
    fields: Mapping[str, Any],
    config: TrainingConfig,
    *,
    device: str,
    threads: int,
    network: nn.ModuleDict | None = None,
) -> KernelStepper | TorchStepper:
    """Return the stepper of a member; of its fields, those of the cost are used here.

    On another device than a CPU it trains `network`, a copy of the member's arrays there.
    """
    weights = fields.get("target_weight", CFNADEConfig.target_weight)
    ordinal_weight = float(fields.get("ordinal_weight", CFNADEConfig.ordinal_weight))
    components = member.components.values()
    parts = {
        component.axis: component.partition
        for component in components
        if component.axis and component.partition
    }
    sampler = batch_sampler(member.axes, ratings, config, weights, threads, parts)
    if device == "cpu":
        return KernelStepper(member, ratings, sampler, ordinal_weight, threads)
    network = network or member_network(member, device)
    return TorchStepper(member, ratings, sampler, ordinal_weight, network)


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
        self._dtype = next(iter(member.arrays().values())).dtype
        self._ordinal_weight, self._threads = ordinal_weight, threads
        self._group = next(iter(member.components.values())).group
        self._trainers = {
            name: component.trainer(
                ratings, sampler.settings, share=sampler.share(component.axis), threads=threads
            )
            for name, component in _trained_components(member).items()
        }

    def step(self, batch: Batch, *, rate: float) -> float:
        trainers = list(self._trainers.values())
        if len(trainers) == 1:
            cost_at_once = trainers[0].fused_step(batch, rate)
            if cost_at_once is not None:
                return cost_at_once
        if batch.empty:
            return 0.0
        scores = np.zeros((batch.n_targets, self._levels), self._dtype)
        if batch.exchange is not None:
            return self._exchanged_step(batch, batch.exchange, scores, rate)
        for trainer in trainers:
            trainer.add_scores(batch, scores)
        cost = self._cost(batch, scores)
        for trainer in trainers:
            trainer.backward(batch, cost.gradient, rate)
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
        item_gradient = exchange.return_slopes(cost.gradient)
        of_user.backward(batch, cost.gradient, rate)
        of_item.backward(batch, item_gradient, rate)
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
        self,
        member: Member,
        ratings: Dataset,
        sampler: BatchSampler,
        ordinal_weight: float,
        network: nn.ModuleDict,
    ) -> None:
        self.sampler, self._ordinal_weight = sampler, ordinal_weight
        self._components, self._networks = _trained_components(member), dict(network.items())
        self._device = next(network.parameters()).device
        self._optimizers = {
            name: Adam(
                self._networks[name],
                component.rules(ratings, sampler.settings, share=sampler.share(component.axis)),
            )
            for name, component in self._components.items()
            if name in self._networks
        }

    def step(self, batch: Batch, *, rate: float) -> float:
        if batch.empty:
            return 0.0
        parts = [
            component.torch_scores(self._networks.get(name), batch).to(self._device)
            for name, component in self._components.items()
        ]
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


def _trained_components(member: Member) -> dict[str, RatingComponent]:
    """Return the components that add to the scores in training."""
    return {name: component for name, component in member.components.items() if not component.tunes}


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}/"
    return {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
