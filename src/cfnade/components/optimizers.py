"""A stepper for any side by its plain torch, and Adam by our rules in plain torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cfnade.components.base import Array
from cfnade.components.batches import Batch
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.threads import single_torch_thread

if TYPE_CHECKING:
    from cfnade.components.trainable import TorchComponent


class Adam:
    """Adam over a side's parameters, each by its rule, as torch has it.

    Torch's own class brings in a compiler when the first one is made: three seconds for nothing.
    """

    def __init__(self, side: TorchComponent, rules: Mapping[str, AdamRule]) -> None:
        named = dict(side.network.named_parameters())
        self._rules = [rules[name] for name in named]
        self._parameters: list[Tensor] = list(named.values())
        self._moments = [torch.zeros_like(one) for one in self._parameters]
        self._squares = [torch.zeros_like(one) for one in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def move(self, rate: float) -> None:
        """Step by the gradients that are there, at so much of the usual rates, and clear them."""
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
    """Trains any side by its plain torch: for small networks, and for new ones."""

    def __init__(self, side: TorchComponent, rules: Mapping[str, AdamRule]) -> None:
        self._side, self._adam = side, Adam(side, rules)
        self._added: Tensor | None = None

    def add_scores(self, draw: Batch, scores: Array) -> None:
        with single_torch_thread():
            self._added = self._side.plain_scores(draw)
        scores += self._added.detach().numpy()

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        del draw
        assert self._added is not None
        with single_torch_thread():
            self._added.backward(torch.from_numpy(slopes))  # type: ignore[no-untyped-call]
            self._adam.move(rate)
        self._added = None

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return self._adam.state()

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        self._adam.restore(state)


class FixedTrainer:
    """Of a side without parameters: it says what it says, and does not move."""

    def __init__(self, side: TorchComponent) -> None:
        self._side = side

    def add_scores(self, draw: Batch, scores: Array) -> None:
        with single_torch_thread():
            scores += self._side.plain_scores(draw).numpy()

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        pass

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        pass
