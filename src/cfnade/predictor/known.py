"""What a bundle's context knows, in the forms that answers need; each is made once, when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.rows import Rows, stable_order
from cfnade.predictor.histories import Person
from cfnade.predictor.scoring import NOTHING, AllRows, Row, row_of, score_rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Known:
    """Views of one bundle. Users and items are indices here, -1 an unknown one."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.column_totals: IntArray = bundle.column_counts.sum(1)  # (M,)
        level_totals = bundle.column_counts.sum(0)
        self.frequencies: FloatArray = level_totals / level_totals.sum()
        """The training ratings' frequencies (K,): what is predicted in an unseen column."""

    @cached_property
    def _grouped(self) -> Bundle:
        """The bundle with its context in row order, so that all views share one copy of it."""
        context, side = self.bundle.context, self.bundle.side
        index = context.users if side == "user" else context.items
        count = context.n_users if side == "user" else context.n_items
        order = stable_order(index, count)
        if order is None:
            return self.bundle
        return replace(self.bundle, context=replace(context, times=None).select(order))

    @cached_property
    def cells(self) -> Cells:
        return Cells(self._grouped)

    @cached_property
    def rows(self) -> Rows:
        """The context by row of the model."""
        return self._grouped.context.rows(self.bundle.side)

    @cached_property
    def by_user(self) -> Rows:
        """The context by user, whichever side the rows are."""
        return self._grouped.context.rows("user")

    @cached_property
    def _all_rows(self) -> AllRows:
        return AllRows(self.bundle.model, self.rows)

    def cells_of(self, people: Sequence[Person]) -> Cells:
        """Cells whose users are these people, by place, instead of those of the context."""
        counts = [len(person) for person in people]
        context = replace(
            self.bundle.context,
            users=np.repeat(np.arange(len(people), dtype=np.int32), counts),
            items=np.concatenate([NOTHING.columns, *(person.items for person in people)]),
            levels=np.concatenate([NOTHING.levels, *(person.levels for person in people)]),
            user_ids=np.arange(len(people)),
            times=None,
        )
        return Cells(replace(self.bundle, context=context, has_context=True))

    def of_rows(self, rows: IntArray) -> IntArray:
        """How many ratings of these rows the context holds. Returns (n,)."""
        if not self.bundle.has_context:
            return np.zeros(len(rows), np.int64)
        return _at(self.rows.counts(), rows)

    def of_columns(self, columns: IntArray) -> IntArray:
        """How many training ratings these columns have. Returns (n,)."""
        return _at(self.column_totals, columns)

    def unseen(self, column: int) -> bool:
        """Whether training saw no rating of the column."""
        return column < 0 or self.column_totals[column] == 0

    # -- scores of all items ------------------------------------------------------------------

    def scores(self, rated: Sequence[Row], users: IntArray, *, leave_out: bool) -> Iterator[Tensor]:
        """Scores of every item, for people by what they rated and by index: yields (items, K).

        If leave_out, what they rated is scored from the rest of its row.
        """
        if self.bundle.side == "user":
            return self._scores_in_rows(rated, leave_out)
        return self._scores_in_columns(self._all_rows, users, leave_out)

    def _scores_in_rows(self, rated: Sequence[Row], leave_out: bool) -> Iterator[Tensor]:
        unseen = torch.from_numpy(np.flatnonzero(self.column_totals == 0))
        for scores in score_rows(self.bundle.model, rated, leave_out=leave_out):
            scores[unseen] = self._unseen_scores().to(scores.dtype)
            yield scores

    def _scores_in_columns(
        self, rows: AllRows, users: IntArray, leave_out: bool
    ) -> Iterator[Tensor]:
        for user in users.tolist():
            if self.unseen(user):
                yield self._unseen_scores().repeat(len(self.rows), 1)
            else:
                yield rows.scores(user, row_of(self.by_user, user), leave_out=leave_out)

    def _unseen_scores(self) -> Tensor:
        """The scores whose softmax are the training frequencies. Returns (K,)."""
        return torch.from_numpy(self.frequencies).log()


def _at(counts: IntArray, indices: IntArray) -> IntArray:
    return np.where(indices >= 0, counts[indices], 0) if len(counts) else np.zeros_like(indices)
