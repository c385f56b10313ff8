"""One model of side "both", with the questions that a Predictor asks of a one-sided one.

Scores of the two sides are added. What training never saw has no output weights on one side and is
scored there by its own known ratings (models/unseen.py): so is a new person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.rows import Rows
from cfnade.models.joint import JointCFNADE
from cfnade.models.unseen import untrained_scores
from cfnade.predictor import explain
from cfnade.predictor.known import FEW_CELLS, FEW_ROWS, counts_at
from cfnade.predictor.once import once
from cfnade.predictor.scoring import AllRows, Net, Row, distributions, row_of, score_rows

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class JointKnown:
    """Both sides of a model. Users and items are indices, -1 an unknown one."""

    def __init__(self, bundle: Bundle) -> None:
        model = cast(JointCFNADE, bundle.model)
        self.bundle = bundle
        self.user_net, self.item_net = Net(model.user), Net(model.item)
        self._seen_items = bundle.column_counts.sum(1) > 0
        self._seen_users = cast(IntArray, bundle.row_counts).sum(1) > 0
        counts = bundle.column_counts.sum(0)
        self._everyone = counts.astype(np.float64)
        self.frequencies: FloatArray = counts / counts.sum()

    @once
    def by_user(self) -> Rows:
        return self.bundle.context.rows("user")

    @once
    def rows(self) -> Rows:
        """The context by item."""
        return self.bundle.context.rows("item")

    @once
    def cells(self) -> Cells:
        return Cells(self.bundle)

    @once
    def _items(self) -> AllRows:
        return AllRows(self.item_net, self.rows)

    # -- how much is known --------------------------------------------------------------------

    @once
    def of_all_items(self) -> IntArray:
        """How many ratings of each item are known. Returns (items,)."""
        return self.rows.counts()

    def of_items(self, items: IntArray) -> IntArray:
        return counts_at(self.of_all_items, items)

    def of_users(self, users: IntArray) -> IntArray:
        return counts_at(self.by_user.counts(), users)

    # -- given cells --------------------------------------------------------------------------

    def of_person(self, rated: Row, items: IntArray) -> FloatArray:
        """Distributions of items for someone new who rated so. Returns (n, K)."""
        return distributions(self.cell_scores(rated, -1, items))

    def of_cells(self, users: IntArray, items: IntArray) -> FloatArray:
        """Distributions of cells from the context; few are answered on this thread. (n, K)."""
        different = np.unique(users)
        if len(users) > FEW_CELLS or len(different) > FEW_ROWS:
            return self.cells.probabilities(users, items)
        found = np.empty((len(users), len(self.frequencies)))
        for user in different.tolist():
            at = np.flatnonzero(users == user)
            scores = self.cell_scores(row_of(self.by_user, user), user, items[at])
            found[at] = distributions(scores)
        return found

    # -- given items of one person ------------------------------------------------------------

    def cell_scores(self, rated: Row, user: int, items: IntArray) -> Array:
        """Scores of items for someone who rated so; user -1 is nobody of the data. (n, K)."""
        of_user = self.user_net.row_cells(rated, np.maximum(items, 0))
        new = (items < 0) | ~self._seen_items[items]
        if new.any():
            of_user[new] = self._new_items(user, items[new])
        return of_user + self.item_side(rated, user, items)

    def item_side(self, rated: Row, user: int, items: IntArray) -> Array:
        """What others' ratings of the items say of this person. Returns (n, K)."""
        if user >= 0 and self._seen_users[user]:
            return self._items.cells(items, user, row_of(self.by_user, user))
        return self._new_person(rated, items)

    def _new_person(self, rated: Row, items: IntArray) -> Array:
        """By how the person rated everything else."""
        counts = np.bincount(rated.levels, minlength=len(self._everyone)).astype(np.float64)
        counts = self._less_own(np.tile(counts, (len(items), 1)), rated, items)
        return untrained_scores(counts, self._everyone, prior=False)

    def _new_items(self, user: int, items: IntArray) -> Array:
        """By how everyone else rated them."""
        counts = np.where((items >= 0)[:, None], self._item_levels[items], 0.0)
        counts = self._less_own(counts, row_of(self.by_user, user), items)
        return untrained_scores(counts, self._everyone, prior=True)

    @once
    def _item_levels(self) -> FloatArray:
        """How often each item was rated at each level. Returns (items, K)."""
        K, context = len(self._everyone), self.bundle.context
        cells = context.items.astype(np.int64) * K + context.levels
        return np.bincount(cells, minlength=context.n_items * K).reshape(-1, K).astype(np.float64)

    def _less_own(self, counts: FloatArray, rated: Row, items: IntArray) -> FloatArray:
        """Counts (n, K) without the person's own rating of each item."""
        level = np.full(len(self._seen_items), -1)
        level[rated.columns] = rated.levels
        own = np.where(items >= 0, level[items], -1)
        held = np.flatnonzero(own >= 0)
        counts[held, own[held]] -= 1.0
        return counts

    # -- all items of many people -------------------------------------------------------------

    def scores(self, rated: Sequence[Row], users: IntArray, *, leave_out: bool) -> Iterator[Array]:
        """Scores of every item for each person: yields (items, K).

        If leave_out, what they rated is scored from everything else.
        """
        every = np.arange(len(self._seen_items))
        new = np.flatnonzero(~self._seen_items)
        of_users = score_rows(self.user_net, rated, leave_out=leave_out)
        for row, user, scores in zip(rated, users.tolist(), of_users, strict=True):
            if len(new):
                scores[new] = self._new_items(user, new)
            if user >= 0 and self._seen_users[user]:
                known = row_of(self.by_user, user)
                yield scores + self._items.scores(user, known, leave_out=leave_out)
            else:
                yield scores + self._new_person(row, every)

    # -- why ----------------------------------------------------------------------------------

    def effects(self, rated: Row, user: int, item: int) -> explain.Effects:
        """How a person's other ratings move an item's distribution; others' ratings stay."""
        at, count = np.array([item]), len(rated.columns)
        added = self.item_side(rated, user, at)  # (1, K)
        without = np.repeat(added, count, axis=0)
        if user < 0 or not self._seen_users[user]:  # then it rests on the person's ratings too
            without = self._new_person(rated, rated.columns.astype(np.int64))
        if self._seen_items[item]:
            return explain.effects(self.user_net, rated, item, added, without)
        own = self._new_items(user, at)
        return explain.Effects(distributions(own + added)[0], distributions(own + without))

    def level_effects(self, rated: Row, user: int) -> explain.LevelEffects:  # noqa: ARG002
        """How others' ratings of an item move it is asked of item-based models alone."""
        raise TypeError("a model of both sides is explained by the person's ratings")
