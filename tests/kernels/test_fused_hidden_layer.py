"""The hidden layer between factors in kernels against the same in torch, at many sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.reference import assert_close
from torch import Tensor

from cfnade.distributed.process_group import SINGLE_PROCESS
from cfnade.kernels.adam import AdamParameter, AdamRule
from cfnade.kernels.buffers import aligned_zeros
from cfnade.kernels.hidden_layers import (
    BatchRows,
    FusedHiddenLayer,
    HiddenLayers,
    TorchHiddenLayers,
    even_ranges,
    make_hidden_layers,
)
from cfnade.kernels.network import Network
from cfnade.kernels.threads import NO_WAIT, Barrier, run_parallel
from cfnade.kernels.torch_memory import Workspace, unpad

SIZES = [
    # given, hidden, wanted, rows, threads
    (50, 500, 50, 101, 2),
    (1, 1, 1, 1, 1),
    (3, 7, 64, 2, 3),
    (16, 64, 17, 96, 1),
    (20, 256, 112, 97, 2),
    (100, 33, 5, 13, 2),
]


def _network(given: int, hidden: int, wanted: int, dtype: torch.dtype) -> Network:
    make = torch.Generator().manual_seed(given + 10 * hidden)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=make, dtype=dtype) * 0.3

    tables = normal(2, 2, given), normal(2, 2, wanted), normal(2, 2)
    return Network(*tables, normal(hidden), normal(hidden, given), normal(wanted, hidden))


def _through(
    hidden: HiddenLayers, network: Network, rows: int, threads: int, scale: bool
) -> tuple[Tensor, Tensor]:
    """States, gradients of the sums; the weights have moved by one step of Adam."""
    given, wanted = (Workspace(t, threads) for t in (network.input_table, network.output_table))
    for memory in (given, wanted, hidden):
        memory.reserve(rows)
    kind = given.flat.dtype
    rng = np.random.default_rng(0)
    for memory in (given, wanted):
        for thread in range(threads):
            matrix = memory.matrix(thread)
            matrix[:] = torch.from_numpy(rng.normal(size=tuple(matrix.shape)))
    scales = rng.uniform(0.5, 2.0, rows if scale else 0).astype(kind)
    batch = BatchRows(given, wanted, aligned_zeros(kind, rows * wanted.shape.pitch), scales)
    gates, cuts = Barrier(threads), even_ranges(0, rows, threads)

    def forward(thread: int) -> None:
        hidden.begin(thread)
        hidden.forward(thread, gates.point(thread, 1), cuts[thread], batch)

    def backward(thread: int) -> None:
        hidden.backward(thread, gates.point(thread, 2), cuts[thread], batch)

    def move(thread: int) -> None:
        hidden.move(thread, lambda name: updates[name])

    zeros = {n: np.zeros(p.numel(), kind) for n, p in network.named().items()}
    numbers = AdamRule(rate=0.1, decay=0.01, eps=1.0).numbers(1)
    updates = {
        n: AdamParameter(p.view(-1).numpy(), zeros[n], zeros[n].copy(), numbers, False)
        for n, p in network.named().items()
    }
    for part in (forward, backward, move):
        run_parallel(part, [(thread,) for thread in range(threads)])
    return unpad(batch.state, wanted.shape), given.matrix().clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("scale", [False, True])
def test_kernels_say_what_torch_says(
    sizes: tuple[int, ...], dtype: torch.dtype, scale: bool
) -> None:
    given, hidden_units, wanted, rows, threads = sizes
    found: dict[str, Any] = {}
    for name, make in {"torch": TorchHiddenLayers, "kernels": FusedHiddenLayer}.items():
        network = _network(given, hidden_units, wanted, dtype)
        hidden = (
            make(network, threads, SINGLE_PROCESS) if name == "torch" else make(network, threads)
        )
        states, slopes = _through(hidden, network, rows, threads, scale)
        found[name] = [states, slopes, network.B, network.c, network.Q]
    for ours, right in zip(found["kernels"], found["torch"], strict=True):
        assert_close(ours, right, single=2e-5, double=1e-12)


def test_what_is_beyond_the_width_of_a_row_stays_zero() -> None:
    network = _network(50, 500, 50, torch.float32)
    hidden, rows = FusedHiddenLayer(network, 1), 9
    given, wanted = (Workspace(t, 1) for t in (network.input_table, network.output_table))
    for memory in (given, wanted, hidden):
        memory.reserve(rows)
    wanted.matrix()[:] = 1.0
    batch = BatchRows(given, wanted, aligned_zeros(np.float32, rows * 64), np.empty(0, np.float32))
    hidden.begin(0)
    hidden.forward(0, NO_WAIT, (0, rows), batch)
    hidden.backward(0, NO_WAIT, (0, rows), batch)
    for padded in (batch.state, given.part(0)):
        assert not padded.reshape(rows, 64)[:, 50:].any()


def test_only_one_layer_of_tanh_between_factors_has_kernels() -> None:
    network = _network(3, 4, 5, torch.float32)
    assert isinstance(make_hidden_layers(network, 1, SINGLE_PROCESS), FusedHiddenLayer)
    full = Network(torch.zeros(2, 2, 3), torch.zeros(2, 2, 3), torch.zeros(2, 2), torch.zeros(3))
    assert isinstance(make_hidden_layers(full, 1, SINGLE_PROCESS), TorchHiddenLayers)
