"""Dense layers between the two tables, as the threads of a step go through them.

One layer of tanh units between factors, the form for large data, has its own kernels
(fused_hidden_layer.py); torch does all others, cut by rows so that every thread runs its own
single-threaded products. Backward by hand: each activation's derivative follows from its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cfnade.distributed.process_group import ProcessGroup
from cfnade.kernels.adam import AdamParameter
from cfnade.kernels.buffers import Array, RowBuffers, aligned_zeros, pad_width, unpadded
from cfnade.kernels.column_passes import update_flat
from cfnade.kernels.fused_hidden_layer import (
    BatchRows,
    FusedHiddenLayer,
    even_ranges,
    merge_rows,
    row_sums,
)
from cfnade.kernels.jit import kernel
from cfnade.kernels.threads import BarrierPoint, barrier_wait, single_torch_thread

Range = tuple[int, int]
TABLES = ("input_table", "output_table", "bias")


class HiddenLayers(Protocol):
    """Each thread calls all but the first two for its part."""

    def thread_limits(self) -> AbstractContextManager[None]:
        """Around all of it, on the thread that hands out."""

    def reserve(self, rows: int) -> None:
        """Make room for a batch."""

    def prepare(self, thread: int) -> None:
        """Do what needs no sums, before `forward`."""

    def forward(self, thread: int, point: BarrierPoint, part: Range, rows: BatchRows) -> None:
        """States of rows lo..hi from their sums, which are merged and scaled."""

    def backward(self, thread: int, point: BarrierPoint, part: Range, rows: BatchRows) -> None:
        """The gradient of the sums takes their place; that of the weights is kept."""

    def sum_over_processes(self) -> None:
        """Add the gradients of the weights over processes, before `update`."""

    def update(self, thread: int, parameter: Callable[[str], AdamParameter]) -> None:
        """Adam on the thread's share of the weights, once all threads have been back."""


def make_hidden_layers(
    arrays: Mapping[str, Array], activation: str, threads: int, group: ProcessGroup
) -> HiddenLayers:
    """Fused kernels if they can do it. Only torch's layers add gradients over processes."""
    is_plain = "B" not in arrays or "deep_W.0" in arrays or activation != "tanh"
    if is_plain or group.size > 1:
        return TorchHiddenLayers(arrays, activation, threads, group)
    return FusedHiddenLayer(arrays, threads)


def _tanh(x: Tensor) -> Tensor:
    """tanh x = 2·sigmoid(2x) - 1, in place: four times as fast as torch's, within 2e-7."""
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": _tanh,
    "sigmoid": torch.sigmoid_,
    "relu": torch.relu_,
}

_DERIVATIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": lambda d, h: torch.ops.aten.tanh_backward(d, h),
    "sigmoid": lambda d, h: torch.ops.aten.sigmoid_backward(d, h),
    "relu": lambda d, h: d * (h > 0),
}


@kernel
def _merge_rows_after_barrier(lo: int, hi: int, point: Any, sums: Any, layout: Any) -> None:
    """Rows lo..hi of all threads, once these have come, merged into the first one's buffer.

    Traffic: the rows, in the second-level cache.
    """
    barrier_wait(point)
    merge_rows(lo, hi, sums, layout)


