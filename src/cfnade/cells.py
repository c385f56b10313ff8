"""What a bundle says about given cells, from the ratings that it conditions on.

A cell is a user and an item, by index; -1 stands for an id that the model has never met. Nothing is
calibrated here. A cell that is in the context is predicted from the other ratings of its row, and
with side "both" of its row and its column.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.bundle import Bundle, Model
from cfnade.data.ratings import Side
from cfnade.data.rows import IntArray
from cfnade.errors import PredictionError
from cfnade.models.distribution import Distribution
from cfnade.models.joint import JointCFNADE
from cfnade.models.unseen import unseen_rule, untrained_scores
from cfnade.side_cells import BoolArray, FloatArray, SideCells


def cell_probabilities(bundle: Bundle, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
    """The distribution over levels of each cell, before calibration. Returns (n, K).

    For many calls keep a `Cells` instead: it sorts the context into rows only once.
    """
    return Cells(bundle).probabilities(users, items)


def unseen_columns(columns: IntArray, column_counts: npt.NDArray[np.int64]) -> BoolArray:
    """Which of these columns training saw no rating of, or does not know at all (-1)."""
    unseen: BoolArray = (columns < 0) | (column_counts.sum(1)[columns] == 0)
    return unseen


class Cells:
    """Answers about cells; the context is sorted into rows once."""

    def __init__(self, bundle: Bundle, *, unseen: str = "mean") -> None:
        context = bundle.context
        counts = torch.from_numpy(np.array(bundle.column_counts.sum(0)))
        self._rule = unseen_rule(unseen, counts=counts, values=context.scale.values)
        self._strict = unseen == "paper"
        names: list[Side] = ["user", "item"] if bundle.side == "both" else [bundle.side]
        self._sides: dict[str, SideCells] = {name: SideCells(context.rows(name)) for name in names}
        self._limits = {"users": context.n_users, "items": context.n_items}
        self._set(bundle)

    def _set(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._members = bundle.members()
        self._views = [member.sides() for member in self._members]

    def with_model(self, model: Model) -> Cells:
        """The same cells, asked of other weights of the same model."""
        other = copy(self)
        other._set(replace(self.bundle, model=model))
        return other

    def probabilities(
        self, users: npt.ArrayLike, items: npt.ArrayLike, times: npt.ArrayLike | None = None
    ) -> FloatArray:
        """The distribution over levels of each cell, before calibration. Returns (n, K).

        A model that knows time needs the times of the cells; others do not look at them.
        """
        cells = self._checked(users, items)
        features = self._features(*cells, times)
        found = np.zeros((len(cells[0]), len(self.bundle.context.scale)))
        for number, member in enumerate(self._members):
            scores = torch.from_numpy(self._scores(number, *cells))
            if features is not None:
                scores += _added_by_time(member, features)
            found += scores.softmax(1).numpy()
        return self._with_unseen(found / len(self._views), *cells)

    def known_levels(self, users: npt.ArrayLike, items: npt.ArrayLike) -> IntArray:
        """The level of each cell's rating in the context, -1 where there is none. Returns (n,)."""
        name, side = next(iter(self._sides.items()))
        return side.known_levels(*_turned(name, *self._checked(users, items)))

    # -- scores ------------------------------------------------------------------------------

    def _scores(self, member: int, users: IntArray, items: IntArray) -> FloatArray:
        """Scores of one member, before the softmax. Returns (n, K)."""
        scores = np.zeros((len(users), len(self.bundle.context.scale)))
        for view in self._views[member]:
            rows, columns = _turned(view.side, users, items)
            own = self._sides[view.side].scores(view.one_sided_model, rows, columns)
            if self.bundle.side == "both":
                unseen = np.flatnonzero(unseen_columns(columns, view.column_counts))
                if len(unseen):
                    own[unseen] = self._untrained(view, rows[unseen], columns[unseen])
            scores += own
        return scores

    def _features(
        self, users: IntArray, items: IntArray, times: npt.ArrayLike | None
    ) -> Tensor | None:
        """Time features of cells, if the model knows time. Returns (n, F)."""
        when = self.bundle.when
        if when is None:
            return None
        if times is None:
            raise PredictionError(
                "this model was trained with time features: a prediction needs to know when; give "
                "times, in seconds since 1970"
            )
        return torch.from_numpy(when.features(users, items, times))

    def _untrained(self, view: Bundle, rows: IntArray, columns: IntArray) -> FloatArray:
        """Scores of cells in columns without trained weights, by the columns' other ratings."""
        sides = self._sides
        # What is a column on this side is a row on the other.
        other = sides["item"] if view.side == "user" else sides["user"]
        counts = other.level_counts(columns, rows)
        everyone = self.bundle.column_counts.sum(0).astype(np.float64)
        return untrained_scores(counts, everyone, prior=view.side == "user")

    def _with_unseen(self, found: FloatArray, users: IntArray, items: IntArray) -> FloatArray:
        """Apply the rule of models/unseen.py where training saw no rating of a column or row."""
        distribution = Distribution.from_probabilities(
            torch.from_numpy(found), self.bundle.context.scale.values
        )
        column, row = self._unseen(users, items)
        ruled = self._rule.apply(
            distribution,
            unseen_column=torch.from_numpy(column),
            unseen_row=torch.from_numpy(row),
        )
        return ruled.probabilities.numpy()

    def _unseen(self, users: IntArray, items: IntArray) -> tuple[BoolArray, BoolArray]:
        """Cells whose column, and cells whose row, the rule speaks of. Both (n,)."""
        unseen, empty = self._facts_of(users, items)
        if len(unseen) == 1:
            return unseen[0], empty[0]
        either: BoolArray = unseen[0] | unseen[1] if self._strict else np.zeros(len(users), bool)
        return either, either

    def _facts_of(
        self, users: IntArray, items: IntArray
    ) -> tuple[list[BoolArray], list[BoolArray]]:
        """For each side, cells in a column without training ratings, and in an empty row."""
        unseen, empty = [], []
        for view in self._views[0]:
            rows, columns = _turned(view.side, users, items)
            unseen.append(unseen_columns(columns, view.column_counts))
            empty.append(self._sides[view.side].empty(rows))
        return unseen, empty

    def unknown(self, users: npt.ArrayLike, items: npt.ArrayLike) -> tuple[BoolArray, BoolArray]:
        """Cells whose user, and whose item, the model knows nothing of. Both (n,).

        Nothing is known of a row without context and of a column without training ratings; with
        side "both", of what has neither.
        """
        unseen, empty = self._facts_of(*self._checked(users, items))
        if len(unseen) == 2:
            return empty[0] & unseen[1], empty[1] & unseen[0]
        return (empty[0], unseen[0]) if self.bundle.side == "user" else (unseen[0], empty[0])

    # -- borders -----------------------------------------------------------------------------

    def _checked(self, users: npt.ArrayLike, items: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        given = {"users": np.asarray(users), "items": np.asarray(items)}
        checked = [_indices(name, array, self._limits[name]) for name, array in given.items()]
        if len(checked[0]) != len(checked[1]):
            raise PredictionError(
                f"{len(checked[0])} users and {len(checked[1])} items were given; a cell is one "
                "of each, so give equally many"
            )
        side = self.bundle.side
        rows = checked[1] if side == "item" else checked[0]
        if not self.bundle.has_context and bool((rows >= 0).any()):
            raise PredictionError(
                "this model was saved without its context, so nothing is known of the "
                f"{side}s in its data; give histories, or the model with its context"
            )
        return checked[0], checked[1]


@torch.no_grad()
def _added_by_time(member: Bundle, features: Tensor) -> Tensor:
    model = member.model
    assert isinstance(model, JointCFNADE)
    assert model.when is not None
    added: Tensor = model.when(features)
    return added.double()


def _turned(side: str, users: IntArray, items: IntArray) -> tuple[IntArray, IntArray]:
    """Rows and columns of a side."""
    return (users, items) if side == "user" else (items, users)


def _indices(name: str, given: npt.NDArray[Any], limit: int) -> IntArray:
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise PredictionError(
            f"{name} have dtype {given.dtype} and shape {given.shape}; give a one-dimensional "
            "array of whole numbers"
        )
    array = given.astype(np.int64)
    if array.size and not (array.min() >= -1 and array.max() < limit):
        bad = array[(array < -1) | (array >= limit)][0]
        raise PredictionError(
            f"{name} contains {bad}; it must lie in 0..{limit - 1}, or be -1 for an unknown one"
        )
    return array
