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

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

from cfnade.kernels.adam import AdamParameter, parameter_pointers, update_weights
from cfnade.kernels.buffers import (
    Array,
    BlockLayout,
    RowBuffers,
    aligned_zeros,
    block_layout,
    clear,
)
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
from cfnade.kernels.threads import BarrierPoint, barrier_wait

CHUNK_ROWS = 48  # rows whose hidden units stay in the second-level cache


# -- memory ---------------------------------------------------------------------------------------


class PackedWeights(NamedTuple):
    """Weights B (H × J), c (H) and Q (J' × H), padded and both ways round."""

    c: Array  # (padded H,)
    B: Array  # (H · whole J,)
    B_transposed: Array  # (J · pitch of H,)
    Q: Array  # (J' · pitch of H,)
    Q_transposed: Array  # (H · whole J',)


class LayerLayouts(NamedTuple):
    """Layouts of input rows (J), hidden units (H) and output rows (J')."""

    input: BlockLayout
    hidden: BlockLayout
    output: BlockLayout


class BatchRows(NamedTuple):
    """The rows of a batch: summed contexts, states, and later the gradients of both."""

    input: RowBuffers
    output: RowBuffers
    state: Array  # (B · row stride,)
    scale: Array  # (B,) factors of the sums, or empty


class RowSums(NamedTuple):
    """Row sums of threads: `parts` buffers, `size` numbers apart; the first gets their sum."""

    start: Array
    parts: int
    size: int


def row_sums(memory: RowBuffers) -> RowSums:
    """Return the row sums of all threads."""
    return RowSums(memory.all_parts(), memory.threads, memory.size)


class HiddenGradients(NamedTuple):
    """Gradients of the weights, one thread's behind another's, and of a chunk's hidden units."""

    numbers: Array  # (threads · size,): c (pitch of H), B turned (J · pitch), Q (J' · pitch)
    size: int
    chunk: Array  # (CHUNK · pitch of H,)


# -- passes ---------------------------------------------------------------------------------------


@kernel
def pack_weights(lo: int, hi: int, B: Any, c: Any, Q: Any, sizes: Any, layer: Any) -> None:
    """Copy the weights of hidden units lo..hi. Traffic: 8 bytes a weight read, 16 written."""
    inner, hidden, outer = sizes
    first, copy, first_transposed = (
        data_pointer(B),
        data_pointer(layer.B),
        data_pointer(layer.B_transposed),
    )
    old, new, biases = data_pointer(Q), data_pointer(layer.Q), data_pointer(layer.c)
    turned = data_pointer(layer.Q_transposed)
    for h in range(lo, hi):
        biases[h] = c[h]
        for j in range(inner.width):
            value = first[h * inner.width + j]
            copy[h * inner.padded_width + j] = value
            first_transposed[j * hidden.row_stride + h] = value
    for j in range(outer.width):
        for h in range(lo, hi):
            value = old[j * hidden.width + h]
            new[j * hidden.row_stride + h] = value
            turned[h * outer.padded_width + j] = value


@inlined
def merge_rows(lo: int, hi: int, sums: Any, layout: Any) -> None:
    """Rows lo..hi of all threads into the first buffer, in a fixed order."""
    start = data_pointer(sums.start)
    for part in range(1, sums.parts):
        more = offset(start, part * sums.size)
        for i in range(lo * layout.row_stride, hi * layout.row_stride, LANES):
            store(start, i, load(start, i) + load(more, i))


@inlined
def _scale_rows(lo: int, hi: int, rows: Any, layout: Any, scale: Any) -> None:
    """Multiply rows lo..hi by a number each, if there are any."""
    if len(scale) > 0:
        for row in range(lo, hi):
            factor = broadcast(rows, scale[row])
            for i in range(
                row * layout.row_stride, row * layout.row_stride + layout.padded_width, LANES
            ):
                store(rows, i, load(rows, i) * factor)


