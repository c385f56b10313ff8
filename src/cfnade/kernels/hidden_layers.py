"""The dense layers between the two tables in one pass: from summed contexts to states, and back.

A step would call a dozen functions of a matrix library here, each from Python, whose threads wait
for each other at every call. So the products are written out: 6 rows × 4 vectors of a product stay
in registers, rows go through all layers in chunks that stay in the second-level cache, activations
and their gradients are done on the way. Weights are copied first, padded to whole vectors, as they
are and transposed: every product then reads its right factor along its rows.

With torch instead, a step takes 6-9 % longer on Netflix and 4-5 % on ML-10M (register_products.py
has the speed of the products).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cfnade.kernels.adam import AdamParameter, parameter_pointers, update_weights
from cfnade.kernels.buffers import Array, RowBuffers, aligned_zeros, block_layout, clear, pad_width
from cfnade.kernels.jit import inlined, internal, kernel
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
from cfnade.kernels.threads import BarrierPoint, barrier_wait, even_ranges

CHUNK_ROWS = 48  # rows whose hidden units stay in the second-level cache

LINEAR, TANH, SIGMOID, RELU = range(4)
_ACTIVATIONS = {"tanh": TANH, "sigmoid": SIGMOID, "relu": RELU}


# -- memory ---------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """A layer y = g(W x + c) of widths `inner` and `outer`: where its numbers are.

    A layer without weights has matrix = -1, and one without biases bias = -1. Other numbers are
    places in the packed weights, in a row of units, and in a thread's gradients.
    """

    inner: int
    inner_padded: int
    inner_stride: int  # distance between the rows of x
    x: int  # place of x in a row of units
    outer: int
    outer_padded: int
    outer_stride: int
    y: int
    activation: int
    matrix: int  # W, rows of inner_padded
    transposed: int  # Wᵀ, rows of transposed_stride
    transposed_stride: int
    bias: int
    d_matrix: int  # gradient of W: whole vectors along its rows or its columns
    d_by_outer: int
    d_by_inner: int
    d_bias: int


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


class LayerGradients(NamedTuple):
    """Gradients of all weights, one thread's behind another's, and memory of this thread."""

    numbers: Array  # (threads · size,)
    size: int
    thread: int
    chunk: Array  # (2 · CHUNK_ROWS · row of units,) gradients of a chunk's units
    row: Array  # one row of weights


# -- passes ---------------------------------------------------------------------------------------


@inlined
def _layer(layers, n):
    r = layers[n]
    return Layer(
        r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8],
        r[9], r[10], r[11], r[12], r[13], r[14], r[15], r[16],
    )  # fmt: skip


@kernel
def pack_layer(lo, hi, W, c, layers, number, packed):
    """Copy the weights of a layer's units lo..hi. Traffic: 4 bytes a weight read, 8 written."""
    layer, numbers = _layer(layers, number), data_pointer(packed)
    matrix, biases = data_pointer(W), data_pointer(c)
    for h in range(lo, hi):
        if layer.bias >= 0:
            numbers[layer.bias + h] = biases[h]
        if layer.matrix >= 0:
            for j in range(layer.inner):
                value = matrix[h * layer.inner + j]
                numbers[layer.matrix + h * layer.inner_padded + j] = value
                numbers[layer.transposed + j * layer.transposed_stride + h] = value


@inlined
def _merge_rows(lo, hi, sums, stride):
    """Rows lo..hi of all threads into the first buffer, in a fixed order."""
    start = data_pointer(sums.start)
    for part in range(1, sums.parts):
        more = offset(start, part * sums.size)
        for i in range(lo * stride, hi * stride, LANES):
            store(start, i, load(start, i) + load(more, i))


@inlined
def _scale_rows(lo, hi, rows, layer, scale):
    """Multiply the input rows lo..hi by a number each, if there are any."""
    if len(scale) > 0:
        for row in range(lo, hi):
            factor, first = broadcast(rows, scale[row]), row * layer.inner_stride
            for i in range(first, first + layer.inner_padded, LANES):
                store(rows, i, load(rows, i) * factor)


@inlined
def _copy_rows(source, stride, to, to_stride, rows, width):
    for row in range(rows):
        for i in range(0, width, LANES):
            store(to, row * to_stride + i, load(source, row * stride + i))


