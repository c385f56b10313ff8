"""Dense layers between the two tables, as the threads of a step go through them.

One layer of tanh units between factors, the form for large data, has its own kernels
(fused_hidden_layer.py); torch does all others (network.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cfnade.distributed.process_group import ProcessGroup
from cfnade.kernels.adam import AdamParameter
from cfnade.kernels.buffers import Array, aligned_zeros, pad_width
from cfnade.kernels.column_passes import update_flat
from cfnade.kernels.fused_hidden_layer import (
    FusedBuffers,
    RowSums,
    hidden_backward,
    hidden_forward,
    hidden_update,
    merge_rows,
    pack_weights,
)
from cfnade.kernels.jit import kernel
from cfnade.kernels.network import Network, Trace, backward, forward
from cfnade.kernels.threads import BarrierPoint, barrier_wait, single_torch_thread
from cfnade.kernels.torch_memory import Workspace, unpad

ParameterLookup = Callable[[str], AdamParameter]


class BatchRows(NamedTuple):
    """The rows of a batch: summed contexts, states, and later the gradients of both."""

    given: Workspace
    wanted: Workspace
    state: Array  # (B · pitch,)
    scale: Array  # (B,) what multiplies the sums, or nothing


class HiddenLayers(Protocol):
    """All but the first two are called by each thread for its part."""

    def alone(self) -> AbstractContextManager[None]:
        """Around all of it, on the thread that hands out."""

    def reserve(self, rows: int) -> None:
        """Make room for a batch."""

    def begin(self, thread: int) -> None:
        """Before rows go forward: what needs no sums."""

    def forward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        """States of rows lo..hi from their sums, which are added up and scaled."""

    def backward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        """The gradient of the sums takes their place; that of the weights is kept."""

    def add_up_ranks(self) -> None:
        """The gradients of the weights, before these move, where there are ranks."""

    def move(self, thread: int, update: ParameterLookup) -> None:
        """Adam on the thread's share of the weights, once all threads have been back."""


def make_hidden_layers(network: Network, threads: int, group: ProcessGroup) -> HiddenLayers:
    """By kernels if there are any for this network. Ranks add up gradients: that is torch's."""
    plain = network.B is None or network.deep or network.activation != "tanh"
    if plain or group.size > 1:
        return TorchHiddenLayers(network, threads, group)
    return FusedHiddenLayer(network, threads)


class FusedHiddenLayer:
    """One layer of tanh between factors."""

    def __init__(self, network: Network, threads: int) -> None:
        assert network.B is not None
        assert network.Q is not None
        self._weights = [one.view(-1).numpy() for one in (network.B, network.c, network.Q)]
        H, J = network.B.shape
        widths = J, H, network.Q.shape[0]
        self._memory = FusedBuffers(self._weights[0].dtype, widths, threads)
        self._cuts = even_ranges(0, H, threads)

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reserve(self, rows: int) -> None:
        self._memory.reserve(rows)

    def begin(self, thread: int) -> None:
        pack_weights(*self._cuts[thread], *self._weights, self._memory.sizes, self._memory.layer)

    def forward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        del thread
        memory = self._memory
        fixed = rows.scale, memory.layer, memory.sizes, memory.units
        hidden_forward(*cut, gate, _row_sums(rows.given), *fixed, rows.state)

    def backward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        memory, both = self._memory, (_row_sums(rows.wanted), _row_sums(rows.given))
        fixed = rows.scale, memory.layer, memory.sizes, memory.units
        hidden_backward(*cut, gate, *both, *fixed, memory.gradients[thread])

    def add_up_ranks(self) -> None:
        raise NotImplementedError("ranks add up what torch calculates")

    def move(self, thread: int, update: ParameterLookup) -> None:
        updates, grads = (update("B"), update("c"), update("Q")), self._memory.gradients[thread]
        hidden_update(thread, len(self._cuts), grads, self._memory.sizes, updates)


def _row_sums(memory: Workspace) -> RowSums:
    return RowSums(memory.whole(), memory.threads, memory.size)


