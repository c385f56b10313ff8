"""A stepper for any side by its plain torch, and torch's Adam by our rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cfnade.kernels.adam import Rule
from cfnade.kernels.threads import one_torch_thread
from cfnade.sides.draw import Draw
from cfnade.sides.side import Array, Side


def adam_of(side: Side, rules: Mapping[str, Rule]) -> torch.optim.Adam:
    """Torch's Adam over a side's parameters, each by its rule; the rate may be scaled later."""
    groups: list[dict[str, Any]] = [
        {"params": [parameter], "lr": rules[name].rate, "weight_decay": rules[name].decay}
        for name, parameter in side.network.named_parameters()
    ]
    for group in groups:
        group["base"] = group["lr"]
    return torch.optim.Adam(groups)


def move(adam: torch.optim.Adam, rate: float) -> None:
    """Step by the gradients that are there, at so much of the usual rates, and clear them."""
    for group in adam.param_groups:
        group["lr"] = group["base"] * rate
    adam.step()
    adam.zero_grad(set_to_none=True)


def adam_state(adam: torch.optim.Adam) -> dict[str, Tensor]:
    """What torch's Adam remembers, by number of the parameter."""
    return {
        f"{index}.{name}": tensor
        for index, moments in adam.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def restore_adam(adam: torch.optim.Adam, state: Mapping[str, Tensor]) -> None:
    """Go on from what `adam_state` gave."""
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        index, part = name.split(".")
        moments.setdefault(int(index), {})[part] = tensor
    adam.load_state_dict(adam.state_dict() | {"state": moments})


class AutogradStepper:
    """Trains any side by its plain torch: for small networks, and for new ones."""

    def __init__(self, side: Side, rules: Mapping[str, Rule]) -> None:
        self._side, self._adam = side, adam_of(side, rules)
        self._added: Tensor | None = None

    def add_scores(self, draw: Draw, scores: Array) -> None:
        with one_torch_thread():
            self._added = self._side.plain_scores(draw)
        scores += self._added.detach().numpy()

    def fit(self, draw: Draw, slopes: Array, rate: float) -> None:
        del draw
        assert self._added is not None
        with one_torch_thread():
            self._added.backward(torch.from_numpy(slopes))  # type: ignore[no-untyped-call]
            move(self._adam, rate)
        self._added = None

    def step_at_once(self, draw: Draw, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return adam_state(self._adam)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        restore_adam(self._adam, state)


class FixedStepper:
    """Of a side without parameters: it says what it says, and does not move."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def add_scores(self, draw: Draw, scores: Array) -> None:
        with one_torch_thread():
            scores += self._side.plain_scores(draw).numpy()

    def fit(self, draw: Draw, slopes: Array, rate: float) -> None:
        pass

    def step_at_once(self, draw: Draw, rate: float) -> float | None:
        del draw, rate
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        pass