@internal
def _activate(units, layer, rows, weights):
    """g(x + c) of every unit.

    With e = exp(-|x|), tanh(x / 2) is (1 - e) / (1 + e) with x's sign.
    """
    zero, ones, two = broadcast(units, 0.0), broadcast(units, 1.0), broadcast(units, 2.0)
    half = broadcast(units, 0.5)
    for row in range(rows):
        for i in range(0, layer.outer_padded, LANES):
            p = row * layer.outer_stride + i
            x = load(units, p)
            if layer.bias >= 0:
                x = x + load(weights, layer.bias + i)
            if layer.activation == RELU:
                x = maximum(x, zero)
            elif layer.activation != LINEAR:
                if layer.activation == TANH:
                    x = two * x
                e = exp(zero - maximum(x, zero - x))
                size = (ones - e) / (ones + e)
                x = select_le(zero, x, size, zero - size)
                if layer.activation == SIGMOID:
                    x = half + half * x
            store(units, p, x)
        if layer.activation == SIGMOID:  # of which g(0) is not 0: the padding stays so
            for i in range(layer.outer, layer.outer_padded):
                units[row * layer.outer_stride + i] = 0.0


@kernel
def hidden_forward(lo, hi, point, sums, scale, layers, packed, units, states):
    """states[lo:hi] from the rows' summed contexts, which are added up and scaled in place.

    Traffic: the layers' weights and the rows, all in the second-level cache.
    """
    barrier_wait(point)
    weights, rows = data_pointer(packed), data_pointer(sums.start)
    first, last, replace, unit = _layer(layers, 0), len(layers) - 1, 0, 1
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        _merge_rows(begin, end, sums, first.inner_stride)
        _scale_rows(begin, end, rows, first, scale)
        x = offset(rows, begin * first.inner_stride)
        for number in range(last + 1):
            layer = _layer(layers, number)
            y = offset(data_pointer(units), begin * layer.outer_stride + layer.y)
            if number == last:
                y = offset(data_pointer(states), begin * layer.outer_stride)
            if layer.matrix >= 0:
                left = MatrixView(x, layer.inner_stride, unit)
                right = MatrixView(offset(weights, layer.transposed), layer.transposed_stride, unit)
                out = MatrixView(y, layer.outer_stride, unit)
                matmul(left, n, layer.inner, right, out, layer.outer_padded, replace)
            else:
                _copy_rows(x, layer.inner_stride, y, layer.outer_stride, n, layer.outer_padded)
            if layer.bias >= 0:
                _activate(y, layer, n, weights)
            x = y


@internal
def _activation_gradient(d_units, stride, units, layer, rows, d_c):
    """The gradient before the activation from that after it; d_c has its sum over rows."""
    zero, ones = broadcast(units, 0.0), broadcast(units, 1.0)
    for i in range(0, layer.outer_padded, LANES):
        total = load(d_c, i)
        for row in range(rows):
            y, slope = load(units, row * layer.outer_stride + i), load(d_units, row * stride + i)
            if layer.activation == TANH:
                slope = slope * (ones - y * y)
            elif layer.activation == SIGMOID:
                slope = slope * y * (ones - y)
            elif layer.activation == RELU:
                slope = select_le(y, zero, zero, slope)
            store(d_units, row * stride + i, slope)
            total = total + slope
        store(d_c, i, total)


@kernel
def hidden_backward(lo, hi, point, d_states, sums, scale, layers, packed, units, states, grads):
    """The gradient of rows lo..hi takes the place of their sums; that of the weights goes to the
    thread's part of grads.

    Traffic: as `hidden_forward`, twice.
    """
    barrier_wait(point)
    weights, rows = data_pointer(packed), data_pointer(sums.start)
    gradients = offset(data_pointer(grads.numbers), grads.thread * grads.size)
    clear(gradients, grads.size)
    count, replace, unit = len(layers), 0, 1
    first, outer = _layer(layers, 0), _layer(layers, count - 1)
    for begin in range(lo, hi, CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, hi)
        n = end - begin
        _merge_rows(begin, end, d_states, outer.outer_stride)
        d = offset(data_pointer(d_states.start), begin * outer.outer_stride)
        stride = outer.outer_stride
        for depth in range(count):
            number = count - 1 - depth
            layer = _layer(layers, number)
            x = offset(data_pointer(units), begin * layer.inner_stride + layer.x)
            if number == 0:
                x = offset(rows, begin * layer.inner_stride)
            y = offset(data_pointer(units), begin * layer.outer_stride + layer.y)
            if depth == 0:
                y = offset(data_pointer(states), begin * layer.outer_stride)
            if layer.bias >= 0:
                _activation_gradient(d, stride, y, layer, n, offset(gradients, layer.d_bias))
            if layer.matrix < 0:
                _copy_rows(d, stride, x, layer.inner_stride, n, layer.inner_padded)
                continue
            d_W = offset(gradients, layer.d_matrix)
            if layer.d_by_inner == 1:
                left, right = MatrixView(d, unit, stride), MatrixView(x, layer.inner_stride, unit)
                out = MatrixView(d_W, layer.d_by_outer, unit)
                matmul(left, layer.outer, n, right, out, layer.inner_padded, unit)
            else:
                left, right = MatrixView(x, unit, layer.inner_stride), MatrixView(d, stride, unit)
                out = MatrixView(d_W, layer.d_by_inner, unit)
                matmul(left, layer.inner, n, right, out, layer.outer_padded, unit)
            to = offset(data_pointer(grads.chunk), (depth % 2) * CHUNK_ROWS * layer.inner_stride)
            if number == 0:
                to = x
            right = MatrixView(offset(weights, layer.matrix), layer.inner_padded, unit)
            out = MatrixView(to, layer.inner_stride, unit)
            left = MatrixView(d, stride, unit)
            matmul(left, n, layer.outer, right, out, layer.inner_padded, replace)
            d, stride = to, layer.inner_stride
        _scale_rows(begin, end, rows, first, scale)


