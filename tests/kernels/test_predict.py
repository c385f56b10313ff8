"""Predictions against the reference's scores and torch's softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cfnade.errors import ModelError
from cfnade.kernels import predict
from cfnade.models import ops

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


def test_values_must_be_one_for_each_level() -> None:
    cell = torch.tensor([0])
    inputs = (torch.zeros(1, 3), torch.zeros(4, 2, 3), torch.zeros(4, 2), cell, cell)
    with pytest.raises(ModelError, match=r"values has shape \(3,\); it must be \(2,\)"):
        predict.expected_values(*inputs, torch.ones(3), shared=True)