class TorchHiddenLayers:
    """Any layers, by torch."""

    def __init__(
        self, arrays: Mapping[str, Array], activation: str, threads: int, group: ProcessGroup
    ) -> None:
        self._weights = {n: torch.from_numpy(a) for n, a in arrays.items() if n not in TABLES}
        self._depth = sum(name.startswith("deep_W") for name in self._weights)
        self._activate, self._derivative = _ACTIVATIONS[activation], _DERIVATIVES[activation]
        self._group = group
        self._inputs = [torch.empty(0)] * threads
        self._units: list[list[Tensor]] = [[] for _ in range(threads)]
        sizes = [pad_width(weight.numel()) for weight in self._weights.values()]
        ends = np.cumsum([0, *sizes]).tolist()
        self._places = dict(
            zip(self._weights, map(slice, ends[:-1], ends[1:]), strict=True)
        )  # of each parameter's gradient in a thread's buffer
        dtype = arrays["input_table"].dtype
        self._gradients = aligned_zeros(dtype, threads * ends[-1]).reshape(threads, -1)
        self._views = [self._views_of(buffer) for buffer in self._gradients]

    def _views_of(self, buffer: Array) -> dict[str, Tensor]:
        """A thread's own gradients, in the shapes of their parameters."""
        return {
            name: torch.from_numpy(buffer[self._places[name]][: weight.numel()]).view(weight.shape)
            for name, weight in self._weights.items()
        }

    def thread_limits(self) -> AbstractContextManager[None]:
        return single_torch_thread()

    def reserve(self, rows: int) -> None:
        pass

    def prepare(self, thread: int) -> None:
        pass

    def forward(self, thread: int, point: BarrierPoint, part: Range, rows: BatchRows) -> None:
        weights, g = self._weights, self._activate
        sums = self._merged(point, rows.input, *part)
        if len(rows.scale):
            sums *= _scale_column(rows.scale, *part)
        states = torch.from_numpy(unpadded(rows.state, rows.output.layout)[slice(*part)])
        c, B = weights["c"], weights.get("B")
        units = [g(sums + c if B is None else torch.addmm(c, sums, B.T))]
        for i in range(self._depth):
            W, c = weights[f"deep_W.{i}"], weights[f"deep_c.{i}"]
            units.append(g(torch.addmm(c, units[-1], W.T)))
        self._inputs[thread], self._units[thread] = sums, units
        if "Q" in weights:
            torch.mm(units[-1], weights["Q"].T, out=states)
        else:
            states.copy_(units[-1])

    def backward(self, thread: int, point: BarrierPoint, part: Range, rows: BatchRows) -> None:
        d = self._merged(point, rows.output, *part)
        weights, units, out = self._weights, self._units[thread], self._views[thread]
        if "Q" in weights:
            torch.mm(d.T, units[-1], out=out["Q"])
            d = d @ weights["Q"]
        for i in range(self._depth - 1, -1, -1):
            d = self._derivative(d, units[i + 1])
            torch.mm(d.T, units[i], out=out[f"deep_W.{i}"])
            torch.sum(d, 0, out=out[f"deep_c.{i}"])
            d = d @ weights[f"deep_W.{i}"]
        d = self._derivative(d, units[0])
        torch.sum(d, 0, out=out["c"])
        if "B" in weights:
            torch.mm(d.T, self._inputs[thread], out=out["B"])
            d = d @ weights["B"]
        if len(rows.scale):
            d *= _scale_column(rows.scale, *part)
        # The sums themselves are no longer needed: their gradient takes their place.
        torch.from_numpy(rows.input.matrix())[slice(*part)] = d

    def _merged(self, point: BarrierPoint, memory: RowBuffers, lo: int, hi: int) -> Tensor:
        """Rows lo..hi of all threads and processes, as a view of the first buffer (n, D).

        Without other processes, each thread merges the rows that it goes on with, while they are in
        its cache.
        """
        end = hi if self._group.size == 1 else lo
        _merge_rows_after_barrier(lo, end, point, row_sums(memory), memory.layout)
        return torch.from_numpy(memory.matrix())[lo:hi]

    def update(self, thread: int, parameter: Callable[[str], AdamParameter]) -> None:
        for name, place in self._places.items():
            moved = parameter(name)
            lo, hi = even_ranges(0, len(moved.table), len(self._gradients))[thread]
            first = self._gradients[0][place]
            for others in self._gradients[1:]:
                first[lo:hi] += others[place][lo:hi]
            update_flat(lo, hi, moved, first)

    def sum_over_processes(self) -> None:
        for others in self._gradients[1:]:
            self._gradients[0] += others
            others[:] = 0.0
        self._group.all_reduce(self._gradients[0])


def _scale_column(scale: Array, lo: int, hi: int) -> Tensor:
    return torch.from_numpy(scale[lo:hi]).unsqueeze(1)
