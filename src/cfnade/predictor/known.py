"""What a bundle's context knows, in the forms that answers need; each is made once, when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.ratings import Side
from cfnade.data.rows import Rows, stable_order
from cfnade.predictor import explain
from cfnade.predictor.once import once
from cfnade.predictor.scoring import AllRows, Net, Row, distributions, row_of, score_rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FEW_ROWS, FEW_CELLS = 16, 256
"""So many rows, or cells of an item-based model, are answered one by one on the calling thread."""


class Known:
    """Views of one bundle. Users and items are indices here, -1 an unknown one."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.side: Side = "user" if bundle.side == "user" else "item"
        self.net = Net(bundle.one_sided_model)
        self.column_totals: IntArray = bundle.column_counts.sum(1)  # (M,)
        level_totals = bundle.column_counts.sum(0)
        self.frequencies: FloatArray = level_totals / level_totals.sum()
        """The training ratings' frequencies (K,): what is predicted in an unseen column."""

    @once
    def _grouped(self) -> Bundle:
        """The bundle with its context in row order, so that all views share one copy of it."""
        context, side = self.bundle.context, self.side
        index = context.users if side == "user" else context.items
        count = context.n_users if side == "user" else context.n_items
        order = stable_order(index, count)
        if order is None:
            return self.bundle
        return replace(self.bundle, context=replace(context, times=None).select(order))

    @once
    def cells(self) -> Cells:
        return Cells(self._grouped)

    @once
    def rows(self) -> Rows:
        """The context by row of the model."""
        return self._grouped.context.rows(self.side)

    @once
    def by_user(self) -> Rows:
        """The context by user, whichever side the rows are."""
        return self._grouped.context.rows("user")

    @once
    def _all_rows(self) -> AllRows:
        return AllRows(self.net, self.rows)

    @once
    def of_all_items(self) -> IntArray:
        """How many ratings of each item are known. Returns (items,)."""
        if self.side == "user":
            return self.column_totals
        return self.of_rows(np.arange(self.bundle.context.n_items))

    def of_rows(self, rows: IntArray) -> IntArray:
        """How many ratings of these rows the context holds. Returns (n,)."""
        if not self.bundle.has_context:
            return np.zeros(len(rows), np.int64)
        return counts_at(self.rows.counts(), rows)

    def of_columns(self, columns: IntArray) -> IntArray:
        """How many training ratings these columns have. Returns (n,)."""
        return counts_at(self.column_totals, columns)

    def of_users(self, users: IntArray) -> IntArray:
        return self.of_rows(users) if self.side == "user" else self.of_columns(users)

    def of_items(self, items: IntArray) -> IntArray:
        return counts_at(self.of_all_items, items)

    def unseen(self, column: int) -> bool:
        """Whether training saw no rating of the column."""
        return column < 0 or self.column_totals[column] == 0

    # -- given cells --------------------------------------------------------------------------

    def of_person(self, rated: Row, items: IntArray) -> FloatArray:
        """User-based: distributions of items for someone who rated so. Returns (n, K)."""
        scores = self.net.row_cells(rated, np.maximum(items, 0))
        found = distributions(scores)
        found[(items < 0) | (self.column_totals[items] == 0)] = self.frequencies
        return found

    def of_cells(self, users: IntArray, items: IntArray) -> FloatArray:
        """Distributions of cells from the context; few are answered on this thread. (n, K)."""
        few = len(users) <= FEW_CELLS if self.side == "item" else True
        different = np.unique(users) if few else users
        if not few or len(different) > FEW_ROWS:
            return self.cells.probabilities(users, items)
        found = np.empty((len(users), len(self.frequencies)))
        for user in different.tolist():
            at = np.flatnonzero(users == user)
            found[at] = self._of_user(user, items[at])
        return found

    def _of_user(self, user: int, items: IntArray) -> FloatArray:
        if self.side == "user":
            return self.of_person(row_of(self.by_user, user), items)
        if self.unseen(user):
            return np.tile(self.frequencies, (len(items), 1))
        return distributions(self._all_rows.cells(items, user, row_of(self.by_user, user)))

    # -- why ----------------------------------------------------------------------------------

    def effects(self, rated: Row, user: int, item: int) -> explain.Effects:
        """User-based: how a person's other ratings move an item's distribution."""
        del user
        if self.unseen(item):  # its prediction is the training mean, whatever is known
            return explain.constant(self.frequencies, len(rated.columns))
        return explain.effects(self.net, rated, item)

    def level_effects(self, rated: Row, user: int) -> explain.LevelEffects:
        """Item-based: how others' ratings of an item move a user's distribution."""
        if self.unseen(user):
            same = explain.constant(self.frequencies, len(rated.columns))
            K = len(self.frequencies)
            return explain.LevelEffects(same, explain.constant(self.frequencies, K).without)
        return explain.level_effects(self.net, rated, user)

    # -- scores of all items ------------------------------------------------------------------

    def scores(
        self, rated: Sequence[Row], users: IntArray, *, leave_out: bool
    ) -> Iterator[npt.NDArray[Any]]:
        """Scores of every item, for people by what they rated and by index: yields (items, K).

        If leave_out, what they rated is scored from the rest of its row.
        """
        if self.side == "user":
            return self._scores_in_rows(rated, leave_out)
        return self._scores_in_columns(users, leave_out)

    def _scores_in_rows(self, rated: Sequence[Row], leave_out: bool) -> Iterator[npt.NDArray[Any]]:
        unseen = self.column_totals == 0
        for scores in score_rows(self.net, rated, leave_out=leave_out):
            scores[unseen] = self._unseen_scores()
            yield scores

    def _scores_in_columns(self, users: IntArray, leave_out: bool) -> Iterator[npt.NDArray[Any]]:
        for user in users.tolist():
            if self.unseen(user):
                yield np.tile(self._unseen_scores(), (len(self.rows), 1))
            else:
                known = row_of(self.by_user, user)
                yield self._all_rows.scores(user, known, leave_out=leave_out)

    def _unseen_scores(self) -> FloatArray:
        """The scores whose softmax are the training frequencies. Returns (K,)."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.frequencies))


def counts_at(counts: IntArray, indices: IntArray) -> IntArray:
    """Counts of some, 0 for an unknown one (-1). Returns (n,)."""
    return np.where(indices >= 0, counts[indices], 0) if len(counts) else np.zeros_like(indices)
