"""The hidden layer of a factored network in one pass: from summed contexts to states, and back.

A step would call a dozen functions of a matrix library here, each from Python, whose threads wait
for each other at every call. So the six products are written out: 6 rows × 4 vectors of a product
stay in registers, rows go through in chunks that stay in the second-level cache, activation and
its gradient are done on the way. Weights are copied first, padded to whole vectors, as they are and
transposed: every product then reads its right factor along its rows.

With torch instead, a step takes 6-9 % longer on Netflix and 4-5 % on ML-10M (register_products.py
has the speed of the products).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cfnade.kernels.adam import parameter_pointers, update_weights
from cfnade.kernels.buffers import Array, BlockLayout, aligned_zeros, block_layout, clear
from cfnade.kernels.jit import inlined, kernel
from cfnade.kernels.register_products import MatrixView, matmul
from cfnade.kernels.simd import (
    LANES,
    broadcast,
    data_pointer,
    exp,
    load,
    maximum,
    offset,
    select_le,
    store,
)
from cfnade.kernels.threads import barrier_wait

CHUNK_ROWS = 48  # rows whose hidden units stay in the second-level cache


# -- memory ---------------------------------------------------------------------------------------


class PackedWeights(NamedTuple):
    """Weights B (H × J), c (H) and Q (J' × H), padded and both ways round."""

    c: Array  # (padded H,)
    B: Array  # (H · whole J,)
    B_turned: Array  # (J · pitch of H,)
    Q: Array  # (J' · pitch of H,)
    Q_turned: Array  # (H · whole J',)


class LayerLayouts(NamedTuple):
    """Of input rows (J), hidden units (H) and output rows (J')."""

    given: BlockLayout
    hidden: BlockLayout
    wanted: BlockLayout


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


class FusedBuffers:
    """Memory of a layer for some threads."""

    def __init__(self, dtype: Any, widths: tuple[int, int, int], threads: int) -> None:
        given, hidden, wanted = (block_layout(1, width) for width in widths)
        self.sizes = LayerLayouts(given, hidden, wanted)
        J, H, out = given.width, hidden.pitch, wanted.width
        self.layer = PackedWeights(
            aligned_zeros(dtype, H),
            aligned_zeros(dtype, hidden.width * given.whole),
            aligned_zeros(dtype, J * H),
            aligned_zeros(dtype, out * H),
            aligned_zeros(dtype, hidden.width * wanted.whole),
        )
        size = (1 + J + out) * H
        numbers = aligned_zeros(dtype, threads * size)
        self.gradients = [
            HiddenGradients(numbers, size, aligned_zeros(dtype, CHUNK_ROWS * H))
            for _ in range(threads)
        ]
        self.units: Array = aligned_zeros(dtype, 0)  # (rows · pitch of H,)

    def reserve(self, rows: int) -> None:
        """Make room for the hidden units of so many rows."""
        if len(self.units) < rows * self.sizes.hidden.pitch:
            self.units = aligned_zeros(self.units.dtype, rows * self.sizes.hidden.pitch)


# -- passes ---------------------------------------------------------------------------------------


@kernel
def pack_weights(lo: int, hi: int, B: Any, c: Any, Q: Any, sizes: Any, layer: Any) -> None:
    """Copy the weights of hidden units lo..hi. Traffic: 8 bytes a weight read, 16 written."""
    given, hidden, wanted = sizes
    first, copy, first_turned = data_pointer(B), data_pointer(layer.B), data_pointer(layer.B_turned)
    old, new, biases = data_pointer(Q), data_pointer(layer.Q), data_pointer(layer.c)
    turned = data_pointer(layer.Q_turned)
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


@inlined
def merge_rows(lo: int, hi: int, sums: Any, shape: Any) -> None:
    """Rows lo..hi of all threads into the first buffer, in a fixed order."""
    start = data_pointer(sums.start)
    for part in range(1, sums.parts):
        more = offset(start, part * sums.size)
        for i in range(lo * shape.pitch, hi * shape.pitch, LANES):
            store(start, i, load(start, i) + load(more, i))


@inlined
def _scale_rows(lo: int, hi: int, rows: Any, shape: Any, scale: Any) -> None:
    """Multiply rows lo..hi by a number each, if there are any."""
    if len(scale) > 0:
        for row in range(lo, hi):
            factor = broadcast(rows, scale[row])
            for i in range(row * shape.pitch, row * shape.pitch + shape.whole, LANES):
                store(rows, i, load(rows, i) * factor)


@inlined
def _activate(units: Any, shape: Any, rows: int, c: Any) -> None:
    """tanh (x + c) of every unit: with e = exp(-2·|x|) it is (1 - e) / (1 + e) and x's sign."""
    zero, one, two = broadcast(units, 0.0), broadcast(units, 1.0), broadcast(units, 2.0)
    for row in range(rows):
        for i in range(0, shape.whole, LANES):
            p = row * shape.pitch + i
            x = load(units, p) + load(c, i)
            e = exp(zero - two * maximum(x, zero - x))
            size = (one - e) / (one + e)
            store(units, p, select_le(zero, x, size, zero - size))


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
    barrier_wait(gate)
    given, hidden, wanted = sizes
    rows, hiddens, outputs = data_pointer(sums.start), data_pointer(units), data_pointer(states)
    first = MatrixView(data_pointer(layer.B_turned), hidden.pitch, 1)
    second = MatrixView(data_pointer(layer.Q_turned), wanted.whole, 1)
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        merge_rows(begin, end, sums, given)
        _scale_rows(begin, end, rows, given, scale)
        a = MatrixView(offset(rows, begin * given.pitch), given.pitch, 1)
        h = MatrixView(offset(hiddens, begin * hidden.pitch), hidden.pitch, 1)
        out = MatrixView(offset(outputs, begin * wanted.pitch), wanted.pitch, 1)
        matmul(a, n, given.width, first, h, hidden.whole, 0)
        _activate(h.start, hidden, n, data_pointer(layer.c))
        matmul(h, n, hidden.width, second, out, wanted.whole, 0)


@inlined
def _activation_gradient(slopes: Any, units: Any, shape: Any, rows: int, d_c: Any) -> None:
    """The gradient before the activation from that after it; d_c has its sum over rows."""
    one = broadcast(units, 1.0)
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
    barrier_wait(gate)
    given, hidden, wanted = sizes
    rows, hiddens, slopes = (
        data_pointer(sums.start),
        data_pointer(units),
        data_pointer(d_states.start),
    )
    B = MatrixView(data_pointer(layer.B), given.whole, 1)
    Q = MatrixView(data_pointer(layer.Q), hidden.pitch, 1)
    d_c = offset(data_pointer(grads.numbers), gate.thread * grads.size)
    clear(d_c, grads.size)
    d_B = MatrixView(offset(d_c, hidden.pitch), hidden.pitch, 1)
    d_Q = MatrixView(offset(d_B.start, given.width * hidden.pitch), hidden.pitch, 1)
    d_units = MatrixView(data_pointer(grads.chunk), hidden.pitch, 1)
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        merge_rows(begin, end, d_states, wanted)
        a, d = offset(rows, begin * given.pitch), offset(slopes, begin * wanted.pitch)
        h = MatrixView(offset(hiddens, begin * hidden.pitch), hidden.pitch, 1)
        matmul(MatrixView(d, 1, wanted.pitch), wanted.width, n, h, d_Q, hidden.whole, 1)
        matmul(MatrixView(d, wanted.pitch, 1), n, wanted.width, Q, d_units, hidden.whole, 0)
        _activation_gradient(d_units.start, h.start, hidden, n, d_c)
        matmul(MatrixView(a, 1, given.pitch), given.width, n, d_units, d_B, hidden.whole, 1)
        d_rows = MatrixView(a, given.pitch, 1)
        matmul(d_units, n, hidden.width, B, d_rows, given.whole, 0)
        _scale_rows(begin, end, rows, given, scale)


@inlined
def _merged(numbers: Any, size: int, parts: int, place: int) -> Any:
    """A number of the threads' gradients, added up in a fixed order."""
    total = numbers[place]
    for part in range(1, parts):
        total += numbers[part * size + place]
    return total


@kernel
def hidden_update(part: int, parts: int, grads: Any, sizes: Any, updates: Any) -> None:
    """Adam moves one of `parts` shares of the weights: of hidden units for B and c, of rows for Q.

    updates are those of B, c and Q. Traffic: weights, moments and gradients, once.
    """
    given, hidden, wanted = sizes
    B, c, Q = (
        parameter_pointers(updates[0]),
        parameter_pointers(updates[1]),
        parameter_pointers(updates[2]),
    )
    own, numbers, size = data_pointer(grads.chunk), data_pointer(grads.numbers), grads.size
    lo, hi = hidden.width * part // parts, hidden.width * (part + 1) // parts
    for h in range(lo, hi):
        own[h - lo] = _merged(numbers, size, parts, h)
    update_weights(c, lo, own, hi - lo)
    for h in range(lo, hi):
        for j in range(given.width):
            own[j] = _merged(numbers, size, parts, (1 + j) * hidden.pitch + h)
        update_weights(B, h * given.width, own, given.width)
    for j in range(wanted.width * part // parts, wanted.width * (part + 1) // parts):
        for h in range(hidden.width):
            own[h] = _merged(numbers, size, parts, (1 + given.width + j) * hidden.pitch + h)
        update_weights(Q, j * hidden.width, own, hidden.width)
