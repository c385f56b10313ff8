"""By which ratings it is judged whether a refreshed model is better than the one before.

The newest tenth of ratings, by time, is held back, as far as the earlier model has not learnt it.
Of each person's there the earlier half is known (given), the later half asked for: people who come
today are met as the service meets them.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset, match_ids, match_tables, pair_keys
from cfnade.data.split_protocols import FOLD_IN, TRAIN, VALID, newest
from cfnade.data.splits import Split, apply_labels
from cfnade.fitted_model import FittedModel

BoolArray = npt.NDArray[np.bool_]

HELD_BACK = 0.1
LEAST = 50
"""Ratings below which nothing can be told."""


def holdout_split(ratings: Dataset, fitted: FittedModel) -> Split:
    """By what a model that goes on is judged: the newest that the earlier one was not told, or one
    of the two would know more than the other; whatever is newest, if these are too few."""
    split = by_newest(ratings, ~_told(ratings, fitted.context))
    return split if len(split.valid) >= LEAST else by_newest(ratings)


def by_newest(ratings: Dataset, new: BoolArray | None = None) -> Split:
    """Train, and of the newest tenth (of those that are `new`) what is given and what is asked for
    of each person."""
    assert ratings.times is not None  # a store has them
    parts = np.full(len(ratings), TRAIN, np.uint8)
    tenth = newest(ratings.times, ceil(HELD_BACK * len(ratings)))
    held = np.flatnonzero(tenth if new is None else tenth & new)
    order = held[np.lexsort((ratings.times[held], ratings.users[held]))]
    _, counts = np.unique(ratings.users[order], return_counts=True)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    later = rank >= np.repeat(counts // 2, counts)
    parts[order] = np.where(later, np.uint8(VALID), np.uint8(FOLD_IN))
    return apply_labels(ratings, parts, "the newest tenth")


def _told(ratings: Dataset, context: Dataset) -> BoolArray:
    """Which ratings are of cells of the context."""
    users = match_tables(context.user_ids, ratings.user_ids)[context.users]
    items = match_tables(context.item_ids, ratings.item_ids)[context.items]
    there = (users >= 0) & (items >= 0)
    told = np.sort(users[there] * ratings.n_items + items[there])
    return match_ids(told, pair_keys(ratings.users, ratings.items, ratings.n_items)) >= 0


def common_targets(split: Split, fitted: FittedModel) -> Dataset:
    """What is asked for, without what either model has no weights for, if that leaves enough."""
    valid, both = split.valid, np.ones(len(split.valid), bool)
    for axis, counts in fitted.counts_for(valid).items():
        had = counts.sum(1) > 0
        has = split.train.level_counts(axis).sum(1) > 0
        both &= (had & has)[valid.users if axis == "user" else valid.items]
    return valid.select(both) if both.sum() >= LEAST else valid
