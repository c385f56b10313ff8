"""What the moment of a rating adds to its scores, from the numbers of the side that knows when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, ComponentWeights, Row, SavedComponent, What, Who
from cfnade.components.time_features import FEATURES, TimeFeatures
from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError, PredictionError
from cfnade.models.config import TIME_UNITS


def check_features(fields: Mapping[str, Any]) -> None:
    """Refuse a side that was saved with other features than are known here."""
    if fields["features"] != len(FEATURES):
        raise ModelError(
            f"the model has {fields['features']} time features; this version of cfnade knows "
            f"{len(FEATURES)}"
        )


class TimeWeights(ComponentWeights):
    """By the names of models/time.py, which has the equations."""

    axis: Axis | None = None
    needs_times = True

    def __init__(
        self, tables: Mapping[str, Array], features: TimeFeatures, *, shared: bool
    ) -> None:
        self.tables, self.features, self.shared = tables, features, shared

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        check_features(fields)
        F, K = len(FEATURES), int(fields["levels"])
        return {"A": (F, K), "M1": (F, TIME_UNITS), "m1": (TIME_UNITS,), "M2": (TIME_UNITS, K)}

    @classmethod
    def from_saved(cls, saved: SavedComponent) -> Self:
        features, shared = TimeFeatures.from_arrays(saved.arrays), bool(saved.fields["shared"])
        return cls(saved.tables, features, shared=shared)

    def to_dict(self) -> dict[str, Any]:
        features, levels = self.tables["A"].shape
        return {"features": features, "levels": levels, "shared": self.shared}

    def arrays(self) -> dict[str, Array]:
        return self.features.arrays()

    def fault(self, ratings: Dataset) -> str | None:
        if (len(self.features.user), len(self.features.item)) != (ratings.n_users, ratings.n_items):
            return "the time features are those of other users or items"
        if self.tables["A"].shape[1] != len(ratings.scale):
            return f"the scale {ratings.scale} has {len(ratings.scale)} levels"
        return None

    def reading(self, context: Dataset) -> TimeReading:
        del context
        return TimeReading(self)


class TimeReading:
    """What the moment adds to given cells."""

    learns: Axis | None = None

    def __init__(self, weights: TimeWeights) -> None:
        self._weights = weights

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        if times is None:
            _refuse("a prediction needs to know when; give times=, in whole seconds since 1970")
        tables = self._weights.tables
        features = self._weights.features.features(users, items, times).astype(tables["A"].dtype)
        units = np.tanh(features @ tables["M1"] + tables["m1"])
        steps: Array = features @ tables["A"] + units @ tables["M2"]
        return np.cumsum(steps, 1) if self._weights.shared else steps

    def person(self, who: Who, items: IntArray) -> Array:
        del who, items
        return _no_lists()

    def person_without(self, who: Who, left_out: IntArray, items: IntArray) -> Array:
        del who, left_out, items
        return _no_lists()

    def item(self, what: What, users: IntArray) -> Array:
        del what, users
        return _no_lists()

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Array:
        del people, which, items
        return _no_lists()

    def lists(self, people: Sequence[Who], *, leave_out: bool) -> Array:
        del people, leave_out
        return _no_lists()

    def without_each(self, who: Who, item: int) -> Array:
        del who, item
        return _no_lists()

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        del raters, who, item
        return _no_lists()

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        del raters, who, item
        return _no_lists()

    def folding(self, counts: IntArray, *, mean_only: bool = False) -> None:
        """Nobody has weights here, so nobody lacks them."""
        del counts, mean_only


def _no_lists() -> NoReturn:
    _refuse(
        "it predicts given ratings at given times, and makes no lists or explanations; train one "
        "without time features for these"
    )


def _refuse(why: str) -> NoReturn:
    raise PredictionError(f"this model knows time: {why}")
