"""Working memory of kernels: block layout, buffers of each thread, and argument checks.

Rows consist of whole vectors, are aligned, and free of cache-set collisions. With shared weights
(Eq. 9 and 10) level k is the sum of the table's levels up to k, so a gradient is cumulated the
other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfnade.exceptions import ModelError
from cfnade.kernels.jit import inlined, internal
from cfnade.kernels.simd import (
    LANES,
    as_int64_pointer,
    broadcast,
    data_pointer,
    load,
    load_masked,
    offset,
    prefetch,
    store,
)

Array = NDArray[Any]
Matrix = TypeVar("Matrix")

TILE_CAPACITY = 4_096
"""Numbers of the blocks whose targets share a tile: with their gradients they fill the first-level
cache. Larger blocks have more targets each."""


class BlockLayout(NamedTuple):
    """A column's block, as the kernels see it."""

    levels: int  # K
    width: int  # D
    whole: int  # D rounded up to whole vectors
    pitch: int  # distance between the rows of a batch
    most: int  # columns whose targets may share a tile


class TileScratch(NamedTuple):
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


@inlined
def tile_scratch(memory: Any, shape: Any) -> Any:
    """The parts of one array: kernels take few arrays, for each is long to compile."""
    block, tile = shape.most * shape.levels * shape.whole, shape.levels * LANES
    bias = offset(data_pointer(memory), 2 * block)
    running = offset(bias, 4 * tile)
    return TileScratch(
        data_pointer(memory),
        offset(data_pointer(memory), block),
        bias,
        offset(bias, tile),
        offset(bias, 2 * tile),
        offset(bias, 3 * tile),
        running,
        offset(running, 2 * tile),
        offset(running, 2 * tile + LANES),
        as_int64_pointer(offset(running, 2 * tile + 2 * LANES)),
    )


@inlined
def column_scratch(scratch: Any, column: int, lane: int, shape: Any) -> Any:
    """The memory of one of a tile's columns, whose targets begin at a lane."""
    block, bias = column * shape.levels * shape.whole, column * shape.levels
    return TileScratch(
        offset(scratch.block, block),
        offset(scratch.d_block, block),
        offset(scratch.bias, bias),
        offset(scratch.d_bias, bias),
        offset(scratch.scores, lane),
        offset(scratch.slopes, lane),
        scratch.running,
        scratch.truth,
        scratch.weights,
        offset(scratch.begins, lane),
    )


