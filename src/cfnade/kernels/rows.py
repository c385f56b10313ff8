"""Small kernels over the rows of a batch and over flat parameters."""

from __future__ import annotations

from typing import Any

from numba import njit

from cfnade.kernels.adam import adam_run, bare_update
from cfnade.kernels.simd import LANES, address, fill, load, store


@njit(nogil=True, cache=True)
def merge(lo: int, hi: int, pitch: int, buffers: Any, stride: int, scale: Any) -> None:
    """Add up the threads' buffers (`stride` numbers each) into the first, times the row's scale.

    Traffic: every buffer read once, the first written, from the second-level cache.
    """
    for row in range(lo, hi):
        factor = fill(buffers, scale[row])
        for i in range(row * pitch, row * pitch + pitch, LANES):
            value = load(buffers, i)
            for other in range(stride, len(buffers), stride):
                value = value + load(buffers, other + i)
            store(buffers, i, value * factor)


@njit(nogil=True, cache=True)
def flat_step(update: Any, parts: Any, stride: int) -> None:
    """Adam on a flat parameter whose gradient is the sum of the threads' parts.

    Each part is padded to `stride`, whole vectors. Traffic: 24 bytes a weight and the parts.
    """
    for other in range(stride, len(parts), stride):
        for i in range(0, stride, LANES):
            store(parts, i, load(parts, i) + load(parts, other + i))
    adam_run(bare_update(update), 0, address(parts), 0, len(update.table))
