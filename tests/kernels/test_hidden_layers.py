"""Layers between the tables against autograd and torch's Adam."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.kernels.reference import assert_close, leaves, torch_adam
from torch import Tensor

from cfnade.kernels.adam import AdamParameter, AdamRule
from cfnade.kernels.buffers import Array, RowBuffers, aligned_zeros, pad_width, unpadded
from cfnade.kernels.hidden_layers import BatchRows, HiddenLayers
from cfnade.kernels.threads import NO_WAIT, Barrier, even_ranges, run_parallel

FACTORED = [
    # input, hidden units, output, rows, threads
    (50, (500,), 50, 101, 2),
    (1, (1,), 1, 1, 1),
    (3, (7,), 64, 2, 3),
    (16, (64,), 17, 96, 1),
    (20, (256,), 112, 97, 2),
    (100, (33,), 5, 13, 2),
    (5, (20, 33), 7, 50, 2),
    (40, (16, 3, 70), 9, 49, 3),
]
FULL = [((1,), 1, 1), ((7,), 2, 3), ((500,), 101, 2), ((33, 20), 97, 2), ((256, 5, 17), 13, 1)]
FORMS = [*FACTORED, *((None, hidden, None, rows, threads) for hidden, rows, threads in FULL)]
RULE = AdamRule(rate=0.1, decay=0.01, eps=1.0)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
}


def make_weights(
    n_input: int | None, hidden: tuple[int, ...], n_output: int | None, dtype: torch.dtype
) -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(sum(hidden))
    shapes: dict[str, tuple[int, ...]] = {"c": hidden[:1]}
    for n, (inner, outer) in enumerate(pairwise(hidden)):
        shapes |= {f"deep_W.{n}": (outer, inner), f"deep_c.{n}": (outer,)}
    if n_input is not None and n_output is not None:
        shapes |= {"B": (hidden[0], n_input), "Q": (n_output, hidden[-1])}
    return {
        name: torch.randn(*shape, generator=make, dtype=dtype) * 0.3
        for name, shape in shapes.items()
    }


def with_tables(weights: dict[str, Tensor]) -> dict[str, Array]:
    """The memory of the weights, and tables of their widths."""
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    depth = sum(name.startswith("deep_W") for name in weights)
    last = arrays[f"deep_c.{depth - 1}"].size if depth else arrays["c"].size
    widths = {
        "input_table": arrays["B"].shape[1] if "B" in arrays else arrays["c"].size,
        "output_table": arrays["Q"].shape[0] if "Q" in arrays else last,
    }
    tables = {name: np.zeros((2, 2, width), arrays["c"].dtype) for name, width in widths.items()}
    return arrays | tables | {"bias": np.zeros((2, 2), arrays["c"].dtype)}


def network(weights: dict[str, Tensor], x: Tensor, g: Callable[[Tensor], Tensor]) -> Tensor:
    """The states of summed contexts, as in models/cfnade.py."""
    h = g((x @ weights["B"].T if "B" in weights else x) + weights["c"])
    for n in range(sum(name.startswith("deep_W") for name in weights)):
        h = g(h @ weights[f"deep_W.{n}"].T + weights[f"deep_c.{n}"])
    return h @ weights["Q"].T if "Q" in weights else h


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
        hidden.forward(barrier.point(thread, 1), ranges[thread], batch)

    def backward(thread: int) -> None:
        hidden.backward(thread, barrier.point(thread, 2), ranges[thread], batch)

    for part in (forward, backward, lambda thread: hidden.update(thread, parameter)):
        run_parallel(part, [(thread,) for thread in range(threads)])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_states_gradients_and_updates_are_those_of_autograd_and_adam(
    form: tuple[int, tuple[int, ...], int, int, int],
    dtype: torch.dtype,
    scaled: bool,
    activation: str,
) -> None:
    n_input, units, n_output, rows, threads = form
    weights = make_weights(n_input, units, n_output, dtype)
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
    states = network(right, inputs, ACTIVATIONS[activation])
    states.backward(totals[1].detach())  # type: ignore[no-untyped-call]
    torch_adam(right, dict.fromkeys(right, RULE)).step()

    pass_through(HiddenLayers(arrays, activation, threads), batch, arrays, threads)
    found = unpadded(batch.state, batch.output.layout), batch.input.matrix()
    for ours, expected in zip(found, (states, totals[0].grad), strict=True):
        assert_close(ours, expected, single=2e-5, double=1e-12)
    for name, weight in weights.items():
        assert_close(weight, right[name], single=2e-5, double=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("form", [(50, (500,), 50), (None, (20,), None), (None, (20, 9), None)])
def test_what_is_beyond_the_width_of_a_row_stays_zero(
    form: tuple[int, tuple[int, ...], int], activation: str
) -> None:
    arrays, rows = with_tables(make_weights(*form, torch.float32)), 9
    hidden = HiddenLayers(arrays, activation, 1)
    batch = rows_of(arrays, rows, 1, np.empty(0, np.float32))
    hidden.reserve(rows)
    batch.output.matrix()[:] = 1.0
    hidden.prepare(0)
    hidden.forward(NO_WAIT, (0, rows), batch)
    hidden.backward(0, NO_WAIT, (0, rows), batch)
    for memory, padded in ((batch.output, batch.state), (batch.input, batch.input.part(0))):
        width = memory.layout.width
        assert pad_width(width) > width
        assert not padded.reshape(rows, -1)[:, width:].any()
