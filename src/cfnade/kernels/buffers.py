"""Working memory of kernels: block layout, buffers of each thread, and argument checks.

Rows consist of whole vectors, are aligned, and free of cache-set collisions. With shared weights
(Eq. 9 and 10) level k is the sum of the table's levels up to k, so a gradient is cumulated the
other way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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

TILE_CAPACITY = 4_096
"""Numbers of the blocks whose targets share a tile: with their gradients they fill the first-level
cache. Larger blocks have more targets each."""


class BlockLayout(NamedTuple):
    """A column's block, as the kernels see it."""

    levels: int  # K
    width: int  # D
    padded_width: int  # D rounded up to whole vectors
    row_stride: int  # distance between the rows of a batch
    columns_per_tile: int  # columns whose targets may share a tile


class TileScratch(NamedTuple):
    """One thread's memory for a tile of 16 targets and its columns, as pointers.

    Up to `columns_per_tile` columns follow each other in the first four.
    """

    block: Any  # (K · whole,) a column's vectors
    d_block: Any  # (K · whole,) their gradient
    bias: Any  # (K,) a column's biases
    d_bias: Any  # (K,) their gradient
    scores: Any  # (16 · K,)
    gradient: Any  # (16 · K,) of the scores
    level_sums: Any  # (32 · K,) sums along the levels
    levels: Any  # (16,) true levels
    weights: Any  # (16,)
    row_starts: Any  # (16,) int64: where the targets' rows begin


@inlined
def tile_scratch(memory, layout):
    """The parts of one array: each array argument of a kernel takes long to compile."""
    block = layout.columns_per_tile * layout.levels * layout.padded_width
    tile = layout.levels * LANES
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
def column_scratch(scratch, column, lane, layout):
    """The memory of one of a tile's columns, whose targets begin at a lane."""
    block, bias = column * layout.levels * layout.padded_width, column * layout.levels
    return TileScratch(
        offset(scratch.block, block),
        offset(scratch.d_block, block),
        offset(scratch.bias, bias),
        offset(scratch.d_bias, bias),
        offset(scratch.scores, lane),
        offset(scratch.gradient, lane),
        scratch.level_sums,
        scratch.levels,
        scratch.weights,
        offset(scratch.row_starts, lane),
    )


def pad_width(width: int) -> int:
    """The width rounded up to whole vectors."""
    return -(-width // LANES) * LANES


def block_layout(levels: int, width: int) -> BlockLayout:
    """Rows a multiple of 1 KB apart would share few cache sets: they get one vector more."""
    padded = pad_width(width)
    stride = padded + LANES if padded % 256 == 0 else padded
    per_tile = min(LANES, max(1, TILE_CAPACITY // (levels * padded)))
    return BlockLayout(levels, width, padded, stride, per_tile)


_LINE = 64  # bytes


def aligned_zeros(dtype: Any, size: int) -> Array:
    """Zeros that begin on a cache line; numpy promises 16 bytes."""
    count = size * np.dtype(dtype).itemsize
    padded = np.zeros(count + _LINE, np.uint8)
    first = -padded.__array_interface__["data"][0] % _LINE
    return padded[first : first + count].view(dtype)


def scratch_buffer(dtype: Any, layout: BlockLayout) -> Array:
    """Return the memory of a TileScratch: blocks twice, six tiles, two vectors and 16 indices."""
    blocks = 2 * layout.columns_per_tile * layout.padded_width
    return aligned_zeros(dtype, layout.levels * (blocks + 6 * LANES) + 4 * LANES)


def readonly(array: Array) -> Array:
    """Return a read-only view, so that a kernel has one version for arrays in memory and for those
    mapped from files."""
    view = array.view()
    view.flags.writeable = False
    return view


def unpadded(rows: Array, layout: BlockLayout) -> Array:
    """A view of padded rows without the padding. Returns (rows, D)."""
    return rows.reshape(-1, layout.row_stride)[:, : layout.width]


class RowBuffers:
    """A table, flat, and what each thread needs to work on it: scratch, and rows of its width."""

    def __init__(self, table: Array, threads: int) -> None:
        _, K, D = table.shape
        self.layout = block_layout(K, D)
        self.flat: Array = table.reshape(-1)
        self.scratch = [scratch_buffer(self.flat.dtype, self.layout) for _ in range(threads)]
        self.threads = threads
        self.rows = 0
        self._memory: Array = aligned_zeros(self.flat.dtype, 0)

    def reserve(self, rows: int) -> None:
        """Make room for a buffer of `rows` rows per thread."""
        self.rows = rows
        if len(self._memory) < self.threads * self.size:
            self._memory = aligned_zeros(self.flat.dtype, self.threads * self.size)

    @property
    def size(self) -> int:
        """Numbers in one buffer."""
        return self.rows * self.layout.row_stride

    def all_parts(self) -> Array:
        """All threads' buffers, one behind the other."""
        return self._memory[: self.threads * self.size]

    def part(self, thread: int) -> Array:
        """One thread's buffer."""
        return self._memory[thread * self.size : (thread + 1) * self.size]

    def matrix(self, thread: int = 0) -> Array:
        """One thread's buffer without padding. Returns (rows, D)."""
        return unpadded(self.part(thread), self.layout)

    def merge(self, lo: int, hi: int) -> Array:
        """Add the threads' rows lo..hi into the first buffer, in a fixed order. Returns (n, D)."""
        rows: Array = self.matrix()[lo:hi]
        for thread in range(1, self.threads):
            rows += self.matrix(thread)[lo:hi]
        return rows


@internal
def read_block(table, column, layout, shared, block):
    """block[k] = level k of the table's column, or the sum of its levels up to k."""
    for k in range(layout.levels):
        first, to = (column * layout.levels + k) * layout.width, k * layout.padded_width
        for i in range(0, layout.padded_width, LANES):
            value = load_masked(table, first + i, layout.width - i)
            if shared and k > 0:
                value = value + load(block, to - layout.padded_width + i)
            store(block, to + i, value)


@inlined
def prefetch_column(table, column, layout):
    """Prefetch a column of the table."""
    first = column * layout.levels * layout.width
    # The last vector reaches beyond the block: the processor fetches masked lanes, too.
    end = first + (layout.levels - 1) * layout.width + layout.padded_width
    for i in range(first, end, LANES):
        prefetch(table, i)
    prefetch(table, end - 1)  # an unaligned block spans one more line


@inlined
def clear(numbers, count):
    """Set the first `count`, a multiple of 16, to zero."""
    zero = broadcast(numbers, 0.0)
    for i in range(0, count, LANES):
        store(numbers, i, zero)


@inlined
def add_row(into, to, source, first, padded):
    """into[to:to+whole] += source[first:first+whole]"""
    for i in range(0, padded, LANES):
        store(into, to + i, load(into, to + i) + load(source, first + i))


@inlined
def cumulate_gradient(block, layout):
    """The gradient of a cumulated block becomes that of the table: a sum from each level on."""
    for k in range(layout.levels - 2, -1, -1):
        add_row(
            block,
            k * layout.padded_width,
            block,
            (k + 1) * layout.padded_width,
            layout.padded_width,
        )


@inlined
def cumulate_scores(scores, levels):
    """The scores of the table's own levels become those of their sums: each of those up to it."""
    for k in range(1, levels):
        add_row(scores, k * LANES, scores, (k - 1) * LANES, LANES)


@inlined
def cumulate_score_gradient(gradient, levels):
    """As `cumulate_gradient`, for the gradient of a tile's scores."""
    for k in range(levels - 2, -1, -1):
        add_row(gradient, k * LANES, gradient, (k + 1) * LANES, LANES)


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