@kernel
def _merge_rows_after_barrier(lo: int, hi: int, gate: Any, sums: Any, shape: Any) -> None:
    """Rows lo..hi of all threads, once these have come, added up in the first one's buffer.

    Traffic: the rows, in the second-level cache.
    """
    barrier_wait(gate)
    merge_rows(lo, hi, sums, shape)


class TorchHiddenLayers:
    """Any layers, cut by rows so that every thread runs its own products."""

    def __init__(self, network: Network, threads: int, group: ProcessGroup) -> None:
        self._network, self._group = network, group
        self._traces: list[Trace] = [Trace(torch.empty(0))] * threads
        self._grads, self._places = _gradient_buffers(network, threads)
        self._views = [self._views_of(part) for part in self._grads]

    def _views_of(self, part: Array) -> dict[str, Tensor]:
        """A thread's own gradients, in the shapes of their parameters."""
        shapes = {name: self._network.named()[name].shape for name in self._places}
        return {
            name: torch.from_numpy(part[self._places[name]][: shape.numel()]).view(shape)
            for name, shape in shapes.items()
        }

    def alone(self) -> AbstractContextManager[None]:
        return single_torch_thread()

    def reserve(self, rows: int) -> None:
        pass

    def begin(self, thread: int) -> None:
        pass

    def forward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        sums = self._added_up(gate, rows.given, *cut)
        if len(rows.scale):
            sums *= _scale_column(rows.scale, *cut)
        states = unpad(rows.state, rows.wanted.shape)[slice(*cut)]
        self._traces[thread] = forward(self._network, sums, states)

    def backward(
        self, thread: int, gate: BarrierPoint, cut: tuple[int, int], rows: BatchRows
    ) -> None:
        d_state, grads = self._added_up(gate, rows.wanted, *cut), self._views[thread]
        d_sums = backward(self._network, self._traces[thread], d_state, grads)
        if len(rows.scale):
            d_sums *= _scale_column(rows.scale, *cut)
        # The sums themselves are no longer needed: their gradient takes their place.
        rows.given.matrix()[slice(*cut)] = d_sums

    def _added_up(self, gate: BarrierPoint, memory: Workspace, lo: int, hi: int) -> Tensor:
        """Rows lo..hi of all threads and ranks. Without ranks each thread adds those that it
        goes on with, while they are in its cache. Returns (n, D) of the first buffer."""
        _merge_rows_after_barrier(
            lo, hi if self._group.size == 1 else lo, gate, _row_sums(memory), memory.shape
        )
        return memory.matrix()[lo:hi]

    def move(self, thread: int, update: ParameterLookup) -> None:
        for name, place in self._places.items():
            parameter = update(name)
            cut = even_ranges(0, len(parameter.table), len(self._grads))[thread]
            first = self._grads[0][place]
            for others in self._grads[1:]:
                first[slice(*cut)] += others[place][slice(*cut)]
            update_flat(*cut, parameter, first)

    def add_up_ranks(self) -> None:
        for others in self._grads[1:]:
            self._grads[0] += others
            others[:] = 0.0
        self._group.all_reduce(self._grads[0])


def _gradient_buffers(network: Network, threads: int) -> tuple[Array, dict[str, slice]]:
    """For all dense parameters together, each padded, a gradient per thread; where each is."""
    tables = ("input_table", "output_table", "bias")
    dense = {name: p for name, p in network.named().items() if name not in tables}
    sizes = [pad_width(p.numel()) for p in dense.values()]
    ends = np.cumsum([0, *sizes]).tolist()
    places = dict(zip(dense, map(slice, ends[:-1], ends[1:]), strict=True))
    grads = aligned_zeros(next(iter(dense.values())).numpy().dtype, threads * ends[-1])
    return grads.reshape(threads, -1), places


def _scale_column(scale: Array, lo: int, hi: int) -> Tensor:
    return torch.from_numpy(scale[lo:hi]).unsqueeze(1)


def even_ranges(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of about equal size."""
    return list(pairwise(lo + (hi - lo) * part // parts for part in range(parts + 1)))
