"""Padded working copies: rows of whole vectors, aligned, and free of cache-set collisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from cfnade.kernels.simd import LANES, address

Array = NDArray[Any]


class Shape(NamedTuple):
    """A column's block, as the kernels see it."""

    levels: int  # K
    width: int  # D
    whole: int  # D rounded up to whole vectors
    pitch: int  # distance between the rows of a batch


class Scratch(NamedTuple):
    """One thread's working memory for one column and one tile of 16 targets."""

    block: Array  # (K · whole,) the column's vectors, cumulated if shared
    d_block: Array  # (K · whole,) their gradient
    bias: Array  # (K,) padded: the column's biases, cumulated if shared
    d_bias: Array  # (K,) padded: their gradient
    scores: Array  # (16 · K,)
    slopes: Array  # (16 · K,) gradient of the scores
    running: Array  # (32 · K,) sums along the levels
    truth: Array  # (16,) true levels
    weights: Array  # (16,)
    begins: Array  # (16,) int64: where the targets' rows begin


@njit(nogil=True)
def bare_scratch(scratch: Any) -> Any:
    """The same, as pointers."""
    return Scratch(
        address(scratch.block),
        address(scratch.d_block),
        address(scratch.bias),
        address(scratch.d_bias),
        address(scratch.scores),
        address(scratch.slopes),
        address(scratch.running),
        address(scratch.truth),
        address(scratch.weights),
        address(scratch.begins),
    )


def padded(width: int) -> int:
    """The width rounded up to whole vectors."""
    return -(-width // LANES) * LANES


def shape_of(levels: int, width: int) -> Shape:
    """Rows a multiple of 1 KB apart would share few cache sets: they get one vector more."""
    whole = padded(width)
    return Shape(levels, width, whole, whole + LANES if whole % 256 == 0 else whole)


def buffer(dtype: Any, size: int) -> Array:
    """Zeros that begin on a cache line (numpy promises 16 bytes, torch 64)."""
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return np.asarray(torch.zeros(size, dtype=kind).numpy())


def scratch_of(dtype: Any, shape: Shape) -> Scratch:
    """Fresh working memory."""
    K, block = shape.levels, shape.levels * shape.whole
    sizes = (block, block, padded(K), padded(K), LANES * K, LANES * K, 2 * LANES * K, LANES, LANES)
    parts = [buffer(dtype, size) for size in sizes] + [np.zeros(LANES, np.int64)]
    return Scratch(*parts)
