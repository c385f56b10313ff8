"""Trainers for any component: by autograd of its torch module, with Adam in plain torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cfnade.components.base import Array, Axis, Trainer
from cfnade.components.batches import Batch
from cfnade.kernels.adam import AdamRule, AdamState
from cfnade.kernels.threads import single_torch_thread

if TYPE_CHECKING:
    from cfnade.components.base import Member, RatingComponent


class Adam:
    """Adam over those parameters of a module that have a rule, as torch computes it.

    Constructing torch's own class imports a compiler, which takes three seconds.
    """

    def __init__(self, network: nn.Module, rules: Mapping[str, AdamRule]) -> None:
        self._by_name = {n: p for n, p in network.named_parameters() if n in rules}
        self._rules = [rules[name] for name in self._by_name]
        self._parameters: list[Tensor] = list(self._by_name.values())
        self._moments = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = 0

    def move(self, rate: float, gradients: Mapping[str, Array] | None = None) -> None:
        """Step at a multiple of the rates by these gradients, or by those of the parameters."""
        for name, gradient in (gradients or {}).items():
            self._by_name[name].grad = torch.from_numpy(gradient)
        with single_torch_thread(), torch.no_grad():
            self._step(rate)

    def _step(self, rate: float) -> None:
        self._steps += 1
        state = self._parameters, self._moments, self._squares, self._rules
        for parameter, moment, square, rule in zip(*state, strict=True):
            if parameter.grad is None:
                continue
            grad, (first, second) = parameter.grad, rule.betas
            if rule.decay:
                grad = grad.add(parameter, alpha=rule.decay)
            moment.lerp_(grad, 1 - first)
            square.mul_(second).addcmul_(grad, grad, value=1 - second)
            root = square.sqrt().div_(math.sqrt(1 - second**self._steps)).add_(rule.eps)
            parameter.addcdiv_(moment, root, value=-rate * rule.rate / (1 - first**self._steps))
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return moments by number of the parameter, and the steps; shares memory."""
        moments = {
            f"{number}.{name}": tensor
            for number, pair in enumerate(zip(self._moments, self._squares, strict=True))
            for name, tensor in zip(("moment", "square"), pair, strict=True)
        }
        return moments | {"steps": torch.tensor(self._steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from what `state` returned."""
        self._steps = int(state["steps"])
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def moment_tensors(parameters: AdamState) -> dict[str, Tensor]:
    """Return the moments of parameters that kernels update; shares memory."""
    return {
        f"{name}.{number}": torch.from_numpy(moment)
        for name, moments in parameters.moments.items()
        for number, moment in enumerate(moments)
    }


class TorchTrainer(Trainer):
    """Trains any component by autograd of its torch module: for small ones, and for new ones."""

    optimizer: Adam

    def __init__(self, component: RatingComponent, rules: Mapping[str, AdamRule]) -> None:
        self._component, self.optimizer = component, Adam(component.network, rules)
        self._scores: Tensor | None = None

    def add_scores(self, batch: Batch, scores: Array) -> None:
        with single_torch_thread():
            self._scores = self._component.torch_scores(self._component.network, batch)
        scores += self._scores.detach().numpy()

    def backward(self, batch: Batch, gradient: Array, rate: float) -> None:
        del batch
        assert self._scores is not None
        with single_torch_thread():
            self._scores.backward(torch.from_numpy(gradient))  # type: ignore[no-untyped-call]
            self.optimizer.move(rate)
        self._scores = None


def network_scores(network: Any, batch: Batch, axis: Axis) -> Tensor:
    """Return scores of a batch's targets by a network with `hidden` and `scores`, (T, K)."""
    device = next(iter(network.state_dict().values())).device
    rows = batch.batch(axis, device)
    targets = rows.targets
    scores: Tensor = network.scores(network.hidden(rows.context), targets.rows, targets.columns)
    return scores


def member_network(member: Member, device: str = "cpu") -> nn.ModuleDict:
    """Return the torch modules of a member's trained components.

    On a CPU they are in the arrays' memory, on another device a copy.
    """
    components = member.components.items()
    network = nn.ModuleDict({name: c.network for name, c in components if not c.closed_form})
    return network if device == "cpu" else deepcopy(network).to(device)


def network_arrays(network: nn.Module) -> dict[str, Array]:
    """Return the arrays of a member's network as component/array, on a CPU in its memory."""
    state = network.state_dict().items()
    return {
        name.replace(".", "/", 1): np.asarray(tensor.cpu().numpy(), order="C")
        for name, tensor in state
    }
