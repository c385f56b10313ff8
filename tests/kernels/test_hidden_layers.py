"""Layers between the tables, fused or by torch, against autograd and torch's Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.kernels.reference import assert_close, leaves, torch_adam
from torch import Tensor

from cfnade.distributed.process_group import SINGLE_PROCESS
from cfnade.kernels.adam import AdamParameter, AdamRule
from cfnade.kernels.buffers import Array, RowBuffers, aligned_zeros, unpadded
from cfnade.kernels.fused_hidden_layer import BatchRows, FusedHiddenLayer, even_ranges
from cfnade.kernels.hidden_layers import HiddenLayers, TorchHiddenLayers, make_hidden_layers
from cfnade.kernels.threads import NO_WAIT, Barrier, run_parallel

SIZES = [
    # input, hidden, output, rows, threads
    (50, 500, 50, 101, 2),
    (1, 1, 1, 1, 1),
    (3, 7, 64, 2, 3),
    (16, 64, 17, 96, 1),
    (20, 256, 112, 97, 2),
    (100, 33, 5, 13, 2),
]
RULE = AdamRule(rate=0.1, decay=0.01, eps=1.0)


def factors(n_input: int, n_hidden: int, n_output: int, dtype: torch.dtype) -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(n_input + 10 * n_hidden)
    shapes = {"B": (n_hidden, n_input), "c": (n_hidden,), "Q": (n_output, n_hidden)}
    return {
        name: torch.randn(*shape, generator=make, dtype=dtype) * 0.3
        for name, shape in shapes.items()
    }


def with_tables(weights: dict[str, Tensor]) -> dict[str, Array]:
    """The memory of the weights, and tables of their widths."""
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    widths = {"input_table": weights["B"].shape[1], "output_table": weights["Q"].shape[0]}
    tables = {name: np.zeros((2, 2, width), arrays["c"].dtype) for name, width in widths.items()}
    return arrays | tables | {"bias": np.zeros((2, 2), arrays["c"].dtype)}


def rows_of(arrays: dict[str, Array], rows: int, threads: int, scale: Array) -> BatchRows:
    inner, outer = (RowBuffers(arrays[name], threads) for name in ("input_table", "output_table"))
    for memory in (inner, outer):
        memory.reserve(rows)
    return BatchRows(inner, outer, aligned_zeros(scale.dtype, outer.size), scale)


def pass_through(
    hidden: HiddenLayers, batch: BatchRows, arrays: dict[str, Array], threads: int
) -> None:
    """Rows go forward and back, and the weights move by one step of Adam."""
    rows = batch.input.rows
    hidden.reserve(rows)
    barrier, ranges = Barrier(threads), even_ranges(0, rows, threads)
    zeros = {name: np.zeros(array.size, array.dtype) for name, array in arrays.items()}

    def parameter(name: str) -> AdamParameter:
        flat = arrays[name].reshape(-1)
        return AdamParameter(flat, zeros[name], zeros[name].copy(), RULE.at_step(1), False)

    def forward(thread: int) -> None:
        hidden.prepare(thread)
        hidden.forward(thread, barrier.point(thread, 1), ranges[thread], batch)

    def backward(thread: int) -> None:
        hidden.backward(thread, barrier.point(thread, 2), ranges[thread], batch)

    for part in (forward, backward, lambda thread: hidden.update(thread, parameter)):
        run_parallel(part, [(thread,) for thread in range(threads)])


@pytest.mark.parametrize("kind", ["fused", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("scaled", [False, True])
def test_states_gradients_and_updates_are_those_of_autograd_and_adam(
    sizes: tuple[int, ...], dtype: torch.dtype, scaled: bool, kind: str
) -> None:
    *widths, rows, threads = sizes
    weights = factors(widths[0], widths[1], widths[2], dtype)
    arrays, rng = with_tables(weights), np.random.default_rng(0)
    scale = rng.uniform(0.5, 2.0, rows if scaled else 0).astype(arrays["c"].dtype)
    batch = rows_of(arrays, rows, threads, scale)
    totals = []  # of the threads' parts
    for memory in (batch.input, batch.output):
        parts = rng.normal(size=(threads, rows, memory.layout.width))
        for thread in range(threads):
            memory.matrix(thread)[:] = parts[thread]
        totals.append(torch.from_numpy(parts.sum(0)).requires_grad_())

    right = leaves(weights)
    inputs = totals[0] * torch.from_numpy(scale)[:, None] if scaled else totals[0]
    states = torch.tanh(inputs @ right["B"].T + right["c"]) @ right["Q"].T
    states.backward(totals[1].detach())  # type: ignore[no-untyped-call]
    torch_adam(right, dict.fromkeys(right, RULE)).step()

    hidden: HiddenLayers = FusedHiddenLayer(arrays, threads)
    if kind == "torch":
        hidden = TorchHiddenLayers(arrays, "tanh", threads, SINGLE_PROCESS)
    pass_through(hidden, batch, arrays, threads)
    found = unpadded(batch.state, batch.output.layout), batch.input.matrix()
    for ours, expected in zip(found, (states, totals[0].grad), strict=True):
        assert_close(ours, expected, single=2e-5, double=1e-12)
    for name, weight in weights.items():
        assert_close(weight, right[name], single=2e-5, double=1e-12)


def test_what_is_beyond_the_width_of_a_row_stays_zero() -> None:
    arrays, rows = with_tables(factors(50, 500, 50, torch.float32)), 9
    hidden, batch = FusedHiddenLayer(arrays, 1), rows_of(arrays, rows, 1, np.empty(0, np.float32))
    hidden.reserve(rows)
    batch.output.matrix()[:] = 1.0
    hidden.prepare(0)
    hidden.forward(0, NO_WAIT, (0, rows), batch)
    hidden.backward(0, NO_WAIT, (0, rows), batch)
    for padded in (batch.state, batch.input.part(0)):
        assert not padded.reshape(rows, 64)[:, 50:].any()


def test_one_layer_of_tanh_between_factors_is_fused() -> None:
    arrays = with_tables(factors(3, 4, 5, torch.float32))
    assert isinstance(make_hidden_layers(arrays, "tanh", 1, SINGLE_PROCESS), FusedHiddenLayer)
    assert isinstance(make_hidden_layers(arrays, "relu", 1, SINGLE_PROCESS), TorchHiddenLayers)
    full = {name: array for name, array in arrays.items() if name not in ("B", "Q")}
    assert isinstance(make_hidden_layers(full, "tanh", 1, SINGLE_PROCESS), TorchHiddenLayers)
