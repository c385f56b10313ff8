"""A column's block of levels × width, and a tile: up to 16 targets of the column against it.

A block is copied in and padded with zeros to whole vectors; rows are given by
where they begin. So no loop has a rest, sums stay in registers, and every operand lies in the
first- or second-level cache. Targets meet the table's own levels: to add up scores and slopes, 16
targets at a time, is less than to add up every column's block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from cfnade.kernels.compiled import WIDE, glue, inner
from cfnade.kernels.simd import (
    LANES,
    add,
    constant,
    fetch,
    intrinsic,
    multiply_add,
    pointer,
    read,
    signature,
    splat,
    sum_lanes,
    write,
)

INDEX = ir.IntType(64)
STRIP = 4 if WIDE else 1  # vectors of a row that stay in registers together
GROUP = 5  # levels that stay in registers together


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
    slots = [cgutils.alloca_once(builder, v.type) for v in values]  # type: ignore[no-untyped-call]
    for slot, value in zip(slots, values, strict=True):
        builder.store(value, slot)
    return slots


def _accumulate(builder: Any, slot: Any, a: Any, b: Any) -> None:
    builder.store(multiply_add(builder, a, b, builder.load(slot)), slot)


def _dots(count: int) -> Any:
    """out[o + t] = block[e:e+width] · rows[starts[t]:starts[t]+width] + bias for t < count."""

    @intrinsic
    def dots(
        _: Any,
        block: Any,
        e: Any,
        rows: Any,
        starts: Any,
        t: Any,
        width: Any,
        out: Any,
        o: Any,
        bias: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, kinds: Any, args: Any) -> Any:
            def element(i: int, index: Any) -> Any:
                return pointer(context, builder, kinds.args[i], args[i], index)

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
                shared = read(builder, builder.gep(left, [i]))
                for slot, row in zip(sums, right, strict=True):
                    _accumulate(builder, slot, shared, read(builder, builder.gep(row, [i])))
            values = [builder.load(slot) for slot in sums]
            if count == LANES:
                scores = add(builder, _sum_each(builder, values), splat(builder, args[8]))
                write(builder, scores, element(6, args[7]))
            else:
                for j, value in enumerate(values):
                    target = element(6, builder.add(args[7], INDEX(j)))
                    builder.store(add(builder, sum_lanes(builder, value), args[8]), target)
            return context.get_dummy_value()

        return signature(block, e, rows, starts, t, width, out, o, bias), generate

    return dots


def _outer(levels: int, strips: int) -> Any:
    """block[e + k·pitch + i] += Σ_t factors[g + 16·k + t] · rows[starts[t] + i], t < count.

    For k < levels and i from `offset` over `strips` vectors.
    """

    @intrinsic
    def outer(
        _: Any,
        block: Any,
        e: Any,
        pitch: Any,
        factors: Any,
        g: Any,
        rows: Any,
        starts: Any,
        count: Any,
        offset: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, kinds: Any, args: Any) -> Any:
            def element(i: int, index: Any) -> Any:
                return pointer(context, builder, kinds.args[i], args[i], index)

            def place(k: int, s: int) -> Any:
                index = builder.add(args[1], builder.mul(args[2], INDEX(k)))
                return element(0, builder.add(builder.add(index, args[8]), INDEX(s * LANES)))

            cells = [(k, s) for k in range(levels) for s in range(strips)]
            sums = _variables(builder, [read(builder, place(k, s)) for k, s in cells])
            with cgutils.for_range(builder, args[7], intp=INDEX) as loop:
                begin = builder.add(builder.load(element(6, loop.index)), args[8])
                row = [
                    read(builder, element(5, builder.add(begin, INDEX(s * LANES))))
                    for s in range(strips)
                ]
                for k in range(levels):
                    index = builder.add(args[4], builder.add(loop.index, INDEX(k * LANES)))
                    factor = splat(builder, builder.load(element(3, index)))
                    for s in range(strips):
                        _accumulate(builder, sums[k * strips + s], factor, row[s])
            for slot, (k, s) in zip(sums, cells, strict=True):
                write(builder, builder.load(slot), place(k, s))
            return context.get_dummy_value()

        return signature(block, e, pitch, factors, g, rows, starts, count, offset), generate

    return outer


def _back(targets: int, strips: int) -> Any:
    """rows[starts[t+j] + i] += Σ_k factors[16·k + t + j] · block[k·pitch + i], j < targets."""

    @intrinsic
    def back(
        _: Any,
        rows: Any,
        starts: Any,
        t: Any,
        factors: Any,
        block: Any,
        pitch: Any,
        levels: Any,
        offset: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, kinds: Any, args: Any) -> Any:
            def element(i: int, index: Any) -> Any:
                return pointer(context, builder, kinds.args[i], args[i], index)

            zero = constant(ir.VectorType(element(4, args[7]).type.pointee, LANES), 0.0)
            sums = _variables(builder, [zero] * (targets * strips))
            with cgutils.for_range(builder, args[6], intp=INDEX) as loop:
                begin = builder.add(builder.mul(loop.index, args[5]), args[7])
                level = [
                    read(builder, element(4, builder.add(begin, INDEX(s * LANES))))
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
                    value = add(builder, read(builder, place), builder.load(sums[j * strips + s]))
                    write(builder, value, place)
            return context.get_dummy_value()

        return signature(rows, starts, t, factors, block, pitch, levels, offset), generate

    return back


_dots16, _dots4, _dots1 = _dots(16), _dots(4), _dots(1)
_outer_group, _outer_group_1 = _outer(GROUP, STRIP), _outer(GROUP, 1)
_outer_level, _outer_level_1 = _outer(1, STRIP), _outer(1, 1)
_back4, _back4_1 = _back(4, STRIP), _back(4, 1)
_back1, _back1_1 = _back(1, STRIP), _back(1, 1)


class Soon(NamedTuple):
    """A block in memory, of weights or moments, whose turn comes soon.

    The processor can ask memory for few lines at once, and waits if a program asks for more. So the
    loops of a tile ask for a part of such a block each time that they have worked on as much.
    """

    start: Any
    levels: int  # of the block that are asked for: 0 if it is near already


@glue
def _fetch_part(soon: Any, k: int, levels: int, i: int, vectors: int, width: int) -> None:
    """Ask for some vectors from the i-th number on of some levels from the k-th on."""
    for level in range(k, min(k + levels, soon.levels)):
        for s in range(vectors):
            fetch(soon.start, level * width + i + s * LANES)


@inner
def tile_scores(states: Any, count: int, shape: Any, scratch: Any, soon: Any) -> None:
    """scores[16·k + t] = block[k] · state of target t + bias[k], for the first `count` targets."""
    block, begins, whole, out = scratch.block, scratch.begins, shape.whole, scratch.scores
    for k in range(shape.levels):
        bias = scratch.bias[k]
        _fetch_part(soon, k, 1, 0, whole // LANES, shape.width)
        if WIDE and count == LANES:
            _dots16(block, k * whole, states, begins, 0, whole, out, k * LANES, bias)
            continue
        t = 0
        while t + 4 <= count:
            _dots4(block, k * whole, states, begins, t, whole, out, k * LANES + t, bias)
            t += 4
        while t < count:
            _dots1(block, k * whole, states, begins, t, whole, out, k * LANES + t, bias)
            t += 1


@inner
def tile_outer(states: Any, count: int, shape: Any, scratch: Any, soon: Any) -> None:
    """d_block[k] += Σ_t slopes[16·k + t] · state of target t."""
    block, begins, whole, slopes = scratch.d_block, scratch.begins, shape.whole, scratch.slopes
    k = 0
    while k < shape.levels:
        several = k + GROUP <= shape.levels
        e, g, i = k * whole, k * LANES, 0
        while i < whole:
            _fetch_part(soon, k, GROUP if several else 1, i, STRIP, shape.width)
            if STRIP > 1 and i + STRIP * LANES <= whole:
                if several:
                    _outer_group(block, e, whole, slopes, g, states, begins, count, i)
                else:
                    _outer_level(block, e, whole, slopes, g, states, begins, count, i)
                i += STRIP * LANES
            else:
                if several:
                    _outer_group_1(block, e, whole, slopes, g, states, begins, count, i)
                else:
                    _outer_level_1(block, e, whole, slopes, g, states, begins, count, i)
                i += LANES
        k += GROUP if several else 1


@inner
def tile_back(d_states: Any, count: int, shape: Any, scratch: Any, soon: Any) -> None:
    """d_state of target t += Σ_k slopes[16·k + t] · block[k]."""
    block, begins, whole, slopes = scratch.block, scratch.begins, shape.whole, scratch.slopes
    i = 0
    while i < whole:
        wide, t = STRIP > 1 and i + STRIP * LANES <= whole, 0
        _fetch_part(soon, 0, shape.levels, i, STRIP, shape.width)
        while t < count:
            four = t + 4 <= count
            if wide and four:
                _back4(d_states, begins, t, slopes, block, whole, shape.levels, i)
            elif wide:
                _back1(d_states, begins, t, slopes, block, whole, shape.levels, i)
            elif four:
                _back4_1(d_states, begins, t, slopes, block, whole, shape.levels, i)
            else:
                _back1_1(d_states, begins, t, slopes, block, whole, shape.levels, i)
            t += 4 if four else 1
        i += STRIP * LANES if wide else LANES
