"""Tables in 12 or 16 bits a number: whole numbers, times a scale of each item.

An item's weights are of one size, so that 16 bits are several times as exact as float16, which
gives five of its bits to how large each number is. Where a level also counts what those below it
say, the sums are rounded, and the numbers are their differences: errors do not add up over levels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


class Rounded(NamedTuple):
    """values ≈ steps × scales of their first axis."""

    steps: IntArray
    scales: npt.NDArray[np.float32]  # (M,)


def rounded(table: npt.NDArray[Any], bits: int, *, summed: bool) -> Rounded:
    """Of a table (M, …), `summed` over its second axis before it is used."""
    values = np.asarray(table, np.float64)
    others = tuple(range(1, values.ndim))
    # One less than fits: a difference of rounded sums may be one larger than what it rounds.
    scales = np.abs(values).max(others) / ((1 << (bits - 1)) - 2)
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    units = values / scales.reshape(-1, *[1] * len(others))
    steps = np.diff(np.rint(units.cumsum(1)), axis=1, prepend=0) if summed else np.rint(units)
    return Rounded(steps.astype(np.int64), scales)


def packed(steps: IntArray, bits: int) -> npt.NDArray[Any]:
    """As int16, or two of 12 bits in three bytes, the lower first, each 2048 above what it is."""
    if bits == 16:
        return steps.astype("<i2")
    low, high = np.append(steps + 2048, np.zeros(steps.size % 2, np.int64)).reshape(-1, 2).T
    both = low | high << 12
    return np.stack([both & 255, both >> 8 & 255, both >> 16], 1).astype(np.uint8)
