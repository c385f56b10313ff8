"""Which item a user takes up next, given what they took up so far.

Components score every item. Their scores are standardized per user, weighted and added; a softmax
over the items that the user has not got gives p(next | known). For a user without interactions it
is how often each item is taken up at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import ArraySpec
from cfnade.exceptions import ModelError
from cfnade.implicit.base import Arrays, ImplicitComponent, ScoreArray, component_class
from cfnade.implicit.repeats import Repeats
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.sharpness import Sharpness
from cfnade.kernels.blending import add_standardized
from cfnade.kernels.top_k import log_softmax

POPULARITY = "popularity"
PLAIN, NO_REPEATS = Sharpness(), Repeats()


@dataclass(frozen=True, eq=False)
class InteractionModel:
    """Components by name with the weight of each; one is `popularity`, whose weight may be 0."""

    components: Mapping[str, ImplicitComponent]
    weights: Mapping[str, float]
    sharpness: Sharpness = PLAIN
    """What the sum of scores is multiplied by, so that probabilities are calibrated."""
    repeats: Repeats = NO_REPEATS
    """How often users take up an item again."""

    def __post_init__(self) -> None:
        if POPULARITY not in self.components:
            raise ModelError(f"an interaction model needs the component {POPULARITY!r}")

    @property
    def n_items(self) -> int:
        return self.components[POPULARITY].n_items

    def scores(self, rows: InteractionRows) -> ScoreArray:
        """Return scores of all items, (B, M)."""
        total = np.zeros((len(rows), self.n_items), np.float32)
        for name, component in self.components.items():
            if self.weights[name] > 0:
                add_standardized(component.scores(rows), self.weights[name], total)
        total *= self.sharpness.factors(rows.counts)[:, None]
        empty = np.flatnonzero(rows.counts == 0)
        if len(empty):
            total[empty] = self.components[POPULARITY].scores(rows.select(empty))
        return total

    def log_probabilities(self, rows: InteractionRows, *, exclude_known: bool = True) -> ScoreArray:
        """Return log p(next | known) of all items, (B, M).

        -∞ for known items. Without `exclude_known` these are ranked as well: by how often they
        were taken up, or as new items if nothing is ever taken up again.
        """
        scores = self.scores(rows)
        if exclude_known or self.repeats.rate:
            scores[rows.rows, rows.columns] = -np.inf
        logs = log_softmax(scores)
        if self.repeats.rate and not exclude_known:
            self.repeats.mix(logs, rows)
        return logs

    def log_probabilities_without(self, row: InteractionRows, places: IntArray) -> ScoreArray:
        """Return log p of all items for one user, without each of these interactions. (n, M).

        What is left out can be taken up again; the other known items cannot.
        """
        total = np.zeros((len(places), self.n_items), np.float32)
        for name, component in self.components.items():
            if self.weights[name] > 0:
                scores = component.scores_without(row, places)
                add_standardized(scores, self.weights[name], total)
        total *= self.sharpness.factors(row.counts - 1)[:, None]
        if len(row.columns) == 1:
            total[:] = self.components[POPULARITY].scores(row)
        left_out = np.arange(len(places)), row.columns[places]
        scores_of_left_out = total[left_out]
        total[:, row.columns] = -np.inf
        total[left_out] = scores_of_left_out
        return log_softmax(total)

    @cached_property
    def base_log_probabilities(self) -> ScoreArray:
        """Log p of a user without interactions, (M,)."""
        empty = InteractionRows(
            np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), self.n_items
        )
        return np.asarray(self.log_probabilities(empty)[0])

    def item_vectors(self) -> ScoreArray | None:
        """Return a unit vector of each item from the heaviest component that has any, (M, D)."""
        for name in sorted(self.components, key=lambda name: -self.weights[name]):
            if (vectors := self.components[name].item_vectors()) is not None:
                lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
                return np.asarray(vectors / np.maximum(lengths, 1e-12))
        return None

    # -- saved --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return weights and configs, for JSON."""
        parts = {
            name: {"weight": float(self.weights[name]), "config": component.to_dict()}
            for name, component in self.components.items()
        }
        return {
            "sharpness": self.sharpness._asdict(),
            "repeats": self.repeats._asdict(),
            "components": parts,
        }

    def arrays(self) -> Arrays:
        """Return the arrays of all components, as component/array."""
        return {
            f"{name}/{key}": array
            for name, component in self.components.items()
            for key, array in component.arrays.items()
        }


def saved_spec(described: Mapping[str, Any]) -> dict[str, ArraySpec]:
    """Return the arrays that a saved interaction model has."""
    return {
        f"{name}/{key}": spec
        for name, part in described["components"].items()
        for key, spec in _spec(name, part["config"]).items()
    }


def saved_model(described: Mapping[str, Any], arrays: Arrays) -> InteractionModel:
    """Rebuild an interaction model from `to_dict` and `arrays`."""
    components = {}
    for name, part in described["components"].items():
        prefix = f"{name}/"
        part_arrays = {
            key.removeprefix(prefix): array
            for key, array in arrays.items()
            if key.startswith(prefix)
        }
        components[name] = component_class(name).from_saved(part["config"], part_arrays)
    weights = {name: float(part["weight"]) for name, part in described["components"].items()}
    sharpness = Sharpness(**{name: float(x) for name, x in described["sharpness"].items()})
    repeats = Repeats(**{name: float(x) for name, x in described["repeats"].items()})
    return InteractionModel(components, weights, sharpness, repeats)


def _spec(name: str, fields: Mapping[str, Any]) -> dict[str, ArraySpec]:
    kind = component_class(name)
    return kind.spec(kind.config_of(fields))
