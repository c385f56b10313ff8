"""Compiled loops that draw synthetic ratings.

Random numbers are hashes of (key, counter), so the numbers of each user and each rating are their
own, whatever thread draws them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cfnade.kernels.jit import inlined, internal, kernel
from cfnade.kernels.sampling import mix_bits

FloatArray = npt.NDArray[np.float64]

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: splitmix64's increment


@inlined
def _bits(key, counter):
    """Return 64 random bits: splitmix64's output number `counter` from the state `key`."""
    return mix_bits(key + np.uint64(counter) * _STEP)


@inlined
def _unit(bits):
    """Return a number strictly between 0 and 1, in steps of 2^-53."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel
def draw_items(key, first, last, offsets, weights, accept, alias, items):
    """Fill items[offsets[u]:offsets[u+1]], rising and distinct, for users first ≤ u < last.

    Items are drawn one by one, and again if they were drawn already. For users who rate more than
    a quarter of the items this takes long: they get the smallest of exponential waiting times.
    Both are draws without replacement in proportion to the weights.
    """
    count = len(weights)
    is_drawn = np.zeros(count, np.bool_)
    waits = np.empty(count, np.float64)
    for user in range(first, last):
        row = items[offsets[user] : offsets[user + 1]]
        row_key = _bits(key, user + 1)
        if 4 * len(row) <= count:
            _draw_one_by_one(row_key, accept, alias, is_drawn, row)
        else:
            _draw_by_waiting(row_key, weights, waits, row)
        row.sort()


@internal
def _draw_one_by_one(key, accept, alias, is_drawn, row):
    filled, counter = 0, 0
    while filled < len(row):
        bits = _bits(key, counter + 1)
        counter += 1
        position = _unit(bits) * len(accept)
        item = min(int(position), len(accept) - 1)
        if position - item >= accept[item]:  # the fraction is as random as the whole part
            item = alias[item]
        if not is_drawn[item]:
            is_drawn[item] = True
            row[filled] = item
            filled += 1
    for item in row:
        is_drawn[item] = False


@internal
def _draw_by_waiting(key, weights, waits, row):
    for item in range(len(weights)):
        waits[item] = -math.log(_unit(_bits(key, item + 1))) / weights[item]
    limit = np.partition(waits, len(row) - 1)[len(row) - 1]
    filled = 0
    for item in range(len(weights)):
        if waits[item] <= limit and filled < len(row):
            row[filled] = item
            filled += 1


@kernel
def draw_levels(
    key,
    first,
    last,
    offsets,
    items,
    user_bias,
    item_bias,
    user_factors,
    item_factors,
    cuts,
    users,
    levels,
):
    """Fill users and levels for users first ≤ u < last: count the cuts below utility plus noise."""
    factors = user_factors.shape[1]
    for user in range(first, last):
        for t in range(offsets[user], offsets[user + 1]):
            item = items[t]
            utility = user_bias[user] + item_bias[item]
            for f in range(factors):
                utility += user_factors[user, f] * item_factors[item, f]
            probability = _unit(_bits(key, t + 1))
            utility += math.log(probability / (1.0 - probability))  # logistic noise
            level = 0
            while level < len(cuts) and utility > cuts[level]:
                level += 1
            users[t] = user
            levels[t] = level