def pad_width(width: int) -> int:
    """The width rounded up to whole vectors."""
    return -(-width // LANES) * LANES


def block_layout(levels: int, width: int) -> BlockLayout:
    """Rows a multiple of 1 KB apart would share few cache sets: they get one vector more."""
    whole = pad_width(width)
    pitch = whole + LANES if whole % 256 == 0 else whole
    most = min(LANES, max(1, TILE_CAPACITY // (levels * whole)))
    return BlockLayout(levels, width, whole, pitch, most)


_LINE = 64  # bytes


def aligned_zeros(dtype: Any, size: int) -> Array:
    """Zeros that begin on a cache line; numpy promises 16 bytes."""
    count = size * np.dtype(dtype).itemsize
    whole = np.zeros(count + _LINE, np.uint8)
    first = -whole.__array_interface__["data"][0] % _LINE
    return whole[first : first + count].view(dtype)


def scratch_buffer(dtype: Any, shape: BlockLayout) -> Array:
    """Memory for a Scratch: blocks twice, six tiles, two vectors and 16 indices."""
    blocks = 2 * shape.most * shape.whole
    return aligned_zeros(dtype, shape.levels * (blocks + 6 * LANES) + 4 * LANES)


def readonly(array: Array) -> Array:
    """A view that cannot be written through: kernels that only read then have one version,
    whether an array came from a file that is mapped or from memory."""
    view = array.view()
    view.flags.writeable = False
    return view


def unpadded(rows: Array, shape: BlockLayout) -> Array:
    """A view of padded rows without the padding. Returns (rows, D)."""
    return rows.reshape(-1, shape.pitch)[:, : shape.width]


class RowBuffers(Generic[Matrix]):
    """A table, flat, and what each thread needs to work on it: scratch, and rows of its width.

    `view` is how these rows are seen without their padding: as an array, or as torch has it.
    """

    def __init__(
        self, table: Array, threads: int, view: Callable[[Array, BlockLayout], Matrix]
    ) -> None:
        _, K, D = table.shape
        self.shape = block_layout(K, D)
        self.flat: Array = table.reshape(-1)
        self.scratch = [scratch_buffer(self.flat.dtype, self.shape) for _ in range(threads)]
        self.threads = threads
        self.rows = 0
        self._view = view
        self._memory: Array = aligned_zeros(self.flat.dtype, 0)
        self._parts: list[tuple[Array, Matrix]] = []

    def reserve(self, rows: int) -> None:
        """Make room for a buffer of `rows` rows per thread."""
        if rows == self.rows and self._parts:
            return
        self.rows = rows
        if len(self._memory) < self.threads * self.size:
            self._memory = aligned_zeros(self.flat.dtype, self.threads * self.size)
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


@internal
def read_block(table: Any, column: int, shape: Any, shared: bool, block: Any) -> None:
    """block[k] = level k of the table's column, or the sum of its levels up to k."""
    for k in range(shape.levels):
        first, to = (column * shape.levels + k) * shape.width, k * shape.whole
        for i in range(0, shape.whole, LANES):
            value = load_masked(table, first + i, shape.width - i)
            if shared and k > 0:
                value = value + load(block, to - shape.whole + i)
            store(block, to + i, value)


@inlined
def prefetch_column(table: Any, column: int, shape: Any) -> None:
    """Have a column of the table brought near, which will soon be read."""
    first = column * shape.levels * shape.width
    # The last vector reaches beyond the block: the processor asks for lanes that are masked, too.
    end = first + (shape.levels - 1) * shape.width + shape.whole
    for i in range(first, end, LANES):
        prefetch(table, i)
    prefetch(table, end - 1)  # what begins within a line has one line more


@inlined
def clear(numbers: Any, count: int) -> None:
    """Set the first `count`, a multiple of 16, to zero."""
    zero = broadcast(numbers, 0.0)
    for i in range(0, count, LANES):
        store(numbers, i, zero)


@inlined
def add_row(into: Any, to: int, source: Any, first: int, whole: int) -> None:
    """into[to:to+whole] += source[first:first+whole]"""
    for i in range(0, whole, LANES):
        store(into, to + i, load(into, to + i) + load(source, first + i))


@inlined
def cumulate_gradient(block: Any, shape: Any) -> None:
    """The gradient of a cumulated block becomes that of the table: a sum from each level on."""
    for k in range(shape.levels - 2, -1, -1):
        add_row(block, k * shape.whole, block, (k + 1) * shape.whole, shape.whole)


@inlined
def cumulate_scores(scores: Any, levels: int) -> None:
    """The scores of the table's own levels become those of their sums: each of those up to it."""
    for k in range(1, levels):
        add_row(scores, k * LANES, scores, (k - 1) * LANES, LANES)


@inlined
def cumulate_score_gradient(slopes: Any, levels: int) -> None:
    """As `unshare`, for the gradient of a tile's scores."""
    for k in range(levels - 2, -1, -1):
        add_row(slopes, k * LANES, slopes, (k + 1) * LANES, LANES)


FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
MAX_LEVELS = 255


def require_array(name: str, array: Array, shape: tuple[int | None, ...], dtype: object) -> None:
    """That dtype and shape; None stands for any size."""
    if array.dtype != dtype:
        raise ModelError(f"{name} has dtype {array.dtype}; it must be {dtype}")
    fits = array.ndim == len(shape) and all(
        want is None or got == want for got, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        allowed = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise ModelError(f"{name} has shape {array.shape}; it must be {allowed}")


def require_table(name: str, table: Array) -> tuple[int, int, int]:
    """A contiguous (M, K, D) table of floats, 2..255 levels. Returns its shape."""
    if table.dtype not in FLOATS:
        raise ModelError(f"{name} has dtype {table.dtype}; it must be float32 or float64")
    require_array(name, table, (None, None, None), table.dtype)
    M, K, D = table.shape
    if not (M >= 1 and 2 <= K <= MAX_LEVELS and D >= 1):
        raise ModelError(
            f"{name} has shape {table.shape}; it must be (columns, levels, width) with "
            f"2..{MAX_LEVELS} levels and no empty side"
        )
    if not table.flags.c_contiguous:
        raise ModelError(f"{name} is not contiguous; give a copy that is")
    return M, K, D
