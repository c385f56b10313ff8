"""The differentiable kernels against the plain torch reference, over random ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels import autograd
from cfnade.kernels.grouping import Grouped
from cfnade.kernels.inputs import group_cells, group_context
from cfnade.models import Context, ops
from cfnade.models.costs import hybrid_cost

ProblemMaker = Callable[[int, int, int, int, int], Any]

sizes = st.tuples(
    st.integers(0, 2**31),  # seed
    st.sampled_from([1, 7, 33]),  # rows
    st.sampled_from([1, 3, 6]),  # columns
    st.sampled_from([2, 5, 7, 100]),  # levels
    st.sampled_from([1, 16, 50, 70, 256]),  # width
)
# Compiling takes seconds and happens inside an example; the examples never change by themselves.
calm = settings(deadline=None, derandomize=True, max_examples=15)
ONE_COLUMN, MANY_LEVELS, NO_ROWS = (3, 7, 1, 2, 1), (4, 33, 6, 100, 1), (5, 0, 3, 5, 4)


def close(got: Tensor | None, wanted: Tensor | None) -> None:
    """Equal to 1e-5 of the largest number; got in float32, wanted in float64."""
    assert got is not None
    assert wanted is not None
    got, wanted = got.detach(), wanted.detach()
    scale = float(wanted.abs().max()) if wanted.numel() else 1.0
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5 * max(scale, 1e-3))


def leaves(*tensors: Tensor, dtype: torch.dtype) -> list[Tensor]:
    return [tensor.to(dtype).clone().requires_grad_() for tensor in tensors]


def with_gradients(
    function: Callable[..., Tensor], inputs: list[Tensor], slopes: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    value = function(*inputs)
    slopes = torch.ones_like(value) if slopes is None else slopes.to(value.dtype)
    return value, torch.autograd.grad(value, inputs, slopes)


@pytest.mark.parametrize("shared", [True, False])
@calm
@given(size=sizes)
@example(size=ONE_COLUMN)
@example(size=MANY_LEVELS)
@example(size=NO_ROWS)
def test_context_sum_and_its_gradient_are_the_references(
    problem: ProblemMaker, shared: bool, size: tuple[int, int, int, int, int]
) -> None:
    case = problem(*size)
    slopes = case.state  # any (B, D)
    results = [
        with_gradients(
            lambda table, how=how: how(table, case.context, shared=shared),
            leaves(case.table, dtype=dtype),
            slopes,
        )
        for how, dtype in ((autograd.context_sum, torch.float32), (ops.context_sum, torch.float64))
    ]
    (got, got_grads), (wanted, wanted_grads) = results
    close(got, wanted)
    close(got_grads[0], wanted_grads[0])


@pytest.mark.parametrize("shared", [True, False])
@calm
@given(size=sizes)
@example(size=ONE_COLUMN)
@example(size=MANY_LEVELS)
@example(size=NO_ROWS)
def test_cell_scores_and_their_gradients_are_the_references(
    problem: ProblemMaker, shared: bool, size: tuple[int, int, int, int, int]
) -> None:
    case = problem(*size)
    cells = case.targets
    slopes = torch.randn(
        cells.rows.numel(), size[3], generator=torch.Generator().manual_seed(size[0])
    )
    results = [
        with_gradients(
            lambda *t, how=how: how(*t, cells.rows, cells.columns, shared=shared),
            leaves(case.state, case.table, case.bias, dtype=dtype),
            slopes,
        )
        for how, dtype in ((autograd.cell_scores, torch.float32), (ops.cell_scores, torch.float64))
    ]
    (got, got_grads), (wanted, wanted_grads) = results
    close(got, wanted)
    for mine, theirs in zip(got_grads, wanted_grads, strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shared", [True, False])
@calm
@given(size=sizes)
@example(size=ONE_COLUMN)
@example(size=MANY_LEVELS)
@example(size=NO_ROWS)
def test_the_fused_cost_and_its_gradients_are_the_references(
    problem: ProblemMaker,
    shared: bool,
    ordinal_weight: float,
    size: tuple[int, int, int, int, int],
) -> None:
    case = problem(*size)
    cells = case.targets

    def kernel(state: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        parts = (cells.rows, cells.columns, cells.levels, cells.weights)
        return autograd.target_cost(
            state, table, bias, *parts, shared=shared, ordinal_weight=ordinal_weight
        )

    def reference(state: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        scores = ops.cell_scores(state, table, bias, cells.rows, cells.columns, shared=shared)
        costs = hybrid_cost(scores, cells.levels, ordinal_weight)
        total: Tensor = (cells.weights * costs).sum()
        return total

    inputs = (case.state, case.table, case.bias)
    got, got_grads = with_gradients(kernel, leaves(*inputs, dtype=torch.float32))
    wanted, wanted_grads = with_gradients(reference, leaves(*inputs, dtype=torch.float64))
    close(got, wanted)
    for mine, theirs in zip(got_grads, wanted_grads, strict=True):
        close(mine, theirs)


def test_gradients_equal_finite_differences_in_double_precision(problem: ProblemMaker) -> None:
    case = problem(8, 5, 3, 4, 3)
    cells = case.targets
    inputs = leaves(case.state, case.table, case.bias, dtype=torch.float64)
    parts = (cells.rows, cells.columns)

    def sums(table: Tensor) -> Tensor:
        return autograd.context_sum(table, case.context, shared=True)

    def scores(state: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        return autograd.cell_scores(state, table, bias, *parts, shared=True)

    def cost(state: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        cell = (*parts, cells.levels, cells.weights)
        return autograd.target_cost(state, table, bias, *cell, shared=True, ordinal_weight=0.4)

    assert torch.autograd.gradcheck(sums, inputs[1:2])
    assert torch.autograd.gradcheck(scores, inputs)
    assert torch.autograd.gradcheck(cost, inputs)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_twice_and_the_same_numbers_for_any_threads(
    problem: ProblemMaker, threads: int
) -> None:
    case = problem(9, 33, 6, 5, 50)
    cells = case.targets

    def cost_and_gradients(count: int) -> list[Tensor]:
        state, table, bias = leaves(case.state, case.table, case.bias, dtype=torch.float32)
        sums = autograd.context_sum(table, case.context, shared=True, threads=count)
        parts = (cells.rows, cells.columns, cells.levels, cells.weights)
        how: dict[str, Any] = {"shared": True, "ordinal_weight": 1.0, "threads": count}
        cost = autograd.target_cost(state + sums, table, bias, *parts, **how)
        return [cost, *torch.autograd.grad(cost, (state, table, bias))]

    first, second, single = (cost_and_gradients(count) for count in (threads, threads, 1))
    for a, b, c in zip(first, second, single, strict=True):
        assert torch.equal(a, b)
        close(a, c.double())


def test_a_grouped_batch_gives_what_the_ungrouped_one_gives(problem: ProblemMaker) -> None:
    case = problem(10, 7, 6, 5, 16)
    cells = case.targets
    table, bias, state = case.table.float(), case.bias.float(), case.state.float()
    known = group_context(case.context, 6, 5)
    assert isinstance(known, Grouped)
    assert torch.equal(
        autograd.context_sum(table, known, shared=True),
        autograd.context_sum(table, case.context, shared=True),
    )
    parts = (cells.rows, cells.columns, cells.levels, cells.weights.float())
    grouped = group_cells(*parts, size=7, n_columns=6, n_levels=5)
    assert torch.equal(
        autograd.grouped_cost(state, table, bias, grouped, shared=False, ordinal_weight=1.0),
        autograd.target_cost(state, table, bias, *parts, shared=False, ordinal_weight=1.0),
    )


def call(**changes: Any) -> Tensor:
    """target_cost on two good cells, with some arguments changed."""
    good: dict[str, Any] = {
        "state": torch.zeros(3, 4),
        "table": torch.zeros(5, 2, 4),
        "bias": torch.zeros(5, 2),
        "rows": torch.tensor([0, 2]),
        "columns": torch.tensor([4, 0]),
        "levels": torch.tensor([0, 1]),
        "weights": torch.ones(2),
        "shared": True,
        "ordinal_weight": 1.0,
    }
    return autograd.target_cost(**(good | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": torch.zeros(5, 2, 4).half()}, "table has dtype torch.float16; it must be float"),
        ({"table": torch.zeros(5, 8)}, r"table has shape \(5, 8\)"),
        ({"table": torch.zeros(5, 1, 4), "bias": torch.zeros(5, 1)}, "2..255 levels"),
        ({"table": torch.zeros(5, 4, 2).transpose(1, 2)}, "table is not contiguous"),
        ({"bias": torch.zeros(5, 3)}, r"bias has shape \(5, 3\); it must be \(5, 2\)"),
        ({"bias": torch.zeros(5, 2).double()}, "bias has dtype torch.float64"),
        ({"state": torch.zeros(3, 5)}, r"state has shape \(3, 5\); it must be \(any, 4\)"),
        ({"rows": torch.tensor([0, 3])}, r"rows\[1\] \(=3\) must lie in 0..2"),
        ({"rows": torch.tensor([-1, 0])}, r"rows\[0\] \(=-1\) must lie in 0..2"),
        ({"rows": torch.tensor([0])}, r"rows has shape \(1,\)"),
        ({"columns": torch.tensor([5, 0])}, r"columns\[0\] \(=5\) must lie in 0..4"),
        ({"columns": torch.tensor([0.0, 1.0])}, "columns has dtype torch.float32; it must be an"),
        ({"levels": torch.tensor([0, 2])}, r"levels\[1\] \(=2\) must lie in 0..1"),
        ({"weights": torch.ones(3)}, r"weights has shape \(3,\)"),
        ({"ordinal_weight": 1.5}, r"ordinal_weight \(=1.5\) must lie in 0..1"),
        ({"threads": 0}, r"threads \(=0\) must be at least 1"),
    ],
)
def test_bad_arguments_are_refused_before_a_kernel_runs(
    changes: dict[str, Any], message: str
) -> None:
    assert call().isfinite()
    with pytest.raises(ModelError, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("offsets", "columns", "levels", "message"),
    [
        ([0, 3], [0, 1], [0, 1], "offsets must rise from 0"),
        ([1, 2], [0, 1], [0, 1], "offsets must rise from 0"),
        ([0, 2, 1, 2], [0, 1], [0, 1], "offsets must rise from 0"),
        ([0, 2], [0, 9], [0, 1], r"columns\[1\] \(=9\)"),
        ([0, 2], [0, 1], [0, 7], r"levels\[1\] \(=7\)"),
    ],
)
def test_a_bad_context_is_refused(
    offsets: list[int], columns: list[int], levels: list[int], message: str
) -> None:
    context = Context(*(torch.tensor(part) for part in (offsets, columns, levels)))
    with pytest.raises(ModelError, match=message):
        autograd.context_sum(torch.zeros(5, 2, 4), context, shared=True)


def test_ratings_grouped_for_another_table_are_refused(problem: ProblemMaker) -> None:
    known = group_context(problem(1, 7, 3, 2, 4).context, 3, 2)
    with pytest.raises(ModelError, match="grouped for 3 columns; the table has 5"):
        autograd.context_sum(torch.zeros(5, 2, 4), known, shared=True)
