# ruff: noqa: ARG003
"""A small side of the choice, as a new kind begins: how often each item was picked."""

from typing import Any, Self

import numpy as np
from torch import Tensor

from cfnade.choice.choice_side import ChoiceSide, ScoreArray
from cfnade.choice.picks import Picks


class PopularSide(ChoiceSide):
    def __init__(self, logs: Tensor) -> None:
        self._logs = logs

    def scores(self, known: Picks) -> ScoreArray:
        return np.tile(self._logs.numpy(), (len(known), 1))

    def vectors(self) -> None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"items": self.n_items}

    def tensors(self) -> dict[str, Tensor]:
        return {"logs": self._logs}

    @classmethod
    def shapes(cls, fields: Any) -> dict[str, tuple[int, ...]]:
        return {"logs": (int(fields["items"]),)}

    @classmethod
    def from_saved(cls, fields: Any, tensors: Any) -> Self:
        return cls(tensors["logs"])

    n_items = property(lambda self: len(self._logs))
