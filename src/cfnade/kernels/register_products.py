"""Products of small matrices: some rows times some vectors of the result stay in registers."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from cfnade.kernels.compiled import WIDE, inner
from cfnade.kernels.simd import (
    LANES,
    beyond,
    constant,
    intrinsic,
    multiply_add,
    read,
    signature,
    splat,
    write,
)

INDEX = ir.IntType(64)
ROWS = 6  # rows of a product that stay in registers together
STRIP = 4 if WIDE else 1  # vectors of each


def _product(rows: int, strips: int) -> Any:
    """out[i·to + s] (+)= Σ_k a[i·by_row + k·by_step] · b[k·pitch + s] for i < rows, k < count.

    s runs over `strips` vectors; what is in out counts if `more` is not 0.
    """

    @intrinsic
    def product(
        _: Any,
        a: Any,
        by_row: Any,
        by_step: Any,
        b: Any,
        pitch: Any,
        count: Any,
        out: Any,
        to: Any,
        more: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
            left, across, along, right, apart, n, result, down, add_to = args
            zero = constant(ir.VectorType(left.type.pointee, LANES), 0.0)
            cells = [(i, s) for i in range(rows) for s in range(strips)]
            places = [
                builder.gep(result, [builder.add(builder.mul(down, INDEX(i)), INDEX(s * LANES))])
                for i, s in cells
            ]
            sums = [cgutils.alloca_once(builder, zero.type) for _ in cells]  # type: ignore[no-untyped-call]
            with builder.if_else(builder.icmp_signed("!=", add_to, INDEX(0))) as (yes, no):
                with yes:
                    for slot, place in zip(sums, places, strict=True):
                        builder.store(read(builder, place), slot)
                with no:
                    for slot in sums:
                        builder.store(zero, slot)
            starts = [builder.gep(left, [builder.mul(across, INDEX(i))]) for i in range(rows)]
            with cgutils.for_range(builder, n, intp=INDEX) as loop:
                first = builder.gep(right, [builder.mul(loop.index, apart)])
                row = [read(builder, builder.gep(first, [INDEX(s * LANES)])) for s in range(strips)]
                step = builder.mul(loop.index, along)
                for i in range(rows):
                    factor = splat(builder, builder.load(builder.gep(starts[i], [step])))
                    for s in range(strips):
                        slot = sums[i * strips + s]
                        value = multiply_add(builder, factor, row[s], builder.load(slot))
                        builder.store(value, slot)
            for slot, place in zip(sums, places, strict=True):
                write(builder, builder.load(slot), place)
            return context.get_dummy_value()

        return signature(a, by_row, by_step, b, pitch, count, out, to, more), generate

    return product


_product_of_many, _product_of_one = _product(ROWS, STRIP), _product(1, STRIP)
_narrow_of_many, _narrow_of_one = _product(ROWS, 1), _product(1, 1)


class Factor(NamedTuple):
    """A matrix as pointer and distances: from row to row, and from number to number in a row."""

    start: Any
    by_row: int
    by_step: int


@inner
def multiply(a: Any, rows: int, count: int, b: Any, out: Any, width: int, more: int) -> None:
    """out (rows × width) = a (rows × count) times b (count × width), or more by that.

    Of b and out, vectors are read and written whole; width is a multiple of 16.
    """
    s = 0
    while s < width:
        wide = s + STRIP * LANES <= width
        right = beyond(b.start, s)
        i = 0
        while i < rows:
            many = i + ROWS <= rows
            left, to = beyond(a.start, i * a.by_row), beyond(out.start, i * out.by_row + s)
            sizes = b.by_row, count
            if wide and many:
                _product_of_many(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, more)
            elif wide:
                _product_of_one(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, more)
            elif many:
                _narrow_of_many(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, more)
            else:
                _narrow_of_one(left, a.by_row, a.by_step, right, *sizes, to, out.by_row, more)
            i += ROWS if many else 1
        s += STRIP * LANES if wide else LANES
