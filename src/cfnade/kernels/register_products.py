"""Products whose results stay in registers, written in LLVM IR.

A tile is a column's block of levels × width against up to 16 targets of the column. The block is
copied in and padded with zeros to whole vectors; rows are given by where they begin. So no loop has
a remainder, sums stay in registers, and every operand lies in the first- or second-level cache.
Targets meet the table's own levels: cumulating scores and their gradient, 16 targets at a time,
costs less than cumulating every column's block.

With the fused hidden layer, `matmul` reaches 90-111 GFLOP/s where torch reaches 78-95; torch there
costs 6-9 % of a step on Netflix. Prefetching the next block during a tile takes a step of ML-1M
from 19.6-20.2 to 16.9-18.2 ms (experiments/LOG.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from cfnade.kernels.jit import HAS_AVX512, inlined, internal
from cfnade.kernels.simd import (
    LANES,
    add,
    constant,
    element_pointer,
    intrinsic,
    multiply_add,
    offset,
    prefetch,
    read_vector,
    reduce_add,
    signature,
    splat,
    write_vector,
)

INDEX = ir.IntType(64)
STRIP = 4 if HAS_AVX512 else 1  # vectors of a row that stay in registers together
LEVEL_GROUP = 5  # levels that stay in registers together


def _interleave(builder: Any, a: Any, b: Any, distance: int) -> Any:
    """Add each lane of a and of b to the one `distance` away; a's sums and b's sums alternate."""
    lanes = range(LANES)
    even = [i if not i & distance else LANES + (i ^ distance) for i in lanes]
    odd = [(i ^ distance) if not i & distance else LANES + i for i in lanes]
    kind = ir.VectorType(ir.IntType(32), LANES)
    first = builder.shuffle_vector(a, b, ir.Constant(kind, even))
    second = builder.shuffle_vector(a, b, ir.Constant(kind, odd))
    return add(builder, first, second)


def _sum_each(builder: Any, vectors: list[Any]) -> Any:
    """Sixteen vectors to one whose lane t is the sum of vector t's lanes."""
    distance = 1
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_interleave(builder, a, b, distance) for a, b in pairs]
        distance *= 2
    return vectors[0]


def _variables(builder: Any, values: list[Any]) -> list[Any]:
    """Stack slots that LLVM turns into registers."""
    slots = [cgutils.alloca_once(builder, v.type) for v in values]
    for slot, value in zip(slots, values, strict=True):
        builder.store(value, slot)
    return slots


def _accumulate(builder: Any, slot: Any, a: Any, b: Any) -> None:
    builder.store(multiply_add(builder, a, b, builder.load(slot)), slot)


def _dots(count: int) -> Any:
    """out[o + t] = block[e:e+width] · rows[starts[t]:starts[t]+width] + bias for t < count."""

    @intrinsic
    def dots(_, block, e, rows, starts, t, width, out, o, bias):
        def generate(context, builder, kinds, args):
            def element(i, index):
                return element_pointer(context, builder, kinds.args[i], args[i], index)

            left = element(0, args[1])
            begins = [
                builder.load(element(3, builder.add(args[4], INDEX(j)))) for j in range(count)
            ]
            right = [element(2, begin) for begin in begins]
            zero = constant(ir.VectorType(left.type.pointee, LANES), 0.0)
            sums = _variables(builder, [zero] * count)
            with cgutils.for_range_slice(builder, INDEX(0), args[5], INDEX(LANES), INDEX) as (
                i,
                _n,
            ):
                shared = read_vector(builder, builder.gep(left, [i]))
                for slot, row in zip(sums, right, strict=True):
                    _accumulate(builder, slot, shared, read_vector(builder, builder.gep(row, [i])))
            values = [builder.load(slot) for slot in sums]
            if count == LANES:
                scores = add(builder, _sum_each(builder, values), splat(builder, args[8]))
                write_vector(builder, scores, element(6, args[7]))
            else:
                for j, value in enumerate(values):
                    target = element(6, builder.add(args[7], INDEX(j)))
                    builder.store(add(builder, reduce_add(builder, value), args[8]), target)
            return context.get_dummy_value()

        return signature(block, e, rows, starts, t, width, out, o, bias), generate

    return dots


def _outer(levels: int, strips: int) -> Any:
    """block[e + k·pitch + i] += Σ_t factors[g + 16·k + t] · rows[starts[t] + i], t < count.

    For k < levels and i from `offset` over `strips` vectors.
    """

    @intrinsic
    def outer(_, block, e, pitch, factors, g, rows, starts, count, offset):
        def generate(context, builder, kinds, args):
            def element(i, index):
                return element_pointer(context, builder, kinds.args[i], args[i], index)

            def place(k, s):
                index = builder.add(args[1], builder.mul(args[2], INDEX(k)))
                return element(0, builder.add(builder.add(index, args[8]), INDEX(s * LANES)))

            cells = [(k, s) for k in range(levels) for s in range(strips)]
            sums = _variables(builder, [read_vector(builder, place(k, s)) for k, s in cells])
            with cgutils.for_range(builder, args[7], intp=INDEX) as loop:
                begin = builder.add(builder.load(element(6, loop.index)), args[8])
                row = [
                    read_vector(builder, element(5, builder.add(begin, INDEX(s * LANES))))
                    for s in range(strips)
                ]
                for k in range(levels):
                    index = builder.add(args[4], builder.add(loop.index, INDEX(k * LANES)))
                    factor = splat(builder, builder.load(element(3, index)))
                    for s in range(strips):
                        _accumulate(builder, sums[k * strips + s], factor, row[s])
            for slot, (k, s) in zip(sums, cells, strict=True):
                write_vector(builder, builder.load(slot), place(k, s))
            return context.get_dummy_value()

        return signature(block, e, pitch, factors, g, rows, starts, count, offset), generate

    return outer


