"""Hold-outs: interactions that are hidden from training, to choose models by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.validation import Question

SHARE, LEAST = 0.2, 5
"""Share of a user's interactions that is hidden, and the fewest that a user must have."""
FEWEST_USERS, MOST_USERS, SCORES = 1_000, 4_000, 30_000_000
"""Users who are asked: as many as have so many scores of items, within these bounds."""
FEW_USERS, MOST_HOLDOUTS = 1_500, 3
"""Of fewer users several hold-outs are made, so that the choice is not noise."""
RARE_SHARE, LARGE_CATALOG = 0.05, 2_000
"""In large catalogs the search leaves out the rarest items, which hold this share of answers."""


def most_asked(users: int, items: int) -> int:
    """Return how many of these users are asked."""
    return min(users, int(np.clip(SCORES // items, FEWEST_USERS, MOST_USERS)))


@dataclass(frozen=True)
class HoldOut:
    """Training rows, and the question put to some of their users."""

    rows: InteractionRows
    history: InteractionRows
    """What is known of the users who are asked; not necessarily rows of training."""
    answers: InteractionRows

    @cached_property
    def _users(self) -> IntArray:
        return np.flatnonzero(self.answers.counts > 0)

    def question(self, seed: int) -> Question:
        """Return the question for some users."""
        users = self._users
        most = most_asked(len(users), self.rows.n_columns)
        if len(users) > most:
            rng = np.random.default_rng((seed, 21))
            users = np.sort(rng.choice(users, most, replace=False))
        return Question(self.history.select(users), self.answers.select(users))

    def of_frequent_items(self) -> HoldOut:
        """Return the same without the rarest items, where a catalog is large."""
        if self.rows.n_columns <= LARGE_CATALOG:
            return self
        counts = self.rows.item_counts()
        rarity = np.sort(counts[self.answers.columns])
        least = rarity[int(RARE_SHARE * (len(rarity) - 1))] if len(rarity) else 0
        keep = counts >= max(1, least)
        parts = (_of_items(part, keep) for part in (self.rows, self.history, self.answers))
        return HoldOut(*parts)


def _of_items(rows: InteractionRows, keep: npt.NDArray[np.bool_]) -> InteractionRows:
    places = np.cumsum(keep, dtype=np.int32) - 1
    frequent = rows.where(keep[rows.columns])
    columns = places[frequent.columns]
    return InteractionRows(frequent.indptr, columns, frequent.weights, int(keep.sum()))


def hold_outs(
    rows: InteractionRows, *, seed: int, times: npt.NDArray[np.int64] | None = None
) -> Sequence[HoldOut]:
    """Hide a part of each user's interactions: random ones, or the latest with times (n,).

    Empty if no user has two interactions.
    """
    counts = rows.counts
    least = LEAST if (counts >= LEAST).any() else 2
    eligible = int((counts >= least).sum())
    if not eligible:
        return []
    number = int(np.clip(-(-FEW_USERS // eligible), 1, MOST_HOLDOUTS)) if times is None else 1
    return [_hold_out(rows, least, seed + n, times) for n in range(number)]


def _hold_out(
    rows: InteractionRows, least: int, seed: int, times: npt.NDArray[np.int64] | None
) -> HoldOut:
    counts, row = rows.counts, rows.rows
    n_hidden = np.where(counts >= least, np.maximum(1, np.rint(SHARE * counts)), 0)
    keys = np.random.default_rng((seed, 20)).random(len(rows.columns))
    order = np.lexsort((keys, row)) if times is None else np.lexsort((keys, -times, row))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(rows.indptr[:-1], counts)
    hidden = place < n_hidden[row]
    remaining = rows.where(~hidden)
    return HoldOut(remaining, remaining, rows.where(hidden))