@inlined
def _merged(numbers, size, parts, place):
    """A number of the threads' gradients, added up in a fixed order."""
    total = numbers[place]
    for part in range(1, parts):
        total += numbers[part * size + place]
    return total


@kernel
def update_layer(part, parts, grads, layers, number, W, c):
    """Adam moves one of `parts` shares of a layer's units: their weights W and biases c.

    Traffic: weights, moments and gradients, once.
    """
    layer, matrix, biases = _layer(layers, number), parameter_pointers(W), parameter_pointers(c)
    values, numbers, size = data_pointer(grads.row), data_pointer(grads.numbers), grads.size
    lo, hi = layer.outer * part // parts, layer.outer * (part + 1) // parts
    if layer.bias >= 0:
        for h in range(lo, hi):
            values[h - lo] = _merged(numbers, size, parts, layer.d_bias + h)
        update_weights(biases, lo, values, hi - lo)
    if layer.matrix >= 0:
        for h in range(lo, hi):
            first = layer.d_matrix + h * layer.d_by_outer
            for j in range(layer.inner):
                values[j] = _merged(numbers, size, parts, first + j * layer.d_by_inner)
            update_weights(matrix, h * layer.inner, values, layer.inner)


# -- all layers ------------------------------------------------------------------------------------


class HiddenLayers:
    """The layers of a CF-NADE, as the threads of a step go through them.

    Args:
        arrays: Its arrays: of factored tables B, c and Q, otherwise c; deep_W.n and deep_c.n.
        activation: "tanh", "sigmoid" or "relu".
        threads: Number of threads.
        merges_rows: Whether the threads' row sums are added up here, or have been before.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        activation: str,
        threads: int,
        *,
        merges_rows: bool = True,
    ) -> None:
        self._names, dtype = layer_names(arrays), arrays["c"].dtype
        self._threads, self._merges_rows = threads, merges_rows
        self._layers, sizes = _layers(arrays, self._names, _ACTIVATIONS[activation])
        self._packed = aligned_zeros(dtype, sizes.packed)
        empty = np.empty(0, dtype)
        self._weights = [
            tuple(arrays.get(name, empty).reshape(-1) for name in pair) for pair in self._names
        ]
        numbers = aligned_zeros(dtype, threads * sizes.gradient)
        self._gradients = [
            LayerGradients(
                numbers,
                sizes.gradient,
                thread,
                aligned_zeros(dtype, 2 * CHUNK_ROWS * sizes.units),
                aligned_zeros(dtype, int(self._layers[:, [1, 5]].max())),
            )
            for thread in range(threads)
        ]
        self._units: Array = aligned_zeros(dtype, 0)  # (rows · row of units,)
        self._row_size = sizes.units

    def reserve(self, rows: int) -> None:
        """Make room for a batch."""
        if len(self._units) < rows * self._row_size:
            self._units = aligned_zeros(self._units.dtype, rows * self._row_size)

    def prepare(self, thread: int) -> None:
        """Copy the thread's share of the weights."""
        for number, (W, c) in enumerate(self._weights):
            outer = int(self._layers[number, 4])
            lo, hi = even_ranges(0, outer, self._threads)[thread]
            pack_layer(lo, hi, W, c, self._layers, number, self._packed)

    def forward(self, point: BarrierPoint, part: tuple[int, int], rows: BatchRows) -> None:
        """Compute the states of a part of the rows, once their sums have been merged and scaled."""
        fixed = self._layers, self._packed, self._units
        hidden_forward(*part, point, self._row_sums(rows.input), rows.scale, *fixed, rows.state)

    def backward(
        self, thread: int, point: BarrierPoint, part: tuple[int, int], rows: BatchRows
    ) -> None:
        """The gradient of the sums takes their place; that of the weights is kept."""
        sums = self._row_sums(rows.output), self._row_sums(rows.input)
        fixed = self._layers, self._packed, self._units
        hidden_backward(
            *part, point, *sums, rows.scale, *fixed, rows.state, self._gradients[thread]
        )

    def merge_gradients(self) -> Array:
        """Add the threads' gradients of the weights into the first ones, and return these."""
        gradients: Array = self._gradients[0].numbers.reshape(self._threads, -1)
        for part in gradients[1:]:
            gradients[0] += part
            part[:] = 0.0
        return np.asarray(gradients[0])

    def update(self, thread: int, parameter: Callable[[str], AdamParameter]) -> None:
        """Let Adam move the thread's share of the weights, once all threads have been back."""
        gradients = self._gradients[thread]
        for number, names in enumerate(self._names):
            W, c = (parameter(name or bias_name) for name, bias_name in (names, names[::-1]))
            update_layer(thread, self._threads, gradients, self._layers, number, W, c)

    def _row_sums(self, memory: RowBuffers) -> RowSums:
        if self._merges_rows:
            return RowSums(memory.all_parts(), memory.threads, memory.size)
        return RowSums(memory.part(0), 1, memory.size)


