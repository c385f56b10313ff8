"""The hidden layer of a factored network in one pass: from summed contexts to states, and back.

A step would call a dozen functions of a matrix library here, each from Python, whose threads wait
for each other at every call. So the six products are written out: 6 rows × 4 vectors of a product
stay in registers, rows go through in chunks that stay in the second-level cache, activation and
slopes are done on the way. Weights are copied first, padded to whole vectors, as they are and
transposed: every product then reads its right factor along its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from cfnade.kernels.adam import adam_run, bare_update
from cfnade.kernels.compiled import WIDE, glue, inner, kernel
from cfnade.kernels.exponentials import exp
from cfnade.kernels.gates import pass_gate
from cfnade.kernels.memory import Array, BlockShape, buffer, shape_of
from cfnade.kernels.simd import (
    LANES,
    address,
    beyond,
    constant,
    fill,
    intrinsic,
    load,
    maximum,
    multiply_add,
    read,
    signature,
    splat,
    store,
    where_at_most,
    write,
)
from cfnade.kernels.tiles import clear

INDEX = ir.IntType(64)
ROWS = 6  # rows of a product that stay in registers together
STRIP = 4 if WIDE else 1  # vectors of each
CHUNK = 48  # rows whose hidden units stay in the second-level cache


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
def _multiply(a: Any, rows: int, count: int, b: Any, out: Any, width: int, more: int) -> None:
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


# -- memory ---------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """Weights B (H × J), c (H) and Q (J' × H), padded and both ways round."""

    c: Array  # (padded H,)
    B: Array  # (H · whole J,)
    B_turned: Array  # (J · pitch of H,)
    Q: Array  # (J' · pitch of H,)
    Q_turned: Array  # (H · whole J',)


class Sizes(NamedTuple):
    """Of input rows (J), hidden units (H) and output rows (J')."""

    given: BlockShape
    hidden: BlockShape
    wanted: BlockShape


class RowSums(NamedTuple):
    """What threads found of rows: `parts` buffers, `size` numbers apart; the first has the sum."""

    start: Array
    parts: int
    size: int


class HiddenGradients(NamedTuple):
    """Of the weights, as products give them, each thread's behind the other's; and room for those
    of the hidden units of a chunk."""

    numbers: Array  # (threads · size,): c (pitch of H), B turned (J · pitch), Q (J' · pitch)
    size: int
    chunk: Array  # (CHUNK · pitch of H,)


class HiddenLayer:
    """Memory of a layer for some threads."""

    def __init__(self, dtype: Any, widths: tuple[int, int, int], threads: int) -> None:
        given, hidden, wanted = (shape_of(1, width) for width in widths)
        self.sizes = Sizes(given, hidden, wanted)
        J, H, out = given.width, hidden.pitch, wanted.width
        self.layer = Layer(
            buffer(dtype, H),
            buffer(dtype, hidden.width * given.whole),
            buffer(dtype, J * H),
            buffer(dtype, out * H),
            buffer(dtype, hidden.width * wanted.whole),
        )
        size = (1 + J + out) * H
        numbers = buffer(dtype, threads * size)
        self.gradients = [
            HiddenGradients(numbers, size, buffer(dtype, CHUNK * H)) for _ in range(threads)
        ]
        self.units: Array = buffer(dtype, 0)  # (rows · pitch of H,)

    def reserve(self, rows: int) -> None:
        """Make room for the hidden units of so many rows."""
        if len(self.units) < rows * self.sizes.hidden.pitch:
            self.units = buffer(self.units.dtype, rows * self.sizes.hidden.pitch)


# -- passes ---------------------------------------------------------------------------------------


@kernel
def pack(lo: int, hi: int, B: Any, c: Any, Q: Any, sizes: Any, layer: Any) -> None:
    """Copy the weights of hidden units lo..hi. Traffic: 8 bytes a weight read, 16 written."""
    given, hidden, wanted = sizes
    first, copy, first_turned = address(B), address(layer.B), address(layer.B_turned)
    old, new, biases = address(Q), address(layer.Q), address(layer.c)
    turned = address(layer.Q_turned)
    for h in range(lo, hi):
        biases[h] = c[h]
        for j in range(given.width):
            value = first[h * given.width + j]
            copy[h * given.whole + j] = value
            first_turned[j * hidden.pitch + h] = value
    for j in range(wanted.width):
        for h in range(lo, hi):
            value = old[j * hidden.width + h]
            new[j * hidden.pitch + h] = value
            turned[h * wanted.whole + j] = value


@glue
def add_up(lo: int, hi: int, sums: Any, shape: Any) -> None:
    """Rows lo..hi of all threads into the first buffer, in a fixed order."""
    start = address(sums.start)
    for part in range(1, sums.parts):
        more = beyond(start, part * sums.size)
        for i in range(lo * shape.pitch, hi * shape.pitch, LANES):
            store(start, i, load(start, i) + load(more, i))


@glue
def _scale(lo: int, hi: int, rows: Any, shape: Any, scale: Any) -> None:
    """Multiply rows lo..hi by a number each, if there are any."""
    if len(scale) > 0:
        for row in range(lo, hi):
            factor = fill(rows, scale[row])
            for i in range(row * shape.pitch, row * shape.pitch + shape.whole, LANES):
                store(rows, i, load(rows, i) * factor)


@glue
def _activate(units: Any, shape: Any, rows: int, c: Any) -> None:
    """tanh (x + c) of every unit: with e = exp(-2·|x|) it is (1 - e) / (1 + e) and x's sign."""
    zero, one, two = fill(units, 0.0), fill(units, 1.0), fill(units, 2.0)
    for row in range(rows):
        for i in range(0, shape.whole, LANES):
            p = row * shape.pitch + i
            x = load(units, p) + load(c, i)
            e = exp(zero - two * maximum(x, zero - x))
            size = (one - e) / (one + e)
            store(units, p, where_at_most(zero, x, size, zero - size))


@kernel
def hidden_forward(
    lo: int,
    hi: int,
    gate: Any,
    sums: Any,
    scale: Any,
    layer: Any,
    sizes: Any,
    units: Any,
    states: Any,
) -> None:
    """states[lo:hi] from the rows' summed contexts, which are added up and scaled in place.

    Traffic: the layer's weights and the rows, all in the second-level cache.
    """
    pass_gate(gate)
    given, hidden, wanted = sizes
    rows, hiddens, outputs = address(sums.start), address(units), address(states)
    first = Factor(address(layer.B_turned), hidden.pitch, 1)
    second = Factor(address(layer.Q_turned), wanted.whole, 1)
    for begin in range(lo, hi, CHUNK):
        end = min(begin + CHUNK, hi)
        n = end - begin
        add_up(begin, end, sums, given)
        _scale(begin, end, rows, given, scale)
        a = Factor(beyond(rows, begin * given.pitch), given.pitch, 1)
        h = Factor(beyond(hiddens, begin * hidden.pitch), hidden.pitch, 1)
        out = Factor(beyond(outputs, begin * wanted.pitch), wanted.pitch, 1)
        _multiply(a, n, given.width, first, h, hidden.whole, 0)
        _activate(h.start, hidden, n, address(layer.c))
        _multiply(h, n, hidden.width, second, out, wanted.whole, 0)


@glue
def _slopes(slopes: Any, units: Any, shape: Any, rows: int, d_c: Any) -> None:
    """The gradient before the activation from that after it; d_c has its sum over rows."""
    one = fill(units, 1.0)
    for i in range(0, shape.whole, LANES):
        total = load(d_c, i)
        for row in range(rows):
            h = load(units, row * shape.pitch + i)
            slope = load(slopes, row * shape.pitch + i) * (one - h * h)
            store(slopes, row * shape.pitch + i, slope)
            total = total + slope
        store(d_c, i, total)


@kernel
def hidden_backward(
    lo: int,
    hi: int,
    gate: Any,
    d_states: Any,
    sums: Any,
    scale: Any,
    layer: Any,
    sizes: Any,
    units: Any,
    grads: Any,
) -> None:
    """The gradient of rows lo..hi takes the place of their sums; that of the weights goes to the
    gate's thread's part of grads.

    Traffic: as `hidden_forward`, twice.
    """
    pass_gate(gate)
    given, hidden, wanted = sizes
    rows, hiddens, slopes = address(sums.start), address(units), address(d_states.start)
    B = Factor(address(layer.B), given.whole, 1)
    Q = Factor(address(layer.Q), hidden.pitch, 1)
    d_c = beyond(address(grads.numbers), gate.thread * grads.size)
    clear(d_c, grads.size)
    d_B = Factor(beyond(d_c, hidden.pitch), hidden.pitch, 1)
    d_Q = Factor(beyond(d_B.start, given.width * hidden.pitch), hidden.pitch, 1)
    d_units = Factor(address(grads.chunk), hidden.pitch, 1)
    for begin in range(lo, hi, CHUNK):
        end = min(begin + CHUNK, hi)
        n = end - begin
        add_up(begin, end, d_states, wanted)
        a, d = beyond(rows, begin * given.pitch), beyond(slopes, begin * wanted.pitch)
        h = Factor(beyond(hiddens, begin * hidden.pitch), hidden.pitch, 1)
        _multiply(Factor(d, 1, wanted.pitch), wanted.width, n, h, d_Q, hidden.whole, 1)
        _multiply(Factor(d, wanted.pitch, 1), n, wanted.width, Q, d_units, hidden.whole, 0)
        _slopes(d_units.start, h.start, hidden, n, d_c)
        _multiply(Factor(a, 1, given.pitch), given.width, n, d_units, d_B, hidden.whole, 1)
        d_rows = Factor(a, given.pitch, 1)
        _multiply(d_units, n, hidden.width, B, d_rows, given.whole, 0)
        _scale(begin, end, rows, given, scale)


@glue
def _added(numbers: Any, size: int, parts: int, place: int) -> Any:
    """A number of the threads' gradients, added up in a fixed order."""
    total = numbers[place]
    for part in range(1, parts):
        total += numbers[part * size + place]
    return total


@kernel
def hidden_step(part: int, parts: int, grads: Any, sizes: Any, updates: Any) -> None:
    """Adam moves one of `parts` shares of the weights: of hidden units for B and c, of rows for Q.

    updates are those of B, c and Q. Traffic: weights, moments and gradients, once.
    """
    given, hidden, wanted = sizes
    B, c, Q = bare_update(updates[0]), bare_update(updates[1]), bare_update(updates[2])
    own, numbers, size = address(grads.chunk), address(grads.numbers), grads.size
    lo, hi = hidden.width * part // parts, hidden.width * (part + 1) // parts
    for h in range(lo, hi):
        own[h - lo] = _added(numbers, size, parts, h)
    adam_run(c, lo, own, hi - lo)
    for h in range(lo, hi):
        for j in range(given.width):
            own[j] = _added(numbers, size, parts, (1 + j) * hidden.pitch + h)
        adam_run(B, h * given.width, own, given.width)
    for j in range(wanted.width * part // parts, wanted.width * (part + 1) // parts):
        for h in range(hidden.width):
            own[h] = _added(numbers, size, parts, (1 + given.width + j) * hidden.pitch + h)
        adam_run(Q, j * hidden.width, own, hidden.width)
