"""The hidden layer of a factored network in one pass: from summed contexts to states, and back.

A step would call a dozen functions of a matrix library here, each from Python, whose threads wait
for each other at every call. So the six products are written out: 6 rows × 4 vectors of a product
stay in registers, rows go through in chunks that stay in the second-level cache, activation and
slopes are done on the way. Weights are copied first, padded to whole vectors, as they are and
transposed: every product then reads its right factor along its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cfnade.kernels.adam import adam_run, bare_update
from cfnade.kernels.blocks import clear
from cfnade.kernels.compiled import glue, kernel
from cfnade.kernels.exponentials import exp
from cfnade.kernels.gates import pass_gate
from cfnade.kernels.memory import Array, BlockShape, buffer, shape_of
from cfnade.kernels.register_products import Factor, multiply
from cfnade.kernels.simd import (
    LANES,
    address,
    beyond,
    fill,
    load,
    maximum,
    store,
    where_at_most,
)

CHUNK = 48  # rows whose hidden units stay in the second-level cache


# -- memory ---------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """Weights B (H × J), c (H) and Q (J' × H), padded and both ways round."""

    c: Array  # (padded H,)
    B: Array  # (H · whole J,)
    B_turned: Array  # (J · pitch of H,)
    Q: Array  # (J' · pitch of H,)
    Q_turned: Array  # (H · whole J',)


class LayerSizes(NamedTuple):
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
        self.sizes = LayerSizes(given, hidden, wanted)
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
        multiply(a, n, given.width, first, h, hidden.whole, 0)
        _activate(h.start, hidden, n, address(layer.c))
        multiply(h, n, hidden.width, second, out, wanted.whole, 0)


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
        multiply(Factor(d, 1, wanted.pitch), wanted.width, n, h, d_Q, hidden.whole, 1)
        multiply(Factor(d, wanted.pitch, 1), n, wanted.width, Q, d_units, hidden.whole, 0)
        _slopes(d_units.start, h.start, hidden, n, d_c)
        multiply(Factor(a, 1, given.pitch), given.width, n, d_units, d_B, hidden.whole, 1)
        d_rows = Factor(a, given.pitch, 1)
        multiply(d_units, n, hidden.width, B, d_rows, given.whole, 0)
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
