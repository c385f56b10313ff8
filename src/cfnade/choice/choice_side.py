"""What a side of the choice is: one part of the score of every item, given what is known of people.

A choice is a list of sides whose scores are weighed and added before the softmax over what is not
known yet. Nothing outside asks which kind a side is. How to add one: a subclass here, an entry in
choice/__init__.py, a maker in tests/choice/given.py; tests/choice/toy.py is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.choice.picks import Picks

ScoreArray = npt.NDArray[np.float32]
Tables = Mapping[str, npt.NDArray[Any]]
"""Numbers by name."""

FEW = 4
"""How many people are faster scored one by one than by a matrix product."""


class ChoiceSide(ABC):
    """Made for some picks, saved, and asked. It stays as it is: any number of threads may ask."""

    @abstractmethod
    def scores(self, known: Picks) -> ScoreArray:
        """Of every item for each person, who is known by these picks and nothing else. (B, M)."""

    def add_scores(self, total: ScoreArray, weight: float, known: Picks) -> None:
        """Add them, weighed, to a sum (B, M): some sides can without another array."""
        total += np.float32(weight) * self.scores(known)

    def scores_without(self, known: Picks, places: IntArray) -> ScoreArray:
        """Return scores of every item for one person, without each of these interactions. (n, M).

        known is of that person alone. This asks again for each; a component that adds up
        interactions takes one off.
        """
        keep = np.arange(len(known.columns)) != places[:, None]
        return self.scores(known.take(np.zeros(len(places), np.int64)).where(keep.ravel()))

    @abstractmethod
    def vectors(self) -> ScoreArray | None:
        """A vector for each item, if it has any: alike ones are picked by the same people."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain values, for JSON."""

    @abstractmethod
    def tables(self) -> Tables:
        """Its numbers, for a checkpoint."""

    @classmethod
    @abstractmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """What `tables` of a side with these fields are like."""

    @classmethod
    @abstractmethod
    def from_saved(cls, fields: Mapping[str, Any], tables: Tables) -> Self:
        """From what `to_dict` and `tables` gave."""

    @property
    def levels(self) -> int:
        """How many ways of taking something up it tells apart: it reads levels below this."""
        return 1

    @property
    @abstractmethod
    def n_items(self) -> int:
        """M."""