def _backward(targets: int, strips: int) -> Any:
    """rows[starts[t+j] + i] += Σ_k factors[16·k + t + j] · block[k·pitch + i], j < targets."""

    @intrinsic
    def add_rows(_, rows, starts, t, factors, block, pitch, levels, offset):
        def generate(context, builder, kinds, args):
            def element(i, index):
                return element_pointer(context, builder, kinds.args[i], args[i], index)

            zero = constant(ir.VectorType(element(4, args[7]).type.pointee, LANES), 0.0)
            sums = _variables(builder, [zero] * (targets * strips))
            with cgutils.for_range(builder, args[6], intp=INDEX) as loop:
                begin = builder.add(builder.mul(loop.index, args[5]), args[7])
                level = [
                    read_vector(builder, element(4, builder.add(begin, INDEX(s * LANES))))
                    for s in range(strips)
                ]
                first = builder.add(builder.mul(loop.index, INDEX(LANES)), args[2])
                for j in range(targets):
                    factor = splat(builder, builder.load(element(3, builder.add(first, INDEX(j)))))
                    for s in range(strips):
                        _accumulate(builder, sums[j * strips + s], factor, level[s])
            # One target after the other, so that two of the same row both count.
            for j in range(targets):
                begin = builder.load(element(1, builder.add(args[2], INDEX(j))))
                begin = builder.add(begin, args[7])
                for s in range(strips):
                    place = element(0, builder.add(begin, INDEX(s * LANES)))
                    value = add(
                        builder, read_vector(builder, place), builder.load(sums[j * strips + s])
                    )
                    write_vector(builder, value, place)
            return context.get_dummy_value()

        return signature(rows, starts, t, factors, block, pitch, levels, offset), generate

    return add_rows


_dots16, _dots4, _dots1 = _dots(16), _dots(4), _dots(1)
_outer_group, _outer_group_1 = _outer(LEVEL_GROUP, STRIP), _outer(LEVEL_GROUP, 1)
_outer_level, _outer_level_1 = _outer(1, STRIP), _outer(1, 1)
_backward4, _backward4_1 = _backward(4, STRIP), _backward(4, 1)
_backward1, _backward1_1 = _backward(1, STRIP), _backward(1, 1)


class PrefetchBlock(NamedTuple):
    """A block in memory, of weights or moments, that is needed soon.

    The processor can ask memory for few lines at once, and waits if a program asks for more. So the
    loops of a tile ask for a part of such a block each time that they have worked on as much.
    """

    start: Any
    levels: int  # of the block that are prefetched; 0 if none need be


@inlined
def _prefetch_part(upcoming, k, levels, i, vectors, width):
    """Ask for some vectors from the i-th number on of some levels from the k-th on."""
    for level in range(k, min(k + levels, upcoming.levels)):
        for s in range(vectors):
            prefetch(upcoming.start, level * width + i + s * LANES)