@inlined
def _activate(units: Any, layout: Any, rows: int, c: Any) -> None:
    """tanh (x + c) of every unit: with e = exp(-2·|x|) it is (1 - e) / (1 + e) and x's sign."""
    zero, one, two = broadcast(units, 0.0), broadcast(units, 1.0), broadcast(units, 2.0)
    for row in range(rows):
        for i in range(0, layout.padded_width, LANES):
            p = row * layout.row_stride + i
            x = load(units, p) + load(c, i)
            e = exp(zero - two * maximum(x, zero - x))
            size = (one - e) / (one + e)
            store(units, p, select_le(zero, x, size, zero - size))


@kernel
def hidden_forward(
    lo: int,
    hi: int,
    point: Any,
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
    barrier_wait(point)
    inner, hidden, outer = sizes
    rows, hiddens, outputs = data_pointer(sums.start), data_pointer(units), data_pointer(states)
    first = MatrixView(data_pointer(layer.B_transposed), hidden.row_stride, 1)
    second = MatrixView(data_pointer(layer.Q_transposed), outer.padded_width, 1)
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        merge_rows(begin, end, sums, inner)
        _scale_rows(begin, end, rows, inner, scale)
        a = MatrixView(offset(rows, begin * inner.row_stride), inner.row_stride, 1)
        h = MatrixView(offset(hiddens, begin * hidden.row_stride), hidden.row_stride, 1)
        out = MatrixView(offset(outputs, begin * outer.row_stride), outer.row_stride, 1)
        matmul(a, n, inner.width, first, h, hidden.padded_width, 0)
        _activate(h.start, hidden, n, data_pointer(layer.c))
        matmul(h, n, hidden.width, second, out, outer.padded_width, 0)


@inlined
def _activation_gradient(slopes: Any, units: Any, layout: Any, rows: int, d_c: Any) -> None:
    """The gradient before the activation from that after it; d_c has its sum over rows."""
    one = broadcast(units, 1.0)
    for i in range(0, layout.padded_width, LANES):
        total = load(d_c, i)
        for row in range(rows):
            h = load(units, row * layout.row_stride + i)
            slope = load(slopes, row * layout.row_stride + i) * (one - h * h)
            store(slopes, row * layout.row_stride + i, slope)
            total = total + slope
        store(d_c, i, total)


@kernel
def hidden_backward(
    lo: int,
    hi: int,
    point: Any,
    d_states: Any,
    sums: Any,
    scale: Any,
    layer: Any,
    sizes: Any,
    units: Any,
    grads: Any,
) -> None:
    """The gradient of rows lo..hi takes the place of their sums; that of the weights goes to the
    point's thread's part of grads.

    Traffic: as `hidden_forward`, twice.
    """
    barrier_wait(point)
    inner, hidden, outer = sizes
    rows, hiddens, slopes = (
        data_pointer(sums.start),
        data_pointer(units),
        data_pointer(d_states.start),
    )
    B = MatrixView(data_pointer(layer.B), inner.padded_width, 1)
    Q = MatrixView(data_pointer(layer.Q), hidden.row_stride, 1)
    d_c = offset(data_pointer(grads.numbers), point.thread * grads.size)
    clear(d_c, grads.size)
    d_B = MatrixView(offset(d_c, hidden.row_stride), hidden.row_stride, 1)
    d_Q = MatrixView(offset(d_B.start, inner.width * hidden.row_stride), hidden.row_stride, 1)
    d_units = MatrixView(data_pointer(grads.chunk), hidden.row_stride, 1)
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        merge_rows(begin, end, d_states, outer)
        a, d = offset(rows, begin * inner.row_stride), offset(slopes, begin * outer.row_stride)
        h = MatrixView(offset(hiddens, begin * hidden.row_stride), hidden.row_stride, 1)
        matmul(MatrixView(d, 1, outer.row_stride), outer.width, n, h, d_Q, hidden.padded_width, 1)
        matmul(
            MatrixView(d, outer.row_stride, 1), n, outer.width, Q, d_units, hidden.padded_width, 0
        )
        _activation_gradient(d_units.start, h.start, hidden, n, d_c)
        matmul(
            MatrixView(a, 1, inner.row_stride), inner.width, n, d_units, d_B, hidden.padded_width, 1
        )
        d_rows = MatrixView(a, inner.row_stride, 1)
        matmul(d_units, n, hidden.width, B, d_rows, inner.padded_width, 0)
        _scale_rows(begin, end, rows, inner, scale)


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
    inner, hidden, outer = sizes
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
        for j in range(inner.width):
            own[j] = _merged(numbers, size, parts, (1 + j) * hidden.row_stride + h)
        update_weights(B, h * inner.width, own, inner.width)
    for j in range(outer.width * part // parts, outer.width * (part + 1) // parts):
        for h in range(hidden.width):
            own[h] = _merged(numbers, size, parts, (1 + inner.width + j) * hidden.row_stride + h)
        update_weights(Q, j * hidden.width, own, hidden.width)


# -- the layer -------------------------------------------------------------------------------------


class FusedHiddenLayer:
    """One layer of tanh units between factors."""

    def __init__(self, arrays: Mapping[str, Array], threads: int) -> None:
        self._weights = [arrays[name].reshape(-1) for name in ("B", "c", "Q")]
        dtype, (n_hidden, n_input) = arrays["B"].dtype, arrays["B"].shape
        widths = n_input, n_hidden, arrays["Q"].shape[0]
        layouts = LayerLayouts(*(block_layout(1, width) for width in widths))
        J, H, out = n_input, layouts.hidden.row_stride, layouts.output.width
        self._layouts = layouts
        self._layer = PackedWeights(
            aligned_zeros(dtype, H),
            aligned_zeros(dtype, n_hidden * layouts.input.padded_width),
            aligned_zeros(dtype, J * H),
            aligned_zeros(dtype, out * H),
            aligned_zeros(dtype, n_hidden * layouts.output.padded_width),
        )
        size = (1 + J + out) * H
        numbers = aligned_zeros(dtype, threads * size)
        self._gradients = [
            HiddenGradients(numbers, size, aligned_zeros(dtype, CHUNK_ROWS * H))
            for _ in range(threads)
        ]
        self._units: Array = aligned_zeros(dtype, 0)  # (rows · row stride of H,)
        self._cuts = even_ranges(0, n_hidden, threads)

    def thread_limits(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reserve(self, rows: int) -> None:
        size = rows * self._layouts.hidden.row_stride
        if len(self._units) < size:
            self._units = aligned_zeros(self._units.dtype, size)

    def prepare(self, thread: int) -> None:
        pack_weights(*self._cuts[thread], *self._weights, self._layouts, self._layer)

    def forward(
        self, thread: int, point: BarrierPoint, part: tuple[int, int], rows: BatchRows
    ) -> None:
        del thread
        fixed = rows.scale, self._layer, self._layouts, self._units
        hidden_forward(*part, point, row_sums(rows.input), *fixed, rows.state)

    def backward(
        self, thread: int, point: BarrierPoint, part: tuple[int, int], rows: BatchRows
    ) -> None:
        fixed = rows.scale, self._layer, self._layouts, self._units
        sums = row_sums(rows.output), row_sums(rows.input)
        hidden_backward(*part, point, *sums, *fixed, self._gradients[thread])

    def sum_over_processes(self) -> None:
        raise NotImplementedError("processes add the gradients of torch's layers")

    def update(self, thread: int, parameter: Callable[[str], AdamParameter]) -> None:
        parameters = parameter("B"), parameter("c"), parameter("Q")
        gradients = self._gradients[thread]
        hidden_update(thread, len(self._cuts), gradients, self._layouts, parameters)


def even_ranges(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of about equal size."""
    return list(pairwise(lo + (hi - lo) * part // parts for part in range(parts + 1)))
