"""Which cells of synthetic data are rated: few people rate much, few items are rated often."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.data.rows import IndexArray
from cfnade.data.sampling import chosen

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ACTIVITY_TAIL, POPULARITY_TAIL = 1.1, 1.6
"""Spreads of the logarithms of how active people and how popular items are."""

FEW = 20
"""Where there are enough ratings, everybody has at least these, as in MovieLens."""

_BLOCK = 1 << 20  # ratings that a thread draws at a time


@dataclass(frozen=True)
class Cells:
    """The rated cells: user u rated items[offsets[u]:offsets[u+1]], in rising order."""

    offsets: IntArray  # (N+1,)
    items: IndexArray  # (n,)
    popularity: FloatArray  # (M,) logarithm of an item's weight, standard normal


def draw_cells(users: int, items: int, ratings: int, seed: int) -> Cells:
    """Distinct cells, with at least one of each user and each item."""
    from cfnade.data import draws  # compiled: not paid for by those who need no synthetic data

    random = np.random.default_rng((seed, 0))
    popularity = random.standard_normal(items)
    activity = np.exp(ACTIVITY_TAIL * random.standard_normal(users))
    floor = fewest(users, ratings)
    counts = floor + apportion(ratings - users * floor, activity, items - floor)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    weights = np.exp(POPULARITY_TAIL * popularity)
    keep, other = alias_table(weights)
    columns = np.empty(ratings, np.int32)
    key = key_of(seed, 1)
    in_blocks(
        offsets,
        lambda a, b: draws.draw_items(key, a, b, offsets, weights, keep, other, columns),
    )
    cover(columns, offsets, items, seed)
    return Cells(offsets, columns, popularity)


def fewest(users: int, ratings: int) -> int:
    """How many ratings everybody gets before the rest is dealt out by activity."""
    average = ratings // users
    return max(min(3, average), min(FEW, average // 4))


def apportion(total: int, weights: FloatArray, most: int) -> IntArray:
    """Whole numbers from 0 to `most` that sum to `total`, nearly proportional to weights. (N,)."""
    low, high = 0.0, most / weights.min() + 1
    for _ in range(200):  # find the factor by bisection; what is beyond `most` goes to the others
        middle = (low + high) / 2
        if np.minimum(middle * weights, most).sum() < total:
            low = middle
        else:
            high = middle
    exact = np.minimum(low * weights, most)
    shares = np.floor(exact).astype(np.int64)
    # At most one more each, to those who lost most by rounding down.
    order = np.argsort(shares - exact, kind="stable")
    open_ = order[shares[order] < most]
    shares[open_[: total - int(shares.sum())]] += 1
    return shares


def alias_table(weights: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Walker's table: draw i evenly, keep it with chance keep[i], else take other[i]."""
    chances = weights * (len(weights) / weights.sum())
    keep, other = chances.tolist(), list(range(len(weights)))
    small, large = np.flatnonzero(chances < 1).tolist(), np.flatnonzero(chances >= 1).tolist()
    while small and large:
        i, j = small.pop(), large[-1]
        other[i] = j
        keep[j] -= 1 - keep[i]
        if keep[j] < 1:
            small.append(large.pop())
    return np.array(keep), np.array(other, np.int32)


def cover(columns: IndexArray, offsets: IntArray, n_items: int, seed: int) -> None:
    """Give every item without a rating one, taken from items that have several.

    There are enough of those as long as there are at least as many ratings as items.
    """
    counts = np.bincount(columns, minlength=n_items)
    missing = np.flatnonzero(counts == 0)
    spare, size = np.empty(0, np.int64), 4 * len(missing)
    while len(spare) < len(missing):
        at = np.flatnonzero(chosen(len(columns), min(size, len(columns)), (seed, 2)))
        at = at[np.argsort(columns[at], kind="stable")]
        group = columns[at]
        rank = np.arange(len(at)) - np.searchsorted(group, group)
        spare, size = at[rank < counts[group] - 1], 2 * size  # one of each item stays
    moved = spare[chosen(len(spare), len(missing), (seed, 3))]
    columns[moved] = missing
    for user in np.unique(np.searchsorted(offsets, moved, side="right") - 1).tolist():
        columns[offsets[user] : offsets[user + 1]].sort()


def key_of(seed: int, stream: int) -> np.uint64:
    """The key of one stream of random numbers."""
    return np.uint64(np.random.SeedSequence((seed, stream)).generate_state(1, np.uint64)[0])


def in_blocks(offsets: IntArray, work: Callable[[int, int], object]) -> None:
    """Call work(first, last) for ranges of users with about a million ratings each, in threads."""
    n_blocks = 1 + int(offsets[-1]) // _BLOCK
    targets = np.linspace(0, int(offsets[-1]), n_blocks + 1)[1:-1]
    bounds = [0, *np.searchsorted(offsets, targets).tolist(), len(offsets) - 1]
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


def threads() -> int:
    """How many threads may run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