@internal
def tile_scores(states, count, layout, scratch, upcoming):
    """scores[16·k + t] = block[k] · state of target t + bias[k], for the first `count` targets."""
    block = scratch.block
    begins = scratch.row_starts
    width = layout.padded_width
    out = scratch.scores
    for k in range(layout.levels):
        bias = scratch.bias[k]
        _prefetch_part(upcoming, k, 1, 0, width // LANES, layout.width)
        if HAS_AVX512 and count == LANES:
            _dots16(block, k * width, states, begins, 0, width, out, k * LANES, bias)
            continue
        t = 0
        while t + 4 <= count:
            _dots4(block, k * width, states, begins, t, width, out, k * LANES + t, bias)
            t += 4
        while t < count:
            _dots1(block, k * width, states, begins, t, width, out, k * LANES + t, bias)
            t += 1


@internal
def add_block_gradient(states, count, layout, scratch, upcoming):
    """d_block[k] += Σ_t gradient[16·k + t] · state of target t."""
    block = scratch.d_block
    begins = scratch.row_starts
    width = layout.padded_width
    gradient = scratch.gradient
    k = 0
    while k < layout.levels:
        is_group = k + LEVEL_GROUP <= layout.levels
        e, g, i = k * width, k * LANES, 0
        while i < width:
            _prefetch_part(upcoming, k, LEVEL_GROUP if is_group else 1, i, STRIP, layout.width)
            if STRIP > 1 and i + STRIP * LANES <= width:
                if is_group:
                    _outer_group(block, e, width, gradient, g, states, begins, count, i)
                else:
                    _outer_level(block, e, width, gradient, g, states, begins, count, i)
                i += STRIP * LANES
            else:
                if is_group:
                    _outer_group_1(block, e, width, gradient, g, states, begins, count, i)
                else:
                    _outer_level_1(block, e, width, gradient, g, states, begins, count, i)
                i += LANES
        k += LEVEL_GROUP if is_group else 1


@internal
def add_state_gradient(d_states, count, layout, scratch, upcoming):
    """d_state of target t += Σ_k gradient[16·k + t] · block[k]."""
    block = scratch.block
    begins = scratch.row_starts
    width = layout.padded_width
    gradient = scratch.gradient
    i = 0
    while i < width:
        is_wide, t = STRIP > 1 and i + STRIP * LANES <= width, 0
        _prefetch_part(upcoming, 0, layout.levels, i, STRIP, layout.width)
        while t < count:
            is_four = t + 4 <= count
            if is_wide and is_four:
                _backward4(d_states, begins, t, gradient, block, width, layout.levels, i)
            elif is_wide:
                _backward1(d_states, begins, t, gradient, block, width, layout.levels, i)
            elif is_four:
                _backward4_1(d_states, begins, t, gradient, block, width, layout.levels, i)
            else:
                _backward1_1(d_states, begins, t, gradient, block, width, layout.levels, i)
            t += 4 if is_four else 1
        i += STRIP * LANES if is_wide else LANES


INDEX = ir.IntType(64)
ROW_GROUP = 6  # rows of a product that stay in registers together
STRIP = 4 if HAS_AVX512 else 1  # vectors of each


def _product(rows: int, strips: int) -> Any:
    """out[i·to + s] (+)= Σ_k a[i·by_row + k·by_step] · b[k·pitch + s] for i < rows, k < count.

    s runs over `strips` vectors; what is in out counts if `accumulate` is not 0.
    """

    @intrinsic
    def product(_, a, by_row, by_step, b, pitch, count, out, to, accumulate):
        def generate(context, builder, _kinds, args):
            left, across, along, right, apart, n, result, down, add_to = args
            zero = constant(ir.VectorType(left.type.pointee, LANES), 0.0)
            cells = [(i, s) for i in range(rows) for s in range(strips)]
            places = [
                builder.gep(result, [builder.add(builder.mul(down, INDEX(i)), INDEX(s * LANES))])
                for i, s in cells
            ]
            sums = [cgutils.alloca_once(builder, zero.type) for _ in cells]
            with builder.if_else(builder.icmp_signed("!=", add_to, INDEX(0))) as (yes, no):
                with yes:
                    for slot, place in zip(sums, places, strict=True):
                        builder.store(read_vector(builder, place), slot)
                with no:
                    for slot in sums:
                        builder.store(zero, slot)
            starts = [builder.gep(left, [builder.mul(across, INDEX(i))]) for i in range(rows)]
            with cgutils.for_range(builder, n, intp=INDEX) as loop:
                first = builder.gep(right, [builder.mul(loop.index, apart)])
                row = [
                    read_vector(builder, builder.gep(first, [INDEX(s * LANES)]))
                    for s in range(strips)
                ]
                step = builder.mul(loop.index, along)
                for i in range(rows):
                    factor = splat(builder, builder.load(builder.gep(starts[i], [step])))
                    for s in range(strips):
                        slot = sums[i * strips + s]
                        value = multiply_add(builder, factor, row[s], builder.load(slot))
                        builder.store(value, slot)
            for slot, place in zip(sums, places, strict=True):
                write_vector(builder, builder.load(slot), place)
            return context.get_dummy_value()

        return signature(a, by_row, by_step, b, pitch, count, out, to, accumulate), generate

    return product


_product_rows, _product_row = _product(ROW_GROUP, STRIP), _product(1, STRIP)
_narrow_product_rows, _narrow_product_row = _product(ROW_GROUP, 1), _product(1, 1)


class MatrixView(NamedTuple):
    """A matrix as pointer and distances: from row to row, and from number to number in a row."""

    start: Any
    by_row: int
    by_step: int


@internal
def matmul(a, rows, count, b, out, width, accumulate):
    """out (rows × width) = a (rows × count) times b (count × width), or is increased by that.

    Of b and out, vectors are read and written whole; width is a multiple of 16.
    """
    s = 0
    while s < width:
        is_wide = s + STRIP * LANES <= width
        right = offset(b.start, s)
        i = 0
        while i < rows:
            is_group = i + ROW_GROUP <= rows
            left, to = offset(a.start, i * a.by_row), offset(out.start, i * out.by_row + s)
            sizes = b.by_row, count
            if is_wide and is_group:
                _product_rows(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, accumulate)
            elif is_wide:
                _product_row(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, accumulate)
            elif is_group:
                _narrow_product_rows(
                    left, a.by_row, a.by_step, right, *sizes, to, out.by_row, accumulate
                )
            else:
                _narrow_product_row(
                    left, a.by_row, a.by_step, right, *sizes, to, out.by_row, accumulate
                )
            i += ROW_GROUP if is_group else 1
        s += STRIP * LANES if is_wide else LANES
