"""Drawing synthetic ratings: which cells are rated, and how.

Few people rate much, few items are rated often. Compiled loops do the drawing; their random numbers
are hashes of (key, counter), so each person's and each rating's are their own, whatever thread
draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from cfnade._typing import IndexArray, IntArray
from cfnade.data.scale import FloatArray
from cfnade.data.split_protocols import choose_positions
from cfnade.utils.threads import parallel_map

ACTIVITY_TAIL, POPULARITY_TAIL = 1.1, 1.6
"""Spreads of the logarithms of how active people and how popular items are."""

FEW = 20
"""Where there are enough ratings, everybody has at least these, as in MovieLens."""

_BLOCK = 1 << 20  # ratings that a thread draws at a time
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: splitmix64's increment
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class RatedCells:
    """The rated cells: user u rated items[offsets[u]:offsets[u+1]], in rising order."""

    offsets: IntArray  # (N+1,)
    items: IndexArray  # (n,)
    popularity: FloatArray  # (M,) logarithm of an item's weight, standard normal


def draw_cells(users: int, items: int, ratings: int, seed: int) -> RatedCells:
    """Distinct cells, with at least one of each user and each item."""
    random = np.random.default_rng((seed, 0))
    popularity = random.standard_normal(items)
    activity = np.exp(ACTIVITY_TAIL * random.standard_normal(users))
    average = ratings // users
    floor = max(min(3, average), min(FEW, average // 4))  # the rest is dealt out by activity
    counts = floor + apportion(ratings - users * floor, activity, items - floor)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    weights = np.exp(POPULARITY_TAIL * popularity)
    keep, other = alias_table(weights)
    columns = np.empty(ratings, np.int32)
    key = key_of(seed, 1)
    in_blocks(offsets, lambda a, b: draw_items(key, a, b, offsets, weights, keep, other, columns))
    cover(columns, offsets, items, seed)
    return RatedCells(offsets, columns, popularity)


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
        drawn = np.flatnonzero(choose_positions(len(columns), min(size, len(columns)), (seed, 2)))
        drawn = drawn[np.argsort(columns[drawn], kind="stable")]
        group = columns[drawn]
        rank = np.arange(len(drawn)) - np.searchsorted(group, group)
        spare, size = drawn[rank < counts[group] - 1], 2 * size  # one of each item stays
    moved = spare[choose_positions(len(spare), len(missing), (seed, 3))]
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
    parallel_map(work, bounds[:-1], bounds[1:])


# -- compiled -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _bits(key: Any, counter: Any) -> Any:
    """64 random bits: splitmix64's output number `counter` from the state `key`."""
    z = key + np.uint64(counter) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def _unit(bits: Any) -> Any:
    """A number strictly between 0 and 1, in steps of 2^-53."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * 2.0**-52


@njit(cache=True, nogil=True)
def draw_items(
    key: np.uint64,
    first: int,
    last: int,
    offsets: IntArray,
    weights: FloatArray,
    keep: FloatArray,
    other: IndexArray,
    items: IndexArray,
) -> None:
    """Fill items[offsets[u]:offsets[u+1]], rising and distinct, for users first ≤ u < last.

    Popular items are drawn one by one, and again when they are there already; whoever rates more
    than a quarter of the items would wait long for new ones, and gets the smallest of exponential
    waiting times instead. Both are draws without replacement in proportion to the weights.
    """
    count = len(weights)
    taken = np.zeros(count, np.bool_)
    waits = np.empty(count, np.float64)
    for user in range(first, last):
        own = items[offsets[user] : offsets[user + 1]]
        own_key = _bits(key, user + 1)
        if 4 * len(own) <= count:
            _draw_one_by_one(own_key, keep, other, taken, own)
        else:
            _draw_by_waiting(own_key, weights, waits, own)
        own.sort()


@njit(cache=True, nogil=True)
def _draw_one_by_one(key: Any, keep: Any, other: Any, taken: Any, own: Any) -> None:
    filled, counter = 0, 0
    while filled < len(own):
        bits = _bits(key, counter + 1)
        counter += 1
        place = _unit(bits) * len(keep)
        item = min(int(place), len(keep) - 1)
        if place - item >= keep[item]:  # the fraction is as random as the whole part
            item = other[item]
        if not taken[item]:
            taken[item] = True
            own[filled] = item
            filled += 1
    for item in own:
        taken[item] = False


@njit(cache=True, nogil=True)
def _draw_by_waiting(key: Any, weights: Any, waits: Any, own: Any) -> None:
    for item in range(len(weights)):
        waits[item] = -math.log(_unit(_bits(key, item + 1))) / weights[item]
    limit = np.partition(waits, len(own) - 1)[len(own) - 1]
    filled = 0
    for item in range(len(weights)):
        if waits[item] <= limit and filled < len(own):
            own[filled] = item
            filled += 1


@njit(cache=True, nogil=True)
def draw_levels(
    key: np.uint64,
    first: int,
    last: int,
    offsets: IntArray,
    items: IndexArray,
    user_bias: FloatArray,
    item_bias: FloatArray,
    user_taste: npt.NDArray[np.float32],
    item_taste: npt.NDArray[np.float32],
    cuts: FloatArray,
    users: IndexArray,
    levels: npt.NDArray[np.uint8],
) -> None:
    """Fill users and levels for users first ≤ u < last: how many cuts liking plus noise passes."""
    factors = user_taste.shape[1]
    for user in range(first, last):
        for t in range(offsets[user], offsets[user + 1]):
            item = items[t]
            liking = user_bias[user] + item_bias[item]
            for f in range(factors):
                liking += user_taste[user, f] * item_taste[item, f]
            chance = _unit(_bits(key, t + 1))
            liking += math.log(chance / (1.0 - chance))  # logistic noise
            level = 0
            while level < len(cuts) and liking > cuts[level]:
                level += 1
            users[t] = user
            levels[t] = level
