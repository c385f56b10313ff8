"""Where the scores of two owners meet: of a block's target one rank has the item, one the user.

The rank that has the item (the user side's columns) makes the cost. The item side's scores of a
target are made by the rank that has its user; they are sent there, and their slopes come back. Both
ranks have the rating, so both know which cells travel between them: by item, then by user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.group import Array, Group

Owner = Callable[[Array], Array]
"""The rank that has each user, or item."""


class Meeting(NamedTuple):
    """Which cells of the two sides go together."""

    group: Group
    here: IntArray  # (T,) the own items' cells in the order in which others send them
    there: IntArray  # (S,) the own users' cells in the order in which they are sent
    since: list[int]
    to: list[int]

    def bring(self, scores: Array, more: Array) -> None:
        """Add to the scores (T, K) what their other owners say; more (S, K) are own ones."""
        scores[self.here] += self.group.exchange(more[self.there], self.to, self.since)

    def take_back(self, slopes: Array) -> Array:
        """The slopes of the own users' cells, from those of the scores. Returns (S, K)."""
        back = np.empty((len(self.there), slopes.shape[1]), slopes.dtype)
        back[self.there] = self.group.exchange(slopes[self.here], self.since, self.to)
        return back


def meeting_of(
    group: Group,
    owner: Owner,
    here: tuple[Array, Array],
    there: tuple[Array, Array],
) -> Meeting:
    """Of cells by user and item: those of the own items, and those of the own users."""
    of_users, of_items = owner(here[0]), owner(there[1])
    return Meeting(
        group,
        np.lexsort((*here, of_users)),
        np.lexsort((*there, of_items)),
        np.bincount(of_users, minlength=group.size).tolist(),
        np.bincount(of_items, minlength=group.size).tolist(),
    )
