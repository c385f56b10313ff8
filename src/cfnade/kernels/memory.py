"""Working memory: rows of whole vectors, aligned, and free of cache-set collisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfnade.kernels.compiled import glue
from cfnade.kernels.simd import LANES, address, as_indices, beyond

Array = NDArray[Any]
Matrix = TypeVar("Matrix")

TOGETHER = 4_096
"""Numbers of the blocks whose targets share a tile: with their gradients they fill the first-level
cache. Larger blocks have more targets each."""


class BlockShape(NamedTuple):
    """A column's block, as the kernels see it."""

    levels: int  # K
    width: int  # D
    whole: int  # D rounded up to whole vectors
    pitch: int  # distance between the rows of a batch
    most: int  # columns whose targets may share a tile


class Scratch(NamedTuple):
    """One thread's memory for a tile of 16 targets and its columns, as pointers.

    Up to `most` columns follow each other in the first four.
    """

    block: Any  # (K · whole,) a column's vectors
    d_block: Any  # (K · whole,) their gradient
    bias: Any  # (K,) a column's biases
    d_bias: Any  # (K,) their gradient
    scores: Any  # (16 · K,)
    slopes: Any  # (16 · K,) gradient of the scores
    running: Any  # (32 · K,) sums along the levels
    truth: Any  # (16,) true levels
    weights: Any  # (16,)
    begins: Any  # (16,) int64: where the targets' rows begin


@glue
def scratch_in(memory: Any, shape: Any) -> Any:
    """The parts of one array: kernels take few arrays, for each is long to compile."""
    block, tile = shape.most * shape.levels * shape.whole, shape.levels * LANES
    bias = beyond(address(memory), 2 * block)
    running = beyond(bias, 4 * tile)
    return Scratch(
        address(memory),
        beyond(address(memory), block),
        bias,
        beyond(bias, tile),
        beyond(bias, 2 * tile),
        beyond(bias, 3 * tile),
        running,
        beyond(running, 2 * tile),
        beyond(running, 2 * tile + LANES),
        as_indices(beyond(running, 2 * tile + 2 * LANES)),
    )


@glue
def share_of(scratch: Any, column: int, lane: int, shape: Any) -> Any:
    """The memory of one of a tile's columns, whose targets begin at a lane."""
    block, bias = column * shape.levels * shape.whole, column * shape.levels
    return Scratch(
        beyond(scratch.block, block),
        beyond(scratch.d_block, block),
        beyond(scratch.bias, bias),
        beyond(scratch.d_bias, bias),
        beyond(scratch.scores, lane),
        beyond(scratch.slopes, lane),
        scratch.running,
        scratch.truth,
        scratch.weights,
        beyond(scratch.begins, lane),
    )


def padded(width: int) -> int:
    """The width rounded up to whole vectors."""
    return -(-width // LANES) * LANES


def shape_of(levels: int, width: int) -> BlockShape:
    """Rows a multiple of 1 KB apart would share few cache sets: they get one vector more."""
    whole = padded(width)
    pitch = whole + LANES if whole % 256 == 0 else whole
    most = min(LANES, max(1, TOGETHER // (levels * whole)))
    return BlockShape(levels, width, whole, pitch, most)


_LINE = 64  # bytes


def buffer(dtype: Any, size: int) -> Array:
    """Zeros that begin on a cache line; numpy promises 16 bytes."""
    count = size * np.dtype(dtype).itemsize
    whole = np.zeros(count + _LINE, np.uint8)
    first = -whole.__array_interface__["data"][0] % _LINE
    return whole[first : first + count].view(dtype)


def scratch_of(dtype: Any, shape: BlockShape) -> Array:
    """Memory for a Scratch: blocks twice, six tiles, two vectors and 16 indices."""
    blocks = 2 * shape.most * shape.whole
    return buffer(dtype, shape.levels * (blocks + 6 * LANES) + 4 * LANES)


def frozen(array: Array) -> Array:
    """A view that cannot be written through: kernels that only read then have one version,
    whether an array came from a file that is mapped or from memory."""
    view = array.view()
    view.flags.writeable = False
    return view


def unpadded(rows: Array, shape: BlockShape) -> Array:
    """A view of padded rows without the padding. Returns (rows, D)."""
    return rows.reshape(-1, shape.pitch)[:, : shape.width]


class TableMemory(Generic[Matrix]):
    """A table, flat, and what each thread needs to work on it: scratch, and rows of its width.

    `view` is how these rows are seen without their padding: as an array, or as torch has it.
    """

    def __init__(
        self, table: Array, threads: int, view: Callable[[Array, BlockShape], Matrix]
    ) -> None:
        _, K, D = table.shape
        self.shape = shape_of(K, D)
        self.flat: Array = table.reshape(-1)
        self.scratch = [scratch_of(self.flat.dtype, self.shape) for _ in range(threads)]
        self.threads = threads
        self.rows = 0
        self._view = view
        self._memory: Array = buffer(self.flat.dtype, 0)
        self._parts: list[tuple[Array, Matrix]] = []

    def reserve(self, rows: int) -> None:
        """Make room for a buffer of `rows` rows per thread."""
        if rows == self.rows and self._parts:
            return
        self.rows = rows
        if len(self._memory) < self.threads * self.size:
            self._memory = buffer(self.flat.dtype, self.threads * self.size)
        parts = [self._memory[t * self.size : (t + 1) * self.size] for t in range(self.threads)]
        self._parts = [(part, self._view(part, self.shape)) for part in parts]

    @property
    def size(self) -> int:
        """Numbers in one buffer."""
        return self.rows * self.shape.pitch

    def whole(self) -> Array:
        """All threads' buffers, one behind the other."""
        return self._memory[: self.threads * self.size]

    def part(self, thread: int) -> Array:
        """One thread's buffer."""
        return self._parts[thread][0]

    def matrix(self, thread: int = 0) -> Matrix:
        """One thread's buffer, or the first, without padding. Returns (rows, D)."""
        return self._parts[thread][1]

    def merge(self, lo: int, hi: int) -> Matrix:
        """Add the threads' rows lo..hi into the first buffer, in a fixed order. Returns (n, D)."""
        every: list[Any] = [self.matrix(thread) for thread in range(self.threads)]
        rows: Matrix = every[0][lo:hi]
        for other in every[1:]:
            rows += other[lo:hi]
        return rows
