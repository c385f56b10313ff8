# ruff: noqa: ARG003
"""A small side of the choice, as a new kind begins: how often each item was picked."""

from typing import Any, Self

import numpy as np

from cfnade.choice.choice_side import ChoiceSide, ScoreArray, Tables
from cfnade.choice.picks import Picks


class PopularSide(ChoiceSide):
    def __init__(self, logs: ScoreArray) -> None:
        self._logs = logs

    def scores(self, known: Picks) -> ScoreArray:
        return np.tile(self._logs, (len(known), 1))

    def vectors(self) -> None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"items": self.n_items}

    def tables(self) -> Tables:
        return {"logs": self._logs}

    @classmethod
    def shapes(cls, fields: Any) -> dict[str, tuple[int, ...]]:
        return {"logs": (int(fields["items"]),)}

    @classmethod
    def from_saved(cls, fields: Any, tables: Any) -> Self:
        return cls(tables["logs"])

    n_items = property(lambda self: len(self._logs))
