"""By which ratings it is judged whether a refreshed model is better than the one before.

The newest tenth of ratings, by time, is held back. Of each person's there the earlier half is known
(given), the later half asked for: people who come today are met as the service meets them.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from cfnade.data.ratings import Ratings
from cfnade.data.splits import GIVEN, TRAIN, VALID, Split, cut, newest
from cfnade.fitted import FittedModel
from cfnade.sides.widening import places_of, recounted

HELD_BACK = 0.1
LEAST = 50
"""Ratings below which nothing can be told."""


def by_newest(ratings: Ratings) -> Split:
    """Train, and of the newest tenth what is given and what is asked for of each person."""
    assert ratings.times is not None  # a store has them
    parts = np.full(len(ratings), TRAIN, np.uint8)
    held = np.flatnonzero(newest(ratings.times, ceil(HELD_BACK * len(ratings))))
    order = held[np.lexsort((ratings.times[held], ratings.users[held]))]
    _, counts = np.unique(ratings.users[order], return_counts=True)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    later = rank >= np.repeat(counts // 2, counts)
    parts[order] = np.where(later, np.uint8(VALID), np.uint8(GIVEN))
    return cut(ratings, parts, "the newest tenth")


def fairly_asked(split: Split, fitted: FittedModel) -> Ratings:
    """What both models can be asked: not what the earlier one was told when it was made, and
    nothing of which either has no weights. All of it, if that leaves too few."""
    valid, context = split.valid, fitted.context
    users = places_of(valid.user_ids, context.user_ids)[valid.users]
    items = places_of(valid.item_ids, context.item_ids)[valid.items]
    told = set(zip(context.users.tolist(), context.items.tolist(), strict=True))
    fair = np.array([cell not in told for cell in zip(users.tolist(), items.tolist(), strict=True)])
    for axis, counts in fitted.trained_on.items():
        had = recounted(counts, places_of(valid.ids(axis), context.ids(axis))).sum(1) > 0
        has = split.train.level_counts(axis).sum(1) > 0
        fair &= (had & has)[valid.users if axis == "user" else valid.items]
    return valid.select(fair) if fair.sum() >= LEAST else valid
