"""Sums, scores, costs and whole steps against the paper's equations in plain torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels import reference
from tests.kernels.cases import (
    CASES,
    COLUMNS,
    CONTEXT,
    ROWS,
    TARGETS,
    Case,
    batch_of,
    cells_of,
    parameters,
    plain,
    rules_of,
)
from tests.kernels.reference import assert_close
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.scoring import cell_scores, context_sum

each_case = pytest.mark.parametrize("case", CASES)


@each_case
def test_contexts_are_summed(case: Case) -> None:
    table, context = case.table(), cells_of(CONTEXT, case.levels, case.seed, case.dtype)
    got = context_sum(table.numpy(), context, shared=case.shared, threads=case.threads)
    assert_close(
        torch.from_numpy(got),
        reference.context_sum(table.double(), plain(context), ROWS, case.shared),
    )


@each_case
def test_cells_are_scored(case: Case) -> None:
    table, cells = case.table(), plain(cells_of(TARGETS, case.levels, case.seed, case.dtype))
    state, bias = case.normal(ROWS, case.width), case.normal(COLUMNS, case.levels, number=1)
    asked = cells.rows.numpy(), cells.columns.numpy()
    how: dict[str, Any] = {"shared": case.shared, "threads": case.threads}
    got = torch.from_numpy(cell_scores(state.numpy(), table.numpy(), bias.numpy(), *asked, **how))
    exact = state.double(), table.double(), bias.double()
    assert_close(got, reference.cell_scores(*exact, cells.rows, cells.columns, case.shared))


@each_case
def test_a_step_has_the_cost_and_the_gradients_of_the_equations(case: Case) -> None:
    """After one step Adam's first moment is (1 - β₁)·(gradient + decay·weight)."""
    net, batch = parameters(case), batch_of(case)
    params, rules = reference.leaves(net.tensors), rules_of(net)
    how: dict[str, Any] = {"ordinal_weight": [1.0, 0.0, 0.3][case.seed % 3]}
    engine = net.engine(rules, threads=case.threads, **how)
    cost = engine.step(batch)
    expected = reference.batch_cost(
        params, plain(batch.context), plain(batch.targets), ROWS, shared=case.shared, **how
    )
    expected.backward()  # type: ignore[no-untyped-call]
    assert cost == pytest.approx(float(expected.detach()), rel=1e-5)
    for name, p in params.items():
        assert p.grad is not None
        gradient = p.grad + rules[name].decay * p.detach()
        first, second = engine.parameters.moments[name]
        assert_close(first, (1 - rules[name].betas[0]) * gradient)
        assert_close(second, (1 - rules[name].betas[1]) * gradient.square())


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    """Any width, levels, numbers of cells (rows may come twice in a column) and threads."""
    rng = np.random.default_rng(seed)
    width, K, M = int(rng.integers(1, 90)), int(rng.integers(2, 14)), int(rng.integers(1, 9))
    counts = [rng.integers(0, 40, M).tolist() for _ in range(2)]
    case = Case(width, K, torch.float32, int(rng.integers(1, 4)), bool(rng.integers(2)))
    net = parameters(case, columns=M)
    params, rules = reference.leaves(net.tensors), rules_of(net)
    context, targets = (cells_of(c, K, seed, case.dtype, twice=True) for c in counts)
    batch = GroupedBatch(context, targets, np.bincount(context.rows, minlength=ROWS))
    engine = net.engine(rules, threads=case.threads)
    cost = engine.step(batch)
    cells = plain(context), plain(targets)
    if len(targets.rows):
        expected = reference.batch_cost(params, *cells, ROWS, shared=case.shared)
        expected.backward()  # type: ignore[no-untyped-call]
        assert cost == pytest.approx(float(expected.detach()), rel=1e-5)
    for name, p in params.items():
        gradient = (0 if p.grad is None else p.grad) + rules[name].decay * p.detach()
        assert_close(engine.parameters.moments[name][0], (1 - rules[name].betas[0]) * gradient)


@pytest.mark.parametrize("threads", [2, 3])
def test_same_bits_twice_and_the_same_numbers_for_any_threads(threads: int) -> None:
    case = Case(70, 5, torch.float32, threads, True)
    table, state = case.table().numpy(), case.normal(ROWS, 70).numpy()
    context = cells_of(CONTEXT, 5, 1, case.dtype)
    asked = plain(cells_of(TARGETS, 5, 2, case.dtype))
    cells = asked.rows.numpy(), asked.columns.numpy()
    bias = case.normal(COLUMNS, 5).numpy()

    def answers(count: int) -> tuple[Tensor, Tensor]:
        how: dict[str, Any] = {"shared": True, "threads": count}
        answers = context_sum(table, context, **how), cell_scores(state, table, bias, *cells, **how)
        return torch.from_numpy(answers[0]), torch.from_numpy(answers[1])

    first, second, single = answers(threads), answers(threads), answers(1)
    for a, b, c in zip(first, second, single, strict=True):
        assert torch.equal(a, b)
        assert_close(a, c)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ask(**changes: Any) -> Array:
    """cell_scores of two good cells, with some arguments changed."""
    good: dict[str, Any] = {
        "state": zeros(3, 4),
        "table": zeros(5, 2, 4),
        "bias": zeros(5, 2),
        "rows": np.array([0, 2]),
        "columns": np.array([4, 0]),
        "shared": True,
    }
    return cell_scores(**(good | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": zeros(5, 2, 4).astype(np.float16)}, "table has dtype float16; it must be float"),
        ({"table": zeros(5, 8)}, r"table has shape \(5, 8\)"),
        ({"table": zeros(5, 1, 4), "bias": zeros(5, 1)}, "2..255 levels"),
        ({"table": zeros(5, 4, 2).swapaxes(1, 2)}, "table is not contiguous"),
        ({"bias": zeros(5, 3)}, r"bias has shape \(5, 3\); it must be \(5, 2\)"),
        ({"bias": zeros(5, 2).astype(np.float64)}, "bias has dtype float64"),
        ({"state": zeros(3, 5)}, r"state has shape \(3, 5\); it must be \(any, 4\)"),
        ({"rows": np.array([0, 3])}, r"rows\[1\] \(=3\) must lie in 0..2 \(rows = 3\)"),
        ({"threads": 0}, r"threads \(=0\) must be at least 1"),
    ],
)
def test_bad_arguments_are_refused_before_a_kernel_runs(
    changes: dict[str, Any], message: str
) -> None:
    assert np.isfinite(ask()).all()
    with pytest.raises(ModelError, match=message):
        ask(**changes)


def test_ratings_grouped_for_another_table_are_refused() -> None:
    context = cells_of([1, 2, 1], 2, 1, torch.float32)
    with pytest.raises(ModelError, match="grouped for 3 columns; the table has 5"):
        context_sum(zeros(5, 2, 4), context, shared=True)
