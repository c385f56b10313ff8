"""Tables in sixteen bits: whole numbers, times a scale of each item.

An item's weights are of one size, so that this is several times as exact as float16, which gives
five of its bits to how large each number is. Where a level also counts what those below it say, the
sums are rounded, and the numbers are their differences: errors do not add up over levels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LARGEST = (1 << 15) - 2
"""One less than there is: a difference of rounded sums may be one larger than what it rounds."""


class Rounded(NamedTuple):
    """values ≈ steps × scales of their first axis."""

    steps: npt.NDArray[np.int16]
    scales: npt.NDArray[np.float32]  # (M,)


def rounded(table: npt.NDArray[Any], *, summed: bool) -> Rounded:
    """Of a table (M, …), `summed` over its second axis before it is used."""
    values = np.asarray(table, np.float64)
    others = tuple(range(1, values.ndim))
    scales = np.abs(values).max(others) / LARGEST
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    units = values / scales.reshape(-1, *[1] * len(others))
    steps = np.diff(np.rint(units.cumsum(1)), axis=1, prepend=0) if summed else np.rint(units)
    return Rounded(steps.astype(np.int16), scales)
