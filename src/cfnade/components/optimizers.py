"""Trainers for any component: by autograd of its torch module, with Adam in plain torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cfnade.components.base import Array, Axis
from cfnade.components.batches import Batch
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.threads import single_torch_thread

if TYPE_CHECKING:
    from cfnade.components.base import Member, RatingComponent
    from cfnade.components.closed_form import ClosedFormComponent


class Adam:
    """Adam over a module's parameters, each by its rule, as torch has it.

    Torch's own class brings in a compiler when the first one is made: three seconds for nothing.
    """

    def __init__(self, network: nn.Module, rules: Mapping[str, AdamRule]) -> None:
        self._named = named = dict(network.named_parameters())
        self._rules = [rules[name] for name in named]
        self._parameters: list[Tensor] = list(named.values())
        self._moments = [torch.zeros_like(one) for one in self._parameters]
        self._squares = [torch.zeros_like(one) for one in self._parameters]
        self._steps = 0

    def move(self, rate: float, gradients: Mapping[str, Array] | None = None) -> None:
        """Step at a factor of the usual rates by these gradients, or by those of the parameters."""
        for name, gradient in (gradients or {}).items():
            self._named[name].grad = torch.from_numpy(gradient)
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
        """What it remembers, by number of the parameter; shares memory."""
        numbered = enumerate(zip(self._moments, self._squares, strict=True))
        moments = {
            f"{n}.{name}": one
            for n, pair in numbered
            for name, one in zip(_KEPT, pair, strict=True)
        }
        return moments | {"steps": torch.tensor(self._steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self._steps = int(state["steps"])
        for n, pair in enumerate(zip(self._moments, self._squares, strict=True)):
            for name, one in zip(_KEPT, pair, strict=True):
                one.copy_(state[f"{n}.{name}"])


_KEPT = ("moment", "square")


class TorchTrainer:
    """Trains any component by its torch module: for small ones, and for new ones."""

    def __init__(self, component: RatingComponent, rules: Mapping[str, AdamRule]) -> None:
        self._component, self._adam = component, Adam(component.network, rules)
        self._added: Tensor | None = None

    def add_scores(self, draw: Batch, scores: Array) -> None:
        with single_torch_thread():
            self._added = self._component.torch_scores(self._component.network, draw)
        scores += self._added.detach().numpy()

    def backward(self, draw: Batch, gradient: Array, rate: float) -> None:
        del draw
        assert self._added is not None
        with single_torch_thread():
            self._added.backward(torch.from_numpy(gradient))  # type: ignore[no-untyped-call]
            self._adam.move(rate)
        self._added = None

    def fused_step(self, draw: Batch, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return self._adam.state()

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        self._adam.restore(state)


class FixedTrainer:
    """Of a closed-form component: it adds its scores and does not move."""

    def __init__(self, component: ClosedFormComponent) -> None:
        self._component = component

    def add_scores(self, draw: Batch, scores: Array) -> None:
        scores += self._component.batch_scores(draw)

    def backward(self, draw: Batch, gradient: Array, rate: float) -> None:
        pass

    def fused_step(self, draw: Batch, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        pass


def network_scores(network: Any, batch: Batch, axis: Axis) -> Tensor:
    """Scores of a batch's targets by a network with `hidden` and `scores`. Returns (T, K)."""
    device = next(iter(network.state_dict().values())).device
    drawn = batch.batch(axis, device)
    targets = drawn.targets
    scores: Tensor = network.scores(network.hidden(drawn.context), targets.rows, targets.columns)
    return scores


def member_network(member: Member, device: str = "cpu") -> nn.ModuleDict:
    """Return the torch modules of a member's trained components.

    On a CPU they are in the arrays' memory, on another device a copy.
    """
    trained = {name: one.network for name, one in member.components.items() if not one.closed_form}
    network = nn.ModuleDict(trained)
    return network if device == "cpu" else deepcopy(network).to(device)


def network_arrays(network: nn.Module) -> dict[str, Array]:
    """Return the arrays of a member's network as component/array, on a CPU in its memory."""
    state = network.state_dict().items()
    return {
        name.replace(".", "/", 1): np.asarray(tensor.cpu().numpy(), order="C")
        for name, tensor in state
    }
