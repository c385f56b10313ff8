"""The choice: which item a person takes up next, given what they took up so far.

Sides score every item; their weighed sum, as a softmax over what is not known yet, is p(picked
next | known). This is the one place that knows which kinds of sides there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.choice.choice_side import ChoiceSide, ScoreArray, Tables
from cfnade.choice.factored import Posterior
from cfnade.choice.linear import Linear
from cfnade.choice.picks import Picks
from cfnade.choice.set_nade import ChoiceNade
from cfnade.exceptions import ModelError
from cfnade.kernels.likeliest import log_softmax

CHOICE_KINDS: dict[str, type[ChoiceSide]] = {
    "nade": ChoiceNade,
    "linear": Linear,
    "posterior": Posterior,
}


@dataclass(frozen=True, eq=False)
class Choice:
    """Sides by name, and what the score of each counts."""

    sides: Mapping[str, ChoiceSide]
    weights: Mapping[str, float]

    @property
    def n_items(self) -> int:
        return next(iter(self.sides.values())).n_items

    @property
    def levels(self) -> int:
        """How many ways of taking something up it tells apart."""
        return max(side.levels for side in self.sides.values())

    def scores(self, known: Picks) -> ScoreArray:
        """Of every item for each person. Returns (B, M)."""
        total = np.zeros((len(known), self.n_items), np.float32)
        for name, side in self.sides.items():
            if self.weights[name] != 0:
                side.add_scores(total, self.weights[name], known)
        return total

    def log_chances_without(self, known: Picks, places: IntArray) -> ScoreArray:
        """Return log p of every item for one person, without each of these interactions. (n, M).

        What is left out can be picked again; the rest of what is known cannot.
        """
        total = np.zeros((len(places), self.n_items), np.float32)
        for name, side in self.sides.items():
            if self.weights[name] != 0:
                total += np.float32(self.weights[name]) * side.scores_without(known, places)
        own = np.arange(len(places)), known.columns[places]
        again = total[own]
        total[:, known.columns] = -np.inf
        total[own] = again
        return log_softmax(total)

    def log_chances(self, known: Picks, *, left_out: bool = True) -> ScoreArray:
        """log p(picked next | known) of every item. Returns (B, M).

        -∞ for what is known; unless left_out, then every item is asked about.
        """
        scores = self.scores(known)
        if left_out:
            scores[known.rows, known.columns] = -np.inf
        return log_softmax(scores)

    @cached_property
    def nobody(self) -> ScoreArray:
        """log p for somebody of whom nothing is known. Returns (M,)."""
        nothing = Picks.of_people([], self.n_items)
        empty = Picks(
            np.zeros(2, np.int64), nothing.columns, nothing.levels, nothing.weights, self.n_items
        )
        return np.asarray(self.log_chances(empty)[0])

    def vectors(self) -> ScoreArray | None:
        """A vector of unit length for each item, from the first side that has any. (M, D)."""
        for side in self.sides.values():
            if (vectors := side.vectors()) is not None:
                lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
                return np.asarray(vectors / np.maximum(lengths, 1e-12))
        return None

    # -- saved --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Weights and fields of the sides, for JSON."""
        return {
            name: {"weight": float(self.weights[name]), "fields": side.to_dict()}
            for name, side in self.sides.items()
        }

    def tables(self) -> Tables:
        """The numbers of all sides, as side.name."""
        return {
            f"{name}.{key}": table
            for name, side in self.sides.items()
            for key, table in side.tables().items()
        }


def choice_shapes(described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What the tables of a saved choice are like."""
    return {
        f"{name}.{key}": shape
        for name, one in described.items()
        for key, shape in _kind(name).shapes(one["fields"]).items()
    }


def saved_choice(described: Mapping[str, Any], tables: Tables) -> Choice:
    """From what `to_dict` and `tables` gave."""
    if not described:
        raise ModelError("a choice has no sides")
    sides = {}
    for name, one in described.items():
        prefix = f"{name}."
        own = {key.removeprefix(prefix): t for key, t in tables.items() if key.startswith(prefix)}
        sides[name] = _kind(name).from_saved(one["fields"], own)
    return Choice(sides, {name: float(one["weight"]) for name, one in described.items()})


def _kind(name: str) -> type[ChoiceSide]:
    if name not in CHOICE_KINDS:
        names = [*CHOICE_KINDS]
        raise ModelError(f"unknown side {name!r} of a choice; this version of cfnade knows {names}")
    return CHOICE_KINDS[name]
