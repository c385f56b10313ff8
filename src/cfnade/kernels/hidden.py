"""What lies between the two tables, as the threads of a step go through it.

One layer of tanh units between factors, the form of large data, has kernels of its own (dense.py);
all others are done in torch (network.py).
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
from cfnade.kernels.adam import Update
from cfnade.kernels.compiled import kernel
from cfnade.kernels.dense import (
    HiddenLayer,
    RowSums,
    add_up,
    hidden_backward,
    hidden_forward,
    hidden_step,
    pack,
)
from cfnade.kernels.gates import Gate, pass_gate
from cfnade.kernels.memory import Array, buffer, padded
from cfnade.kernels.network import Network, Trace, backward, forward
from cfnade.kernels.passes import flat_step
from cfnade.kernels.threads import one_torch_thread
from cfnade.kernels.torch_memory import Workspace, unpad

UpdateOf = Callable[[str], Update]


class BatchRows(NamedTuple):
    """The rows of a batch: summed contexts, states, and later the gradients of both."""

    given: Workspace
    wanted: Workspace
    state: Array  # (B · pitch,)
    scale: Array  # (B,) what multiplies the sums, or nothing


class HiddenPass(Protocol):
    """All but the first two are called by each thread for its part."""

    def alone(self) -> AbstractContextManager[None]:
        """Around all of it, on the thread that hands out."""

    def reserve(self, rows: int) -> None:
        """Make room for a batch."""

    def begin(self, thread: int) -> None:
        """Before rows go forward: what needs no sums."""

    def forward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        """States of rows lo..hi from their sums, which are added up and scaled."""

    def backward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        """The gradient of the sums takes their place; that of the weights is kept."""

    def add_up_ranks(self) -> None:
        """The gradients of the weights, before these move, where there are ranks."""

    def move(self, thread: int, update: UpdateOf) -> None:
        """Adam on the thread's share of the weights, once all threads have been back."""


def hidden_of(network: Network, threads: int, group: ProcessGroup) -> HiddenPass:
    """By kernels if there are any for this network. Ranks add up gradients: that is torch's."""
    plain = network.B is None or network.deep or network.activation != "tanh"
    if plain or group.size > 1:
        return HiddenInTorch(network, threads, group)
    return HiddenInKernels(network, threads)


class HiddenInKernels:
    """One layer of tanh between factors."""

    def __init__(self, network: Network, threads: int) -> None:
        assert network.B is not None
        assert network.Q is not None
        self._weights = [one.view(-1).numpy() for one in (network.B, network.c, network.Q)]
        H, J = network.B.shape
        widths = J, H, network.Q.shape[0]
        self._memory = HiddenLayer(self._weights[0].dtype, widths, threads)
        self._cuts = cut_evenly(0, H, threads)

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reserve(self, rows: int) -> None:
        self._memory.reserve(rows)

    def begin(self, thread: int) -> None:
        pack(*self._cuts[thread], *self._weights, self._memory.sizes, self._memory.layer)

    def forward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        del thread
        memory = self._memory
        fixed = rows.scale, memory.layer, memory.sizes, memory.units
        hidden_forward(*cut, gate, _sums(rows.given), *fixed, rows.state)

    def backward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        memory, both = self._memory, (_sums(rows.wanted), _sums(rows.given))
        fixed = rows.scale, memory.layer, memory.sizes, memory.units
        hidden_backward(*cut, gate, *both, *fixed, memory.gradients[thread])

    def add_up_ranks(self) -> None:
        raise NotImplementedError("ranks add up what torch calculates")

    def move(self, thread: int, update: UpdateOf) -> None:
        updates, grads = (update("B"), update("c"), update("Q")), self._memory.gradients[thread]
        hidden_step(thread, len(self._cuts), grads, self._memory.sizes, updates)


def _sums(memory: Workspace) -> RowSums:
    return RowSums(memory.whole(), memory.threads, memory.size)


