"""Random choices that stay the same for ever.

Only the raw output of NumPy's PCG64 is used, which NumPy promises never to change; its methods that
shuffle and permute may change between releases, and a published split must not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]

_CHUNK = 1 << 20
_TOP = 52  # random keys are first told apart by the 12 bits above this one


def chosen(n: int, count: int, seed: tuple[int, ...]) -> BoolArray:
    """True at `count` of n positions: where a random key is among the smallest. Returns (n,).

    Keys are drawn twice instead of kept: 100 million positions take 100 MB, not 800. A larger
    count of the same n and seed chooses the same positions and more.
    """
    histogram = np.zeros(1 << (64 - _TOP), np.int64)
    for _, keys in _chunks(n, seed):
        histogram += np.bincount(keys >> _TOP, minlength=len(histogram))
    below = np.cumsum(histogram)
    edge = int(np.searchsorted(below, count))  # the bucket in which the count is reached
    missing = count - (int(below[edge - 1]) if edge else 0)

    mask = np.empty(n, bool)
    positions, contested = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start, keys in _chunks(n, seed):
        bucket = keys >> _TOP
        mask[start : start + len(keys)] = bucket < edge
        inside = np.flatnonzero(bucket == edge)
        positions.append(inside + start)
        contested.append(keys[inside])
    smallest = np.argsort(np.concatenate(contested), kind="stable")[:missing]
    mask[np.concatenate(positions)[smallest]] = True
    return mask


def keys_of(n: int, seed: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Random 64-bit keys. Returns (n,)."""
    return np.random.PCG64(seed).random_raw(n)


def _chunks(n: int, seed: tuple[int, ...]) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    bits = np.random.PCG64(seed)
    for start in range(0, n, _CHUNK):
        yield start, bits.random_raw(min(_CHUNK, n - start))
