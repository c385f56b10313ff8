"""Predictions against the reference's scores and torch's softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.errors import ModelError
from cfnade.kernels import predict
from cfnade.models import Context, ops

ProblemMaker = Callable[[int, int, int, int, int], Any]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [(1, 7, 6, 5, 50), (2, 33, 3, 2, 1), (3, 7, 50, 100, 16)])
def test_given_cells(
    problem: ProblemMaker, size: tuple[int, int, int, int, int], shared: bool
) -> None:
    case = problem(*size)
    cells = case.targets
    inputs = (case.state.float(), case.table.float(), case.bias.float(), cells.rows, cells.columns)
    wanted = ops.cell_scores(
        case.state, case.table, case.bias, cells.rows, cells.columns, shared=shared
    ).softmax(1)
    got = predict.probabilities(*inputs, shared=shared)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-6)
    values = torch.arange(1, size[3] + 1)
    mean = predict.expected_values(*inputs, values, shared=shared)
    torch.testing.assert_close(mean.double(), wanted @ values.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [(1, 3, 50, 5, 50), (2, 3, 1, 2, 1), (3, 3, 16, 100, 17)])
def test_all_columns_of_one_row(
    problem: ProblemMaker, size: tuple[int, int, int, int, int], shared: bool, threads: int
) -> None:
    case = problem(*size)
    columns = torch.arange(size[2])
    rows = torch.full_like(columns, 1)
    wanted = ops.cell_scores(case.state, case.table, case.bias, rows, columns, shared=shared)
    inputs = (case.state[1].float(), case.table.float(), case.bias.float())
    scores = predict.score_all(*inputs, shared=shared, threads=threads)
    torch.testing.assert_close(scores.double(), wanted, rtol=1e-5, atol=1e-4)
    values = torch.linspace(0.5, 5.0, size[3], dtype=torch.float64)
    means = predict.expect_all(*inputs, values, shared=shared, threads=threads)
    torch.testing.assert_close(means.double(), wanted.softmax(1) @ values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shared", [True, False])
def test_the_sum_of_one_row(problem: ProblemMaker, shared: bool) -> None:
    case = problem(4, 1, 6, 5, 50)
    rng = np.random.default_rng(0)
    columns, levels = rng.integers(0, 6, 9), rng.integers(0, 5, 9)
    context = Context(torch.tensor([0, 9]), torch.tensor(columns), torch.tensor(levels))
    wanted = ops.context_sum(case.table, context, shared=shared)[0]
    got = predict.sum_row(case.table.float(), columns, levels, shared=shared)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def test_bad_rows_are_refused() -> None:
    table = torch.zeros(4, 2, 3)
    with pytest.raises(ModelError, match=r"columns\[0\] \(=4\) must lie in 0..3"):
        predict.sum_row(table, np.array([4]), np.array([0]), shared=True)
    with pytest.raises(ModelError, match="must be one-dimensional"):
        predict.sum_row(table, np.array([1]), np.array([0, 1]), shared=True)
    with pytest.raises(ModelError, match=r"state has shape \(2,\); it must be \(3,\)"):
        predict.score_all(torch.zeros(2), table, torch.zeros(4, 2), shared=True)
    with pytest.raises(ModelError, match=r"values has shape \(3,\); it must be \(2,\)"):
        predict.expect_all(torch.zeros(3), table, torch.zeros(4, 2), torch.ones(3), shared=True)