@kernel
def _gather(lo: int, hi: int, gate: Any, sums: Any, shape: Any) -> None:
    """Rows lo..hi of all threads, once these have come, added up in the first one's buffer.

    Traffic: the rows, in the second-level cache.
    """
    pass_gate(gate)
    add_up(lo, hi, sums, shape)


class HiddenInTorch:
    """Any layers, cut by rows so that every thread runs its own products."""

    def __init__(self, network: Network, threads: int, group: ProcessGroup) -> None:
        self._network, self._group = network, group
        self._traces: list[Trace] = [Trace(torch.empty(0))] * threads
        self._grads, self._places = _gradients(network, threads)
        self._views = [self._views_of(part) for part in self._grads]

    def _views_of(self, part: Array) -> dict[str, Tensor]:
        """A thread's own gradients, in the shapes of their parameters."""
        shapes = {name: self._network.named()[name].shape for name in self._places}
        return {
            name: torch.from_numpy(part[self._places[name]][: shape.numel()]).view(shape)
            for name, shape in shapes.items()
        }

    def alone(self) -> AbstractContextManager[None]:
        return one_torch_thread()

    def reserve(self, rows: int) -> None:
        pass

    def begin(self, thread: int) -> None:
        pass

    def forward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        sums = self._added_up(gate, rows.given, *cut)
        if len(rows.scale):
            sums *= _column(rows.scale, *cut)
        states = unpad(rows.state, rows.wanted.shape)[slice(*cut)]
        self._traces[thread] = forward(self._network, sums, states)

    def backward(self, thread: int, gate: Gate, cut: tuple[int, int], rows: BatchRows) -> None:
        d_state, grads = self._added_up(gate, rows.wanted, *cut), self._views[thread]
        d_sums = backward(self._network, self._traces[thread], d_state, grads)
        if len(rows.scale):
            d_sums *= _column(rows.scale, *cut)
        # The sums themselves are no longer needed: their gradient takes their place.
        rows.given.matrix()[slice(*cut)] = d_sums

    def _added_up(self, gate: Gate, memory: Workspace, lo: int, hi: int) -> Tensor:
        """Rows lo..hi of all threads and ranks. Without ranks each thread adds those that it
        goes on with, while they are in its cache. Returns (n, D) of the first buffer."""
        _gather(lo, hi if self._group.size == 1 else lo, gate, _sums(memory), memory.shape)
        return memory.matrix()[lo:hi]

    def move(self, thread: int, update: UpdateOf) -> None:
        for name, place in self._places.items():
            parameter = update(name)
            cut = cut_evenly(0, len(parameter.table), len(self._grads))[thread]
            first = self._grads[0][place]
            for others in self._grads[1:]:
                first[slice(*cut)] += others[place][slice(*cut)]
            flat_step(*cut, parameter, first)

    def add_up_ranks(self) -> None:
        for others in self._grads[1:]:
            self._grads[0] += others
            others[:] = 0.0
        self._group.all_reduce(self._grads[0])


def _gradients(network: Network, threads: int) -> tuple[Array, dict[str, slice]]:
    """For all dense parameters together, each padded, a gradient per thread; where each is."""
    tables = ("input_table", "output_table", "bias")
    dense = {name: p for name, p in network.named().items() if name not in tables}
    sizes = [padded(p.numel()) for p in dense.values()]
    ends = np.cumsum([0, *sizes]).tolist()
    places = dict(zip(dense, map(slice, ends[:-1], ends[1:]), strict=True))
    grads = buffer(next(iter(dense.values())).numpy().dtype, threads * ends[-1])
    return grads.reshape(threads, -1), places


def _column(scale: Array, lo: int, hi: int) -> Tensor:
    return torch.from_numpy(scale[lo:hi]).unsqueeze(1)


def cut_evenly(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of about equal size."""
    return list(pairwise(lo + (hi - lo) * part // parts for part in range(parts + 1)))
