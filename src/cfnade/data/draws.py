"""Compiled loops that draw synthetic ratings. Random numbers are hashes of (key, counter), so
each person's and each rating's are their own, whatever thread draws them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: splitmix64's increment
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


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
    found, counter = 0, 0
    while found < len(own):
        bits = _bits(key, counter + 1)
        counter += 1
        place = _unit(bits) * len(keep)
        item = min(int(place), len(keep) - 1)
        if place - item >= keep[item]:  # the fraction is as random as the whole part
            item = other[item]
        if not taken[item]:
            taken[item] = True
            own[found] = item
            found += 1
    for item in own:
        taken[item] = False


@njit(cache=True, nogil=True)
def _draw_by_waiting(key: Any, weights: Any, waits: Any, own: Any) -> None:
    for item in range(len(weights)):
        waits[item] = -math.log(_unit(_bits(key, item + 1))) / weights[item]
    limit = np.partition(waits, len(own) - 1)[len(own) - 1]
    found = 0
    for item in range(len(weights)):
        if waits[item] <= limit and found < len(own):
            own[found] = item
            found += 1


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