class _Sizes(NamedTuple):
    """How many numbers there are."""

    packed: int
    gradient: int
    units: int  # of one row


def layer_names(arrays: Mapping[str, Array]) -> list[tuple[str, str]]:
    """Return the names of weights and biases of each layer; "" where it has none."""
    depth = sum(name.startswith("deep_W") for name in arrays)
    first = ("B", "c") if "B" in arrays else ("", "c")
    deep = [(f"deep_W.{n}", f"deep_c.{n}") for n in range(depth)]
    return [first, *deep, *([("Q", "")] if "Q" in arrays else [])]


def _layers(
    arrays: Mapping[str, Array], names: list[tuple[str, str]], activation: int
) -> tuple[Array, _Sizes]:
    """Lay out all layers: their packed weights, a row of their units, and their gradients."""
    widths = [arrays["input_table"].shape[2]]
    widths += [arrays[W].shape[0] if W else arrays[c].size for W, c in names]
    layouts = [block_layout(1, width) for width in widths]
    places = np.cumsum([0, *(layout.row_stride for layout in layouts[1:-1])]).tolist()
    units, packed, gradient = places[-1], 0, 0
    layers = []
    for n, ((W, c), (inner, outer)) in enumerate(zip(names, pairwise(layouts), strict=True)):
        is_first, is_last = n == 0, n == len(names) - 1
        matrix = transposed = bias = -1
        if W:
            matrix, transposed = packed, packed + outer.width * inner.padded_width
            packed = transposed + inner.width * outer.row_stride
        if c:
            bias, packed = packed, packed + outer.padded_width
        by_row = outer.width * inner.padded_width < inner.width * outer.row_stride
        d_by_outer, d_by_inner = (inner.padded_width, 1) if by_row else (1, outer.row_stride)
        d_matrix = gradient
        length = outer.width * d_by_outer if by_row else inner.width * d_by_inner
        d_bias = d_matrix + (length if W else 0)
        gradient = d_bias + (outer.padded_width if c else 0)
        layers.append(
            Layer(
                inner=inner.width,
                inner_padded=inner.padded_width,
                inner_stride=inner.row_stride if is_first else units,
                x=0 if is_first else places[n - 1],
                outer=outer.width,
                outer_padded=outer.padded_width,
                outer_stride=outer.row_stride if is_last else units,
                y=0 if is_last else places[n],
                activation=activation if c else LINEAR,
                matrix=matrix,
                transposed=transposed,
                transposed_stride=outer.row_stride,
                bias=bias,
                d_matrix=d_matrix,
                d_by_outer=d_by_outer,
                d_by_inner=d_by_inner,
                d_bias=d_bias,
            )
        )
    return np.array(layers, np.int64), _Sizes(packed, pad_width(gradient), units)
